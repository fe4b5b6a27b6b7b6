"""The layouts trace/1 and evidence/1: which members there are and of which kind. Nothing may be missing or added."""
import re

_HASH = re.compile(r"b3:[0-9a-f]{64}")
_SALT = re.compile(r"[0-9a-f]{64}")


class Misfit(Exception):
    """A value that does not have its layout; `path` says where."""

    def __init__(self, path, message):
        super().__init__(f"{path or '.'}: {message}")
        self.path = path or "."
        self.message = message


def _number(low, high, what):
    def check(value, path):
        if type(value) is not int or not low <= value <= high:
            raise Misfit(path, f"not {what}")
    return check


def _matching(pattern, what):
    def check(value, path):
        if type(value) is not str or not pattern.fullmatch(value):
            raise Misfit(path, f"not {what}")
    return check


def _of_type(kind, what):
    def check(value, path):
        if type(value) is not kind:
            raise Misfit(path, f"not {what}")
    return check


def _one_of(*names):
    def check(value, path):
        if type(value) is not str or value not in names:
            raise Misfit(path, f"not one of {', '.join(names)}")
    return check


def _null(value, path):
    if value is not None:
        raise Misfit(path, "not null")


def _nullable(inner):
    def check(value, path):
        if value is not None:
            inner(value, path)
    return check


def _list(inner):
    def check(value, path):
        if type(value) is not list:
            raise Misfit(path, "not an array")
        for i, item in enumerate(value):
            inner(item, f"{path}[{i}]")
    return check


def _some(inner):
    """A list that is left out where it is empty."""
    def check(value, path):
        inner(value, path)
        if not value:
            raise Misfit(path, "an empty list is left out")
    return check


def _object(members, optional=()):
    def check(value, path):
        if type(value) is not dict:
            raise Misfit(path, "not an object")
        below = f"{path}." if path else ""
        for name in sorted(value.keys() | members.keys()):
            if name not in members:
                raise Misfit(below + name, "no such member")
            if name in value:
                members[name](value[name], below + name)
            elif name not in optional:
                raise Misfit(below + name, "a member is missing")
    return check


I64 = _number(-(1 << 63), (1 << 63) - 1, "an integer")
U64 = _number(0, (1 << 64) - 1, "an integer from 0")
U32 = _number(0, (1 << 32) - 1, "an integer from 0 below 2^32")
BOOL = _of_type(bool, "a boolean")
TEXT = _of_type(str, "a text")
HASH = _matching(_HASH, "b3: and 64 lower-case hexadecimal digits")
SALT = _matching(_SALT, "64 lower-case hexadecimal digits")
TARGET = _one_of("chunk", "claim")

STATE = _object({"seq": I64, "extra": _list(I64)})
SPAN = _object({"start": U64, "end": U64})
MODEL_CALL = _object({"name": TEXT, "digest": _nullable(TEXT), "options": _nullable(HASH), "input": HASH, "output": HASH})
CANDIDATE = _object({
    "item": I64, "artifact": TEXT, "version": I64, "leaf": HASH, "score": I64, "lexical_rank": _nullable(U32),
    "vector_rank": _nullable(U32), "lexical": I64, "vector": I64,
})
RECEIPT = _object({
    "v": _one_of("receipt/1"), "namespace": TEXT, "target": TARGET, "query": HASH, "analyzer": TEXT, "ranker": TEXT,
    "fusion": TEXT, "arms": _list(_one_of("lexical", "vector")),
    "space": _nullable(_object({"id": I64, "digest": TEXT, "dims": U32, "quantiser": TEXT})),
    "query_vector": _nullable(TEXT),
    "params": _object({"k": U32, "depth": U32, "k1_milli": U32, "b_milli": U32, "rrf_k": U32}),
    "state": STATE, "stats": _object({"items": U64, "term_total": U64}),
    "nominator": _one_of("none", "exact", "lexical", "approximate"), "nominees": _list(I64),
    "barred": _some(_list(I64)), "total_matched": U64, "cut": _one_of("none", "cap"), "masked": U32,
    "candidates": _list(CANDIDATE),
}, optional=("barred",))
ROUND = _object({
    "i": U32, "origin": _one_of("initial", "planned", "refine"), "parent": _nullable(U32), "gap": _nullable(HASH),
    "refined_by": _nullable(MODEL_CALL), "query": HASH, "receipt": RECEIPT, "selected_by": _nullable(MODEL_CALL),
    "selected": _list(I64), "added": U32, "stalled": BOOL,
})
EVIDENCE_ITEM = _object({
    "n": U32, "item": I64, "artifact": TEXT, "version": I64, "content": HASH, "leaf": HASH, "round": U32, "span": SPAN,
    "quote": HASH, "family": U32,
})
CITATION = _object({
    "n": U32, "span": SPAN, "quote": _nullable(HASH), "check": _one_of("id", "supported", "misattributed", "absent"),
    "other": _nullable(U32),
})
STATEMENT = _object({
    "n": U32, "text": HASH, "citations": _list(CITATION), "numbers": _one_of("none", "supported", "unsupported"),
    "supported": BOOL,
})
GAP = _object({
    "query": HASH, "round": _nullable(U32), "why": _one_of("nothing_retrieved", "nothing_selected", "not_asked"),
})
ANSWER = _object({
    "status": _one_of("ANSWERED", "PARTIAL", "INSUFFICIENT_EVIDENCE"),
    "reason": _nullable(_one_of("nothing_retrieved", "nothing_selected", "no_model", "model_abstained",
                                "statements_unsupported", "gaps_left", "one_family")),
    "prose": _nullable(HASH), "model": _nullable(MODEL_CALL), "statements": _list(STATEMENT), "gaps": _list(GAP),
    "sources": U32, "families": U32,
})
POLICY = _object({
    "max_rounds": U32, "max_candidates": U32, "max_evidence": U32, "excerpt_chars": U32, "allow_abstain": BOOL,
    "allow_semantic_rerank": BOOL, "retrieval": _one_of("lexical", "vector", "hybrid"),
    "quote": _one_of("id", "strict"),
})
TRACE = _object({
    "v": _one_of("trace/1"), "engine": TEXT, "analyzer": TEXT, "ranker": TEXT, "chunker": TEXT,
    "rules": _object({"excerpt": TEXT, "quote": TEXT, "ground": TEXT, "family": TEXT}), "origin": TEXT,
    "namespace": TEXT, "principal": _object({"role": TEXT, "visible": _one_of("all", "checked")}), "state": STATE,
    "question": HASH,
    "mode": _one_of("find_relevant", "evidence_answer", "compare_sources", "coverage_review"), "policy": POLICY,
    "plan": _null, "planned": _list(HASH), "rounds": _list(ROUND), "evidence": _list(EVIDENCE_ITEM),
    "certificate": _null, "answer": ANSWER, "log": _null,
    "roots": _object({name: HASH for name in ("question", "policy", "principal", "rounds", "evidence", "answer",
                                              "trace")}),
})
BUNDLE = _object({
    "v": _one_of("evidence/1"), "trace": HASH,
    "items": _list(_object({"target": TARGET, "item": I64, "stored": _nullable(_object({
        "text": TEXT, "source_key": SALT, "artifact": TEXT, "version": I64, "content": HASH, "start": U64, "end": U64,
    }))})),
    "texts": _list(_object({"commitment": HASH, "stored": _nullable(_object({"salt": SALT, "text": TEXT}))})),
})
