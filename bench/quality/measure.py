"""What is measured on a payload: its tokens, whether a text is contained in it, and where its claims stand."""

from __future__ import annotations

import math
import re
import unicodedata
from typing import List, Optional, Sequence, Tuple

_PART = re.compile(
    "(?P<letters>[A-Z]*[a-z]+|[A-Z]+)|(?P<digits>[0-9]+)|(?P<feed>\n)"
    "|(?P<blank>[ \t\x0b-\r\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+)"
    "|(?P<accented>[\u00c0-\u036f]+)|(?P<double>[\uac00-\ud7a3]|[\U00010000-\U0010ffff])|(?P<other>.)",
    re.DOTALL,
)


def tokens(text: str) -> int:
    """The estimate of `core/src/tokens.rs` (`estimate/1`), so that all contestants are counted alike. Each read of
    Cortex is compared with it."""
    total = 0
    for part in _PART.finditer(text):
        length = part.end() - part.start()
        kind = part.lastgroup
        if kind == "letters":
            total += -(-length // 6)
        elif kind == "digits":
            total += -(-length // 3)
        elif kind == "accented":
            total += -(-length // 2)
        elif kind == "blank":
            total += length > 1
        else:
            total += 2 if kind == "double" else 1
    return total


def words(text: str) -> str:
    """Lower-case words with one blank between them; everything else is left out, so that bullets, line feeds and
    punctuation do not count."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    return " ".join(re.findall(r"[^\W_]+", folded))


def contains(haystack: str, text: str) -> bool:
    """Whether the words of `text` stand in a row in `haystack`, which is `words(...)` of something."""
    needle = words(text)
    return bool(needle) and f" {needle} " in f" {haystack} "


# Headers

def header(title: Optional[str], origin: Optional[str], dated: Optional[str], source: str) -> str:
    """The header that a source must stand under, by the rule of `core/src/pool/header.rs`."""
    fields = [cleaned for cleaned in map(_field, (title, origin, dated)) if cleaned]
    return f"[{' | '.join(fields)}]" if fields else f"[source: {_field(source)}]"


def _field(text: Optional[str]) -> str:
    line = " ".join("".join(" " if unicodedata.category(ch) == "Cc" else ch for ch in text or "").split())
    if len(line) > 160:
        line = line[:160].rstrip() + "\u2026"
    return line.replace("[", "(").replace("]", ")").replace("|", "/")


def misplaced(payload: str, claims: Sequence[Tuple[str, str]], headers: dict) -> int:
    """How many of the claims (source, text), in serving order, do not stand under the header of their source.

    Claims are grouped by source in order of first appearance; every line `- ...` is one of them.
    """
    order: List[str] = list(dict.fromkeys(source for source, _ in claims))
    expected = [(source, text) for name in order for source, text in claims if source == name]
    present, found = None, []
    for line in payload.split("\n"):
        if len(found) == len(expected) and not line.startswith("  "):
            break
        if line.startswith("- "):
            found.append([present, line[2:]])
        elif line.startswith("  ") and found:
            found[-1][1] += "\n" + line[2:]
        elif line:
            present = line
    wrong = abs(len(found) - len(expected))
    for (line, text), (source, body) in zip(found, expected):
        wrong += line != headers[source] or words(text) != words(body)
    return wrong


# Statistics

def mean(values: Sequence[float]) -> float:
    """The mean; NaN of nothing."""
    return sum(values) / len(values) if values else math.nan


def quantile(values: Sequence[float], share: float) -> float:
    """By nearest rank; NaN of nothing."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else math.nan


def precision_recall(scores: Sequence[float], positive: Sequence[bool], floor: float) -> Tuple[float, float, float]:
    """Of "below the floor" as a sign of `positive`: precision, recall, and the share of the others below it."""
    below = [score < floor for score in scores]
    hits = sum(b and p for b, p in zip(below, positive))
    said, real = sum(below), sum(positive)
    others = len(positive) - real
    return (hits / said if said else math.nan, hits / real if real else math.nan, (said - hits) / others if others else math.nan)


def area(scores: Sequence[float], positive: Sequence[bool]) -> float:
    """How probable it is that a positive case scores lower than another one (area under the ROC curve); 0.5 is chance."""
    low = sorted(score for score, p in zip(scores, positive) if p)
    high = sorted(score for score, p in zip(scores, positive) if not p)
    if not low or not high:
        return math.nan
    from bisect import bisect_left, bisect_right
    total = sum(bisect_left(low, score) + (bisect_right(low, score) - bisect_left(low, score)) / 2 for score in high)
    return total / (len(low) * len(high))


def balanced_floor(scores: Sequence[float], positive: Sequence[bool]) -> float:
    """The floor, in hundredths, with the largest sum of recall and share of the others left alone."""
    def worth(floor: float) -> float:
        _, recall, alarms = precision_recall(scores, positive, floor)
        return recall - alarms
    return max((step / 100 for step in range(5, 96)), key=worth)
