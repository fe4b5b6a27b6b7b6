"""Step 5: everything used was retrieved, the budgets were kept, and the status follows from the rest."""
from .receipts import require


def check_binding(trace):
    """What is selected is among the candidates of its round, and what is quoted and cited was selected."""
    seen = set()
    stalled = False
    for i, one in enumerate(trace["rounds"]):
        _round(trace, one, stalled, seen, f"rounds[{i}]")
        stalled = stalled or one["stalled"]
    plan = iter(trace["planned"])
    for i, one in enumerate(trace["rounds"]):
        if one["origin"] == "planned":
            expected = next(plan, None)
            require(expected == one["query"], f"rounds[{i}].query", expected or "no further planned round", one["query"])
    for i, item in enumerate(trace["evidence"]):
        _evidence(trace, item, f"evidence[{i}]")
    for i, statement in enumerate(trace["answer"]["statements"]):
        for j, citation in enumerate(statement["citations"]):
            _citation(trace["evidence"], citation, f"answer.statements[{i}].citations[{j}]")


def _round(trace, one, stalled_before, seen, at):
    receipt = one["receipt"]
    require(receipt["query"] == one["query"], f"{at}.receipt.query", one["query"], receipt["query"])
    initial = one["origin"] == "initial"
    expected = "initial in the first round, planned or refine after it"
    require(initial == (one["i"] == 0), f"{at}.origin", expected, one["origin"])
    bound = not initial or one["query"] == trace["question"]
    require(bound, f"{at}.query", f"the question, {trace['question']}", one["query"])
    refines = one["origin"] == "refine"
    for name in ("parent", "gap"):
        expected = "a value, as it refines" if refines else "null, as it does not refine"
        given = one[name] is not None
        require(given == refines, f"{at}.{name}", expected, "a value" if given else "null")
    if refines:
        require(one["parent"] < one["i"], f"{at}.parent", "an earlier round", one["parent"])
    may = refines or one["refined_by"] is None
    require(may, f"{at}.refined_by", "null, as it does not refine", "a value")
    may = not (refines and stalled_before)
    require(may, f"{at}.origin", "no refinement after a stalled round", "refine")
    rest = iter(receipt["candidates"])
    for item in one["selected"]:
        found = any(candidate["item"] == item for candidate in rest)
        require(found, f"{at}.selected", "candidates of this round, in their order", f"item {item}")
    chosen = {(receipt["target"], item) for item in one["selected"]}
    added = len(chosen - seen)
    seen |= chosen
    require(one["added"] == added, f"{at}.added", added, one["added"])
    require(one["stalled"] == (added == 0), f"{at}.stalled", added == 0, one["stalled"])


def _evidence(trace, item, at):
    rounds = trace["rounds"]
    require(item["round"] < len(rounds), f"{at}.round", f"one of {len(rounds)} rounds", item["round"])
    one = rounds[item["round"]]
    expected = f"an item that round {item['round']} selected"
    require(item["item"] in one["selected"], f"{at}.item", expected, item["item"])
    candidates = (candidate for candidate in one["receipt"]["candidates"] if candidate["item"] == item["item"])
    candidate = next(candidates, None)
    require(candidate is not None, f"{at}.item", "a candidate of its round", item["item"])
    for name in ("artifact", "version", "leaf"):
        require(item[name] == candidate[name], f"{at}.{name}", candidate[name], item[name])


def _citation(evidence, citation, at):
    count = len(evidence)
    require(1 <= citation["n"] <= count, f"{at}.n", f"evidence 1 to {count}", citation["n"])
    other = citation["other"]
    if other is not None:
        another = other != citation["n"] and 1 <= other <= count
        require(another, f"{at}.other", f"another one of evidence 1 to {count}", other)
    span = citation["span"]
    if citation["check"] == "supported":
        require(span["start"] < span["end"], f"{at}.span", "a span of at least one byte", span)
    else:
        of_item = evidence[citation["n"] - 1]["span"]
        require(span == of_item, f"{at}.span", of_item, span)


def check_budget(trace):
    """Nothing exceeds the policy."""
    policy = trace["policy"]

    def within(count, most, name, at):
        require(count <= most, at, f"at most {name} = {most}", count)

    within(len(trace["rounds"]), policy["max_rounds"], "max_rounds", "rounds")
    for i, one in enumerate(trace["rounds"]):
        receipt = one["receipt"]
        # What was withheld from the caller cost it nothing.
        k = max(0, receipt["params"]["k"] - receipt["masked"])
        within(k, policy["max_candidates"], "max_candidates", f"rounds[{i}].receipt.params.k")
        _arms(policy, receipt, f"rounds[{i}].receipt")
    within(len(trace["evidence"]), policy["max_evidence"], "max_evidence", "evidence")
    for i, item in enumerate(trace["evidence"]):
        length = item["span"]["end"] - item["span"]["start"]
        within(length, 4 * policy["excerpt_chars"], "4 bytes a character", f"evidence[{i}].span")


def _arms(policy, receipt, at):
    reranked = receipt["nominator"] == "lexical"
    may = not reranked or (policy["allow_semantic_rerank"] and policy["retrieval"] == "lexical")
    expected = "no semantic rerank, as the policy does not allow it"
    require(may, f"{at}.nominator", expected, "lexical")
    if policy["retrieval"] == "vector":
        arms = ["vector"]
    elif policy["retrieval"] == "hybrid" or reranked:
        arms = ["lexical", "vector"]
    else:
        arms = ["lexical"]
    require(receipt["arms"] == arms, f"{at}.arms", arms, receipt["arms"])


def expected_gaps(trace):
    """The planned sub-questions of which no round selected anything: neither their own nor one that refines them."""
    gaps = []
    for query in trace["planned"]:
        own = [one for one in trace["rounds"] if one["origin"] == "planned" and one["query"] == query][:1]
        refining = [one for one in trace["rounds"] if one["origin"] == "refine" and one["gap"] == query]
        if any(one["selected"] for one in refining + own):
            continue
        if not own:
            why = "not_asked"
        elif not own[0]["receipt"]["candidates"]:
            why = "nothing_retrieved"
        else:
            why = "nothing_selected"
        gaps.append({"query": query, "round": own[0]["i"] if own else None, "why": why})
    return gaps


def holds(statement, rule):
    """Whether a statement is supported, given its checks."""
    checks = [citation["check"] for citation in statement["citations"]]
    counting = ("supported",) if rule == "strict" else ("supported", "id")
    failing = ("misattributed", "absent")
    return (any(check in counting for check in checks) and not any(check in failing for check in checks)
            and statement["numbers"] != "unsupported")


def expected_status(trace):
    """(status, reason) that mode, policy, evidence, statements and gaps give."""
    answer, policy, mode = trace["answer"], trace["policy"], trace["mode"]
    gaps = len(answer["gaps"])
    if mode == "coverage_review":
        if not gaps:
            return "ANSWERED", None
        return "PARTIAL" if gaps < len(trace["planned"]) else "INSUFFICIENT_EVIDENCE", "gaps_left"
    if not trace["evidence"]:
        found = any(one["receipt"]["candidates"] for one in trace["rounds"])
        return "INSUFFICIENT_EVIDENCE", "nothing_selected" if found else "nothing_retrieved"
    if mode == "find_relevant":
        return "ANSWERED", None
    supported = [statement["supported"] for statement in answer["statements"]]
    if mode == "evidence_answer":
        abstained = "INSUFFICIENT_EVIDENCE" if policy["allow_abstain"] else "PARTIAL"
        if answer["prose"] is None:
            return abstained, "no_model" if answer["model"] is None else "model_abstained"
        if not any(supported):
            return abstained, "statements_unsupported"
    elif answer["families"] < 2:
        return "PARTIAL", "one_family"
    if answer["prose"] is not None and not (supported and all(supported)):
        return "PARTIAL", "statements_unsupported"
    return ("PARTIAL", "gaps_left") if gaps else ("ANSWERED", None)


def check_status(trace):
    """Support, gaps, status and reason are those that follow from the rest."""
    require(trace["rounds"], "rounds", "at least one round", "none")
    answer = trace["answer"]
    for i, statement in enumerate(answer["statements"]):
        expected = holds(statement, trace["policy"]["quote"])
        require(statement["supported"] == expected, f"answer.statements[{i}].supported", expected, statement["supported"])
    gaps = expected_gaps(trace)
    require(answer["gaps"] == gaps, "answer.gaps", gaps, answer["gaps"])
    status, reason = expected_status(trace)
    require(answer["status"] == status, "answer.status", status, answer["status"])
    require(answer["reason"] == reason, "answer.reason", reason or "null", answer["reason"] or "null")
