#!/usr/bin/env python3
"""Verifies a Cortex trace without a database: level L0 alone, level L2 with its evidence file.

Verified means recorded, bound and replayable. It does not mean that the answer is true.
Needs Python 3.8 or later and the package blake3 (pip install blake3).
"""
import argparse
import json
import re
import sys

try:
    from cortex_trace import canonical, offline
except ModuleNotFoundError as error:
    if error.name != "blake3":
        raise
    sys.exit("verify.py: the package blake3 is missing; install it with: python3 -m pip install blake3")

_SHOWN = {"passed": "passed", "failed": "FAILED", "redacted": "redacted", "skipped": "skipped",
          "not_available": "not available"}


class _Unreadable(Exception):
    """A file that cannot be read."""


def _read(path):
    """At most one byte more than is verified, so that a larger file is refused as such. A line feed at the end comes
    from an editor and is not part of the text."""
    try:
        if path == "-":
            data = sys.stdin.buffer.read(canonical.MAX_BYTES + 1)
        else:
            with open(path, "rb") as file:
                data = file.read(canonical.MAX_BYTES + 1)
    except OSError as error:
        raise _Unreadable(f"{path}: {error.strerror}") from None
    return data[:-1] if data.endswith(b"\n") else data


def _salt(text):
    if not re.fullmatch(r"[0-9a-f]{64}", text):
        raise argparse.ArgumentTypeError("not 64 lower-case hexadecimal digits")
    return text


def _arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
                                     epilog="Exit code: 0 verified, 1 not verified, 2 not run.")
    parser.add_argument("trace", nargs="?", help="file of the trace; - reads standard input")
    parser.add_argument("--evidence", metavar="FILE", help="file of the items and texts, for level L2")
    parser.add_argument("--question", metavar="TEXT", help="the question that you believe was asked")
    parser.add_argument("--salt", metavar="HEX", type=_salt, help="the salt of the question's commitment; the evidence "
                        "file has it too")
    parser.add_argument("--json", action="store_true", help="the whole report as JSON")
    parser.add_argument("--batch", action="store_true", help="instead of a file: read lines of JSON with the members "
                        "trace, evidence, question, salt from standard input (texts, or the hexadecimal digits of bytes in "
                        "trace_hex, evidence_hex) and write a report a line")
    arguments = parser.parse_args()
    if arguments.batch == bool(arguments.trace):
        parser.error("a file of a trace is missing" if not arguments.batch else "--batch takes no file")
    if arguments.salt and arguments.question is None:
        parser.error("--salt is the salt of a --question")
    if arguments.question is not None and not (arguments.salt or arguments.evidence):
        parser.error("--question needs --salt or --evidence: a commitment is checked with its salt")
    if arguments.trace == arguments.evidence == "-":
        parser.error("standard input is one file")
    return arguments


def _batch():
    for line in sys.stdin:
        case = json.loads(line)

        def data(name, case=case):
            if case.get(f"{name}_hex") is not None:
                return bytes.fromhex(case[f"{name}_hex"])
            return None if case.get(name) is None else case[name].encode("utf-8")

        report = offline.verify(data("trace"), data("evidence"), case.get("question"), case.get("salt"))
        print(json.dumps(report, ensure_ascii=True))


def _print(report):
    for step in report["steps"]:
        code = f" {step['code']}" if step["code"] else ""
        print(f"{step['step']:>2} {step['name']:<11} {_SHOWN[step['outcome']]}{code}")
        if step["outcome"] == "failed":
            for name in ("where", "expected", "found"):
                print(f"   {name:<9} {step[name]}")
    if not report["ok"]:
        print("NOT verified")
    elif report["outcome"] == "redacted":
        print(f"verified as far as the texts were not erased, level {report['level']}")
    else:
        print(f"verified, level {report['level']}")


def main():
    """Runs the program and returns its exit code."""
    arguments = _arguments()
    if arguments.batch:
        _batch()
        return 0
    try:
        trace = _read(arguments.trace)
        evidence = _read(arguments.evidence) if arguments.evidence else None
    except _Unreadable as error:
        print(f"verify.py: {error}", file=sys.stderr)
        return 2
    report = offline.verify(trace, evidence, arguments.question, arguments.salt)
    if arguments.json:
        print(json.dumps(report, ensure_ascii=False))
    else:
        _print(report)
    return 0 if report["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
