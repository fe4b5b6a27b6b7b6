"""Recomputes the roots of a Cortex trace; exit code 0 if all do. Needs `pip install blake3`.
Usage: verify_root.py FILE|-"""
import json
import sys

from blake3 import blake3

HEAD = ("v", "engine", "analyzer", "ranker", "chunker", "origin", "namespace", "state", "mode",
        "plan", "certificate", "log", "rules", "planned")


def canonical(value):
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def root(structure, value):
    context = f"cortex {structure} v1"
    return "b3:" + blake3(canonical(value).encode(), derive_key_context=context).hexdigest()


def roots(trace):
    rounds = [dict(r, receipt=root("receipt", r["receipt"])) for r in trace["rounds"]]
    parts = {name: root(name, trace[name]) for name in ("question", "policy", "principal", "answer")}
    parts["rounds"] = root("rounds", [root("round", r) for r in rounds])
    parts["evidence"] = root("evidence", [root("evidence item", e) for e in trace["evidence"]])
    head = {name: trace[name] for name in HEAD}
    return dict(parts, trace=root("trace", dict(head, roots=parts)))


if __name__ == "__main__":
    source = sys.stdin.buffer if sys.argv[1] == "-" else open(sys.argv[1], "rb")
    text = source.read().decode().rstrip("\n")
    trace = json.loads(text)
    found, recorded = roots(trace), trace["roots"]
    for name in sorted(found.keys() | recorded.keys()):
        if found.get(name) != recorded.get(name):
            sys.exit(f"{name}: recorded {recorded.get(name)}, computed {found.get(name)}")
    if canonical(trace) != text:
        sys.exit("not in canonical form")
    print("every root recomputes")
