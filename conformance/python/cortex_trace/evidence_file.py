"""The file evidence/1: the stored items and the salted texts of one trace."""
from . import canonical, hashing, layout
from .structure import model_calls

AT = "evidence file"


class Unreadable(Exception):
    """A file that is not an evidence file, or not the one of this trace."""

    def __init__(self, code, at, expected, found):
        super().__init__(f"{code} at {at}: expected {expected}, found {found}")
        self.code, self.at, self.expected, self.found = code, f"{AT}: {at}", expected, found


class Texts:
    """What the file says: items by kind and id, texts by commitment; None for what was erased."""

    def __init__(self, value):
        self.value = value
        # The first of several wins; `bind` refuses a file with several.
        self.items = {(one["target"], one["item"]): one["stored"] for one in reversed(value["items"])}
        self.texts = {one["commitment"]: one["stored"] for one in reversed(value["texts"])}


def read(data):
    """Reads the file from bytes."""
    try:
        value = canonical.parse_canonical(data)
    except canonical.Refused as refused:
        raise Unreadable(refused.code, f"byte {refused.at}", "canonical JSON", refused.kind) from None
    version = value.get("v") if isinstance(value, dict) else None
    if isinstance(version, str) and version != "evidence/1":
        raise Unreadable("T_VERSION", "v", "evidence/1", version)
    try:
        layout.BUNDLE(value, "")
    except layout.Misfit as misfit:
        raise Unreadable("T_STRUCT", misfit.path, "the layout evidence/1", misfit.message) from None
    return Texts(value)


def commitments(trace):
    """Every commitment to a text that a trace holds."""
    found = {trace["question"], *trace["planned"]}
    for one in trace["rounds"]:
        found |= {one["query"], one["gap"]}
    found |= {item["quote"] for item in trace["evidence"]}
    answer = trace["answer"]
    found.add(answer["prose"])
    for statement in answer["statements"]:
        found.add(statement["text"])
        found |= {citation["quote"] for citation in statement["citations"]}
    for _, call in model_calls(trace):
        found |= {call["options"], call["input"], call["output"]}
    return found - {None}


def bind(texts, trace):
    """The file is of this trace: of its root, in order, with exactly what the trace names, and every text is the one
    committed to."""
    def require(holds, at, expected, found):
        if not holds:
            raise Unreadable("T_EVIDENCE", at, expected, found)

    value = texts.value
    root = trace["roots"]["trace"]
    require(value["trace"] == root, "trace", root, value["trace"])
    named = {(trace["rounds"][item["round"]]["receipt"]["target"], item["item"]) for item in trace["evidence"]}
    before = None
    for i, one in enumerate(value["items"]):
        key = (one["target"], one["item"])
        require(before is None or before < key, f"items[{i}]", "ascending kinds and ids", one["item"])
        require(key in named, f"items[{i}]", "an item of the evidence", one["item"])
        before = key
    expected = "as many as the trace names"
    require(len(value["items"]) == len(named), "items", f"{len(named)}, {expected}", len(value["items"]))
    named = commitments(trace)
    before = None
    for i, one in enumerate(value["texts"]):
        key = one["commitment"]
        require(before is None or before < key, f"texts[{i}]", "ascending commitments", key)
        require(key in named, f"texts[{i}]", "a commitment of the trace", key)
        before = key
        if one["stored"] is not None:
            found = hashing.commitment(one["stored"]["salt"], one["stored"]["text"])
            require(found == key, f"texts[{i}]", key, found)
    require(len(value["texts"]) == len(named), "texts", f"{len(named)}, {expected}", len(value["texts"]))
