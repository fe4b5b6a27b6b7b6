"""The rules that a retrieval receipt satisfies by itself."""
import re

from .canonical import MAX_INTEGER

MAX_LIST = 10_000
MAX_CONSIDERED = 1_000_000
MAX_NAME = 128
MAX_NAMESPACE = 512
MAX_ARTIFACT = 32 << 10
MAX_DIMENSIONS = 16_000
RERANK = "cortex-rerank/1"

_NAME = re.compile(r"[a-z0-9.-]+/[a-z0-9.-]+")


class Violation(Exception):
    """A rule that does not hold."""

    def __init__(self, at, expected, found):
        super().__init__(f"{at}: expected {expected}, found {found}")
        self.at = at
        self.expected = str(expected)
        self.found = str(found)


def require(holds, at, expected, found):
    """Fails unless a rule holds."""
    if not holds:
        raise Violation(at, expected, found)


def size(text):
    """Length of a text in bytes."""
    return len(text.encode("utf-8"))


def check_size(text, most, at):
    require(1 <= size(text) <= most, at, f"1 to {most} bytes", size(text))


def check_name(name, at):
    """Lower-case letters, digits, dots and hyphens on both sides of one slash."""
    require(size(name) <= MAX_NAME and _NAME.fullmatch(name), at, "a name and a version, as in cortex-text/1", name)


def check_length(items, at):
    require(len(items) <= MAX_LIST, at, f"at most {MAX_LIST} entries", len(items))


def check_distinct(items, at):
    require(len(set(items)) == len(items), at, "each item once", "an item twice")


def check_state(state, at):
    require(0 <= state["seq"] <= MAX_INTEGER, f"{at}.seq", "0 or more", state["seq"])
    extra = state["extra"]
    check_length(extra, f"{at}.extra")
    for a, b in zip(extra, extra[1:]):
        require(a < b, f"{at}.extra", "ascending ids", f"{a} before {b}")


def check(receipt, at):
    """All rules of a receipt that stands at a path."""
    check_size(receipt["namespace"], MAX_NAMESPACE, f"{at}.namespace")
    for name in ("analyzer", "ranker", "fusion"):
        check_name(receipt[name], f"{at}.{name}")
    _arms(receipt, at)
    _params(receipt["params"], f"{at}.params")
    check_state(receipt["state"], f"{at}.state")
    _counts(receipt, at)
    _candidates(receipt, at)


def _arms(receipt, at):
    arms = receipt["arms"]
    known = arms in (["lexical"], ["vector"], ["lexical", "vector"])
    require(known, f"{at}.arms", "lexical, vector, or lexical and vector", arms)
    vector = "vector" in arms
    space, digits = receipt["space"], receipt["query_vector"]
    when = "a value, as the vector arm ran" if vector else "null, as no vector arm ran"
    for name in ("space", "query_vector"):
        given = receipt[name] is not None
        require(given == vector, f"{at}.{name}", when, "a value" if given else "null")
    if space is not None:
        dims = space["dims"]
        require(1 <= dims <= MAX_DIMENSIONS, f"{at}.space.dims", f"1 to {MAX_DIMENSIONS}", dims)
        check_size(space["digest"], MAX_NAME, f"{at}.space.digest")
        check_name(space["quantiser"], f"{at}.space.quantiser")
        fits = re.fullmatch(r"[0-9a-f]*", digits) and len(digits) == 4 * dims
        require(fits, f"{at}.query_vector", f"{4 * dims} lower-case hexadecimal digits", f"{size(digits)} bytes")
    nominator = receipt["nominator"]
    expected = "one exactly where the vector arm ran"
    require((nominator != "none") == vector, f"{at}.nominator", expected, nominator)
    reranked = nominator == "lexical"
    expected = "lexical and vector, as one reordered the other"
    require(not reranked or arms == ["lexical", "vector"], f"{at}.arms", expected, arms)
    expected = RERANK if reranked else "a fusion of independent arms"
    require(reranked == (receipt["fusion"] == RERANK), f"{at}.fusion", expected, receipt["fusion"])
    nominees = receipt["nominees"]
    may_list = nominator == "approximate" or not nominees
    require(may_list, f"{at}.nominees", "none without an approximate nominator", len(nominees))
    for name in ("barred", "nominees"):
        check_length(receipt.get(name, []), f"{at}.{name}")
        check_distinct(receipt.get(name, []), f"{at}.{name}")


def _params(params, at):
    for name, low, high in (("k", 1, MAX_CONSIDERED), ("depth", 1, MAX_CONSIDERED), ("k1_milli", 0, 10_000),
                            ("b_milli", 0, 1_000), ("rrf_k", 1, 1_000_000)):
        require(low <= params[name] <= high, f"{at}.{name}", f"{low} to {high}", params[name])


def _counts(receipt, at):
    check_length(receipt["candidates"], f"{at}.candidates")
    considered = len(receipt["candidates"]) + receipt["masked"]
    k = receipt["params"]["k"]
    require(considered <= k, f"{at}.candidates", f"at most k = {k}", considered)
    matched = receipt["total_matched"]
    require(matched >= considered, f"{at}.total_matched", f"at least the {considered} considered", matched)
    cut = "cap" if matched > considered else "none"
    require(receipt["cut"] == cut, f"{at}.cut", cut, receipt["cut"])


def _candidates(receipt, at):
    candidates = receipt["candidates"]
    check_distinct([candidate["item"] for candidate in candidates], f"{at}.candidates")
    nominees = set(receipt["nominees"])
    for i, candidate in enumerate(candidates):
        _candidate(receipt, candidate, nominees, f"{at}.candidates[{i}]")
    for i, (a, b) in enumerate(zip(candidates, candidates[1:]), 1):
        ordered = (-a["score"], a["item"]) < (-b["score"], b["item"])
        expected = f"below {a['score']} (or equal, with an item above {a['item']})"
        require(ordered, f"{at}.candidates[{i}].score", expected, f"{b['score']} (item {b['item']})")


def _candidate(receipt, candidate, nominees, at):
    check_size(candidate["artifact"], MAX_ARTIFACT, f"{at}.artifact")
    depth = receipt["params"]["depth"]
    for arm in ("lexical", "vector"):
        rank = candidate[f"{arm}_rank"]
        if rank is None:
            score = candidate[arm]
            require(score == 0, f"{at}.{arm}", "0, as the arm gave no rank", score)
        else:
            require(arm in receipt["arms"], f"{at}.{arm}_rank", "null, as this arm did not run", rank)
            require(1 <= rank <= depth, f"{at}.{arm}_rank", f"1 to depth = {depth}", rank)
    ranks = candidate["lexical_rank"], candidate["vector_rank"]
    require(ranks != (None, None), f"{at}.lexical_rank", "a rank in at least one arm", "none")
    proposed = receipt["nominator"] != "lexical" or candidate["lexical_rank"] is not None
    expected = "a rank, as the lexical arm proposed every candidate"
    require(proposed, f"{at}.lexical_rank", expected, "null")
    approximate = receipt["nominator"] == "approximate" and candidate["vector_rank"] is not None
    nominated = not approximate or candidate["item"] in nominees
    require(nominated, f"{at}.item", "one of the nominees", candidate["item"])
