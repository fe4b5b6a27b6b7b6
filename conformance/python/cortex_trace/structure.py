"""Step 3: each part of a trace is well formed by itself and agrees with the head."""
from . import receipts
from .receipts import check_distinct, check_name, check_size, check_state, require

MAX_ROLE = 255
MAX_ORIGIN = 128
MAX_MODEL = 255
MAX_PLANNED = 32
MAX_STATEMENTS = 64
MAX_CITATIONS = 256
CAPS = {"max_rounds": 8, "max_candidates": 200, "max_evidence": 32, "excerpt_chars": 500}
PROSE_MODES = ("evidence_answer", "compare_sources")


def model_calls(trace):
    """Every model call with its path."""
    for i, one in enumerate(trace["rounds"]):
        for name in ("refined_by", "selected_by"):
            if one[name] is not None:
                yield f"rounds[{i}].{name}", one[name]
    if trace["answer"]["model"] is not None:
        yield "answer.model", trace["answer"]["model"]


def check(trace):
    """All rules of the step, the first that does not hold raises."""
    _counts(trace)
    for name in ("engine", "analyzer", "ranker", "chunker"):
        check_name(trace[name], name)
    for name in ("excerpt", "quote", "ground", "family"):
        check_name(trace["rules"][name], f"rules.{name}")
    check_size(trace["namespace"], receipts.MAX_NAMESPACE, "namespace")
    check_size(trace["origin"], MAX_ORIGIN, "origin")
    check_size(trace["principal"]["role"], MAX_ROLE, "principal.role")
    check_state(trace["state"], "state")
    for name, cap in CAPS.items():
        value = trace["policy"][name]
        require(1 <= value <= cap, f"policy.{name}", f"1 to {cap}", value)
    _plan(trace)
    for at, call in model_calls(trace):
        check_size(call["name"], MAX_MODEL, f"{at}.name")
        if call["digest"] is not None:
            check_size(call["digest"], MAX_MODEL, f"{at}.digest")
    for i, one in enumerate(trace["rounds"]):
        _round(trace, one, i)
    seen = set()
    for i, item in enumerate(trace["evidence"]):
        _evidence(trace, item, i, seen)
    _answer(trace)


def _counts(trace):
    def within(items, cap, at):
        require(len(items) <= cap, at, f"at most {cap}", len(items))

    statements = trace["answer"]["statements"]
    within(trace["rounds"], CAPS["max_rounds"], "rounds")
    within(trace["evidence"], CAPS["max_evidence"], "evidence")
    within(statements, MAX_STATEMENTS, "answer.statements")
    citations = [citation for statement in statements for citation in statement["citations"]]
    within(citations, MAX_CITATIONS, "answer.statements")
    within(trace["answer"]["gaps"], MAX_PLANNED, "answer.gaps")
    for i, one in enumerate(trace["rounds"]):
        within(one["receipt"]["candidates"], CAPS["max_candidates"], f"rounds[{i}].receipt.candidates")
        within(one["selected"], CAPS["max_candidates"], f"rounds[{i}].selected")


def _plan(trace):
    planned = trace["planned"]
    require(len(planned) <= MAX_PLANNED, "planned", f"at most {MAX_PLANNED}", len(planned))
    needed = trace["mode"] == "coverage_review"
    require(planned or not needed, "planned", "sub-questions in mode coverage_review", "none")
    seen = {trace["question"]}
    for i, query in enumerate(planned):
        require(query not in seen, f"planned[{i}]", "each question once", query)
        seen.add(query)


def _round(trace, one, i):
    at = f"rounds[{i}]"
    receipt = one["receipt"]
    require(one["i"] == i, f"{at}.i", i, one["i"])
    receipts.check(receipt, f"{at}.receipt")
    for name in ("namespace", "analyzer", "ranker"):
        require(receipt[name] == trace[name], f"{at}.receipt.{name}", trace[name], receipt[name])
    seq = trace["state"]["seq"]
    found = f"seq {receipt['state']['seq']}"
    require(receipt["state"] == trace["state"], f"{at}.receipt.state", f"the trace's, seq {seq}", found)
    may_mask = trace["principal"]["visible"] == "checked" or receipt["masked"] == 0
    require(may_mask, f"{at}.receipt.masked", "0, as everything was visible", receipt["masked"])
    check_distinct(one["selected"], f"{at}.selected")


def _evidence(trace, item, i, seen):
    at = f"evidence[{i}]"
    evidence = trace["evidence"]
    require(item["n"] == i + 1, f"{at}.n", i + 1, item["n"])
    start, end = item["span"]["start"], item["span"]["end"]
    require(start < end, f"{at}.span", "a span of at least one byte", f"{start} to {end}")
    place = (item["round"], item["item"], start, end)
    require(place not in seen, at, "each span once", f"item {item['item']} at {start} to {end} twice")
    seen.add(place)
    family = item["family"]
    first = evidence[family - 1] if 1 <= family <= len(evidence) else None
    names_a_first = family <= item["n"] and first is not None and first["family"] == family
    require(names_a_first, f"{at}.family", "the number of the first evidence of its family", family)
    for other in evidence[:i]:
        if other["artifact"] == item["artifact"]:
            require(family == other["family"], f"{at}.family", other["family"], family)
            break


def source_counts(evidence):
    """Distinct artifacts and families."""
    families = [item for item in evidence if item["family"] == item["n"]]
    return len({item["artifact"] for item in evidence}), len(families)


def _answer(trace):
    answer = trace["answer"]
    mode = trace["mode"]
    for name in ("prose", "model"):
        may = mode in PROSE_MODES or answer[name] is None
        require(may, f"answer.{name}", f"null in mode {mode}", "a value")
    statements = answer["statements"]
    may = answer["prose"] is not None or not statements
    require(may, "answer.statements", "none without prose", len(statements))
    for i, statement in enumerate(statements):
        _statement(statement, i, f"answer.statements[{i}]")
    for name, count in zip(("sources", "families"), source_counts(trace["evidence"])):
        require(answer[name] == count, f"answer.{name}", count, answer[name])
    answered = answer["status"] == "ANSWERED"
    if answer["reason"] is None:
        require(answered, "answer.reason", "a code, as not answered", "null")
    else:
        require(not answered, "answer.reason", "null, as answered", answer["reason"])


def _statement(statement, i, at):
    require(statement["n"] == i + 1, f"{at}.n", i + 1, statement["n"])
    seen = set()
    for j, citation in enumerate(statement["citations"]):
        here = f"{at}.citations[{j}]"
        quoted = citation["check"] != "id"
        when = "a value, as a quote was checked" if quoted else "null, as no quote was checked"
        given = citation["quote"] is not None
        require(given == quoted, f"{here}.quote", when, "a value" if given else "null")
        elsewhere = citation["check"] == "misattributed"
        when = "a value, as misattributed" if elsewhere else "null, as not misattributed"
        require((citation["other"] is not None) == elsewhere, f"{here}.other", when, citation["other"])
        key = (citation["n"], citation["quote"])
        require(key not in seen, f"{here}.n", "each citation once", f"evidence {citation['n']} twice")
        seen.add(key)
