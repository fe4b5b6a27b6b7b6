#!/usr/bin/env python3
"""Applies the text rules of the verifier to lines of JSON from standard input, a line of JSON each.

  {"text", "quote"}          {"range": [first byte, one past the last] or null, "normal": the normalised text}
  {"statement", "chunks"}    {"figures": how many, "known": whether each occurs in the chunks}
  {"json"}                   {"error": the rule that a text breaks, "at": the byte} or {"canonical": its canonical form};
                             the text is given as the hexadecimal digits of its bytes
"""
import json
import sys

from cortex_trace import canonical, ground, quote


def _apply(case):
    if "json" in case:
        try:
            return {"canonical": canonical.encode(canonical.parse(bytes.fromhex(case["json"])))}
        except canonical.Refused as refused:
            return {"error": refused.kind, "at": refused.at}
    if "quote" in case:
        normal = quote.Normal(case["text"])
        return {"range": normal.locate(case["quote"]), "normal": normal.text}
    count, known = ground.figures(case["statement"], case["chunks"])
    return {"figures": count, "known": known}


if __name__ == "__main__":
    for line in sys.stdin:
        print(json.dumps(_apply(json.loads(line))))
