"""BLAKE3 in derive-key mode, one context string per structure."""
from blake3 import blake3

from . import canonical


def _digest(structure, data):
    return "b3:" + blake3(data, derive_key_context=f"cortex {structure} v1").hexdigest()


def of(structure, value):
    """The hash of a structure: of its canonical text, in the structure's own context."""
    return _digest(structure, canonical.encode(value).encode("utf-8"))


def keyed(structure, key, text):
    """The hash of a text behind a 32-byte key or salt, which is given in hexadecimal."""
    return _digest(structure, bytes.fromhex(key) + text.encode("utf-8"))


def commitment(salt, text):
    """What a trace holds instead of a text."""
    return keyed("commitment", salt, text)


def leaf(target, item, stored):
    """The hash of a stored item with its identity."""
    return of("leaf", {
        "v": "leaf/1", "kind": target, "item": item, "artifact": stored["artifact"], "version": stored["version"],
        "content": stored["content"], "start": stored["start"], "end": stored["end"],
        "text": keyed("text", stored["source_key"], stored["text"]),
    })


# What the trace root covers besides the roots of the parts.
_HEAD = ("v", "engine", "analyzer", "ranker", "chunker", "rules", "origin", "namespace", "state", "mode", "plan",
         "planned", "certificate", "log")
PARTS = ("question", "policy", "principal", "rounds", "evidence", "answer")


def roots(trace):
    """The roots of a trace, recomputed from its parts."""
    parts = {name: of(name, trace[name]) for name in ("question", "policy", "principal", "answer")}
    rounds = (dict(one, receipt=of("receipt", one["receipt"])) for one in trace["rounds"])
    parts["rounds"] = of("rounds", [of("round", one) for one in rounds])
    parts["evidence"] = of("evidence", [of("evidence item", item) for item in trace["evidence"]])
    head = {name: trace[name] for name in _HEAD}
    return dict(parts, trace=of("trace", dict(head, roots=parts)))
