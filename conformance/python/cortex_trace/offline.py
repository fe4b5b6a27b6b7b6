"""The ladder of checks, cheap ones first; the first failure wins and every step says what it expected and found."""
from . import binding, canonical, evidence_file, ground, hashing, layout, quote, structure
from .receipts import Violation

# The layouts and algorithms that are known. Released ones stay for ever.
ENGINE = "cortex/"
ANALYZERS = ("cortex-text/1",)
RANKERS = ("cortex-bm25/1", "cortex-bm25/2")
CHUNKERS = ("cortex-chunk/1",)
FUSIONS = ("cortex-rrf/1", "cortex-rrf/2", "cortex-rerank/1")
QUANTISERS = ("cortex-quant/1",)
RULES = {"excerpt": ("cortex-excerpt/1",), "quote": ("cortex-quote/1",), "ground": ("cortex-ground/1",),
         "family": ("cortex-family/1",)}
# Most bytes of items that quotes are looked for in.
MAX_SEARCHED = 4 << 20
MAX_STATEMENT_CHARS = 2_000
MAX_SHOWN = 300
LADDER = ((1, "parse"), (2, "version"), (3, "structure"), (4, "roots"), (4, "question"), (5, "binding"),
          (5, "budget"), (5, "status"), (6, "signature"), (7, "evidence"), (7, "families"), (7, "answer"),
          (7, "texts"), (8, "log"), (9, "replay"), (9, "exhaustive"), (10, "visibility"))


class Failure(Exception):
    """A check that does not hold."""

    def __init__(self, code, at, expected, found):
        super().__init__(f"{code} at {at}: expected {expected}, found {found}")
        self.code, self.at, self.expected, self.found = code, at, str(expected), str(found)


class _Stopped(Exception):
    """A step failed and is recorded."""


def verify(trace, evidence=None, question=None, salt=None):
    """The report on a trace, given as bytes, with its evidence file if there is one."""
    ladder = _Ladder()
    why = "an earlier step failed"
    try:
        ladder.climb(trace, evidence, question, salt)
        why = "no store was given to check against" if evidence is None else "a file of texts cannot replay"
    except _Stopped:
        pass
    return ladder.close(why)


def _short(text):
    text = str(text)
    return text if len(text) <= MAX_SHOWN else text[:MAX_SHOWN] + "…"


class _Ladder:
    def __init__(self):
        self.steps = []
        self.level = None

    def add(self, name, outcome, at="", expected="", found="", code=None):
        step = next(step for step, known in LADDER if known == name)
        self.steps.append({"step": step, "name": name, "outcome": outcome, "code": code, "where": _short(at),
                           "expected": _short(expected), "found": _short(found)})

    def run(self, name, check, *arguments):
        """Runs a check, which gives (outcome, where, expected, found) or fails; returns whether it passed."""
        try:
            outcome, at, expected, found = check(*arguments)
        except Failure as failure:
            self.add(name, "failed", failure.at, failure.expected, failure.found, failure.code)
            raise _Stopped from None
        self.add(name, outcome, at, expected, found)
        return outcome == "passed"

    def climb(self, data, evidence, question, salt):
        trace = self.value("parse", _parse, data)
        self.run("version", _version, trace)
        self.run("structure", _structure, trace)
        self.run("roots", _roots, trace)
        texts, fault = None, None
        if evidence is not None:
            try:
                texts = evidence_file.read(evidence)
            except evidence_file.Unreadable as error:
                fault = Failure(error.code, error.at, error.expected, error.found)
        if question is None:
            self.add("question", "skipped", found="no question was given")
        else:
            self.run("question", _question, trace, question, salt, texts)
        for name, code, check in (("binding", "T_UNBOUND", binding.check_binding),
                                  ("budget", "T_BUDGET", binding.check_budget),
                                  ("status", "T_STATUS", binding.check_status)):
            self.run(name, _rule, code, check, trace)
        self.level = "L0"
        self.add("signature", "not_available", found="not available yet")
        if evidence is None:
            return
        if self.evidence(trace, texts, fault):
            self.level = "L2"
        self.add("log", "not_available", found="not available yet")

    def value(self, name, check, data):
        try:
            value = check(data)
        except Failure as failure:
            self.add(name, "failed", failure.at, failure.expected, failure.found, failure.code)
            raise _Stopped from None
        self.add(name, "passed", "", "canonical JSON", f"{len(data)} bytes")
        return value

    def evidence(self, trace, texts, fault):
        """Step 7; whether all that L2 asks for passed."""
        self.run_if_fails("evidence", fault)
        try:
            evidence_file.bind(texts, trace)
        except evidence_file.Unreadable as error:
            self.run_if_fails("evidence", Failure(error.code, error.at, error.expected, error.found))
        passed = True
        items = []
        for i, item in enumerate(trace["evidence"]):
            passed &= self.run("evidence", _evidence_item, trace, texts, item, f"evidence[{i}]", items)
        if not items:
            self.add("evidence", "passed", "", "no evidence", "no evidence")
        self.run("families", _families, trace, items)
        passed &= self.run("answer", _prose, trace, texts)
        statements = trace["answer"]["statements"]
        if statements:
            judge = self.judge(trace, items)
            for i, statement in enumerate(statements):
                at = f"answer.statements[{i}]"
                passed &= self.run("answer", _statement, trace, texts, judge, statement, at)
        named = [(f"rounds[{i}].gap", [("", one["gap"])]) for i, one in enumerate(trace["rounds"]) if one["gap"]]
        for at, call in structure.model_calls(trace):
            of_call = [(name, call[name]) for name in ("options", "input", "output") if call[name] is not None]
            named.append((at, of_call))
        for at, of_one in named:
            self.run("texts", _texts, texts, of_one, at)
        if not named:
            none = "no gap refined, no model called"
            self.add("texts", "passed", "", none, none)
        return passed

    def run_if_fails(self, name, failure):
        if failure:
            self.add(name, "failed", failure.at, failure.expected, failure.found, failure.code)
            raise _Stopped

    def judge(self, trace, items):
        """The items with their spans, normalised; None if one was erased."""
        if any(item is None for item in items):
            return None
        searched = sum(len(item["text"].encode("utf-8")) for item in items)
        if searched > MAX_SEARCHED:
            expected = f"at most {MAX_SEARCHED} bytes of items"
            self.run_if_fails("answer", Failure("T_LIMIT", "evidence", expected, searched))
        return [(item, quote.Normal(item["text"])) for item in items]

    def close(self, why):
        for _, name in LADDER:
            if not any(step["name"] == name for step in self.steps):
                self.add(name, "skipped", found=why)
        order = [name for _, name in LADDER]
        self.steps.sort(key=lambda step: order.index(step["name"]))
        outcomes = {step["outcome"] for step in self.steps}
        outcome = next((known for known in ("failed", "redacted") if known in outcomes), "verified")
        failed = next((step for step in self.steps if step["outcome"] == "failed"), None)
        told = {name: failed and failed[name] for name in ("code", "where", "expected", "found")}
        return {"ok": failed is None, "level": self.level, "outcome": outcome,
                "failed_step": failed and failed["name"], **told, "missed": None, "steps": self.steps}


def _parse(data):
    try:
        return canonical.parse_canonical(data)
    except canonical.Refused as refused:
        raise Failure(refused.code, f"byte {refused.at}", "canonical JSON", refused.kind) from None


def _version(trace):
    """Names that are there must be known; what is missing or no text is for the next step."""
    def member(value, *path):
        for name in path:
            value = value.get(name) if isinstance(value, dict) else None
        return value

    def known(value, names, at):
        if isinstance(value, str) and value not in names:
            raise Failure("T_VERSION", at, " or ".join(names), value)

    known(member(trace, "v"), ("trace/1",), "v")
    engine = member(trace, "engine")
    if isinstance(engine, str) and not engine.startswith(ENGINE):
        raise Failure("T_VERSION", "engine", f"{ENGINE} and a version", engine)
    for name, names in (("analyzer", ANALYZERS), ("ranker", RANKERS), ("chunker", CHUNKERS)):
        known(member(trace, name), names, name)
    for name, names in RULES.items():
        known(member(trace, "rules", name), names, f"rules.{name}")
    rounds = member(trace, "rounds")
    for i, one in enumerate(rounds if isinstance(rounds, list) else []):
        known(member(one, "receipt", "fusion"), FUSIONS, f"rounds[{i}].receipt.fusion")
        quantiser = member(one, "receipt", "space", "quantiser")
        known(quantiser, QUANTISERS, f"rounds[{i}].receipt.space.quantiser")
    return "passed", "", "trace/1", "trace/1"


def _structure(trace):
    try:
        layout.TRACE(trace, "")
    except layout.Misfit as misfit:
        raise Failure("T_STRUCT", misfit.path, "the layout trace/1", misfit.message) from None
    _rule("T_STRUCT", structure.check, trace)
    found = f"{len(trace['rounds'])} rounds, {len(trace['evidence'])} evidence"
    return "passed", "", "a well-formed trace", found


def _rule(code, check, trace):
    try:
        check(trace)
    except Violation as violation:
        raise Failure(code, violation.at, violation.expected, violation.found) from None
    return "passed", "", "every rule of the step", "as expected"


def _roots(trace):
    computed = hashing.roots(trace)
    for name in (*hashing.PARTS, "trace"):
        recorded = trace["roots"][name]
        if recorded != computed[name]:
            raise Failure("T_ROOT", f"roots.{name}", recorded, computed[name])
    return "passed", "", trace["roots"]["trace"], computed["trace"]


def _committed(texts, commitment, at):
    """(salt, text) behind a commitment; None if it was erased."""
    if commitment not in texts.texts:
        expected = "the text of the commitment, or a record of its erasure"
        raise Failure("T_EVIDENCE", at, expected, "neither")
    stored = texts.texts[commitment]
    if stored is None:
        return None
    found = hashing.commitment(stored["salt"], stored["text"])
    if found != commitment:
        raise Failure("T_EVIDENCE", at, commitment, found)
    return stored["salt"], stored["text"]


def _question(trace, question, salt, texts):
    expected = trace["question"]
    if salt is None:
        if texts is None:
            return "skipped", "question", expected, "no salt to commit with"
        stored = _committed(texts, expected, "question")
        if stored is None:
            return "redacted", "question", expected, "erased"
        salt = stored[0]
    found = hashing.commitment(salt, question)
    if found != expected:
        raise Failure("T_QUESTION", "question", expected, found)
    return "passed", "question", expected, found


def text_at(stored, start, end):
    """The part of an item's text that a span of the source covers. An item whose text is its own span can be quoted in
    part, any other only whole. None where there is no such part."""
    data = stored["text"].encode("utf-8")
    length = stored["end"] - stored["start"]
    if length < 0:
        return None
    if length != len(data):
        return stored["text"] if (start, end) == (stored["start"], stored["end"]) else None
    low, high = start - stored["start"], end - stored["start"]
    if not 0 <= low <= high <= len(data):
        return None
    if any(0 < at < len(data) and data[at] & 0xC0 == 0x80 for at in (low, high)):
        return None
    return data[low:high].decode("utf-8")


def _evidence_item(trace, texts, item, at, items):
    committed = _committed(texts, item["quote"], f"{at}.quote")
    target = trace["rounds"][item["round"]]["receipt"]["target"]
    key = (target, item["item"])
    if key not in texts.items:
        raise Failure("T_EVIDENCE", at, f"item {item['item']}, or a record of its erasure", "neither")
    stored = texts.items[key]
    items.append(stored)
    if stored is None:
        return "redacted", at, f"leaf {item['leaf']}", "erased"
    leaf = hashing.leaf(target, item["item"], stored)
    for name, found in (("leaf", leaf), ("content", stored["content"])):
        if item[name] != found:
            raise Failure("T_EVIDENCE", f"{at}.{name}", item[name], found)
    start, end = item["span"]["start"], item["span"]["end"]
    text = text_at(stored, start, end)
    if text is None:
        expected = f"a span of characters within {stored['start']} to {stored['end']}"
        raise Failure("T_EVIDENCE", f"{at}.span", expected, f"{start} to {end}")
    if committed is None:
        return "redacted", at, f"quote {item['quote']}", "erased"
    salt, quoted = committed
    if quoted != text:
        raise Failure("T_EVIDENCE", f"{at}.quote", item["quote"], hashing.commitment(salt, text))
    most = trace["policy"]["excerpt_chars"]
    if len(quoted) > most:
        raise Failure("T_EVIDENCE", f"{at}.quote", f"at most {most} characters", len(quoted))
    return "passed", at, item["leaf"], leaf


def _families(trace, items):
    evidence = trace["evidence"]
    members = [(item["artifact"], stored and stored["text"]) for item, stored in zip(evidence, items)]
    # Which contents are equal is not known here: what belongs together may not count as two.
    for i, first in enumerate(quote.families(members)):
        expected = evidence[first - 1]["family"]
        if evidence[i]["family"] != expected:
            raise Failure("T_EVIDENCE", f"evidence[{i}].family", expected, evidence[i]["family"])
    answer = trace["answer"]
    found = f"{answer['families']} families of {answer['sources']} sources"
    return "passed", "evidence", "no two families with equal texts", found


def _prose(trace, texts):
    prose = trace["answer"]["prose"]
    if prose is None:
        return "passed", "", "no prose", "no prose"
    if _committed(texts, prose, "answer.prose") is None:
        return "redacted", "answer.prose", prose, "erased"
    return "passed", "answer.prose", prose, prose


def _statement(trace, texts, judge, statement, at):
    erased = ("redacted", at, f"the checks of statement {statement['n']}")
    text = _committed(texts, statement["text"], f"{at}.text")
    quotes = []
    for i, citation in enumerate(statement["citations"]):
        committed = None
        if citation["quote"] is not None:
            committed = _committed(texts, citation["quote"], f"{at}.citations[{i}].quote")
            if committed is None:
                return (*erased, "a quote was erased")
        quotes.append(committed and committed[1])
    if text is None:
        return (*erased, "the text was erased")
    if judge is None:
        return (*erased, "an item was erased")
    named = [("text", text[1])] + [(f"citations[{i}].quote", quoted) for i, quoted in enumerate(quotes)]
    for name, long in named:
        if long is not None and len(long) > MAX_STATEMENT_CHARS:
            raise Failure("T_ANSWER", f"{at}.{name}", f"at most {MAX_STATEMENT_CHARS} characters", "more")
    cited = []
    judged = []
    rule = trace["policy"]["quote"]
    for citation, quoted in zip(statement["citations"], quotes):
        span, check, other = _judge(trace, judge, citation["n"], quoted)
        judged.append({"check": check, "other": other, "span": span})
        if check == "supported" or (check == "id" and rule == "id"):
            part = text_at(judge[citation["n"] - 1][0], span["start"], span["end"])
            cited.extend([] if part is None else [part])
    for i, (citation, found) in enumerate(zip(statement["citations"], judged)):
        for name in ("check", "other", "span"):
            if citation[name] != found[name]:
                raise Failure("T_ANSWER", f"{at}.citations[{i}].{name}", citation[name], found[name])
    count, known = ground.figures(text[1], cited)
    numbers = "none" if count == 0 else "supported" if known else "unsupported"
    if statement["numbers"] != numbers:
        raise Failure("T_ANSWER", f"{at}.numbers", statement["numbers"], numbers)
    told = f"{len(quotes)} citations, numbers {numbers}"
    return "passed", at, told, told


def _judge(trace, judge, n, quoted):
    """(span, check, other) of a citation of evidence n."""
    of_item = trace["evidence"][n - 1]["span"]
    if quoted is None:
        return of_item, "id", None
    stored, normal = judge[n - 1]
    found = normal.locate(quoted)
    if found is None:
        others = (i for i, (_, other) in enumerate(judge, 1) if other.locate(quoted) is not None)
        other = next(others, None)
        return of_item, "absent" if other is None else "misattributed", other
    if stored["end"] - stored["start"] == len(stored["text"].encode("utf-8")):
        return {"start": stored["start"] + found[0], "end": stored["start"] + found[1]}, "supported", None
    return {"start": stored["start"], "end": stored["end"]}, "supported", None


def _texts(texts, named, at):
    erased = sum(_committed(texts, text, f"{at}.{name}" if name else at) is None for name, text in named)
    outcome = "redacted" if erased else "passed"
    return outcome, at, f"{len(named)} texts", f"{erased} erased" if erased else "as committed to"
