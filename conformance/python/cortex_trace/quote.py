"""Rule cortex-quote/1: both texts are normalised, then the quote must occur character for character.

Decomposition and combining classes come from `tables`, not from `unicodedata`: Python's tables are those of its
own version, and the rule has one version.
"""
import bisect

from . import tables

MAX_TRIES = 100
WHITE_SPACE = frozenset(map(chr, [*range(9, 14), 0x20, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029,
                                  0x202F, 0x205F, 0x3000]))
_FOLDED = {
    **dict.fromkeys(map(chr, [*range(0x2018, 0x201C), 0x2032]), "'"),
    **dict.fromkeys(map(chr, [*range(0x201C, 0x2020), 0x2033]), '"'),
    **dict.fromkeys(map(chr, [*range(0x2010, 0x2016), 0x2212]), "-"),
    "\u2026": "...", "\u00ad": "", "\u200b": "", "\ufeff": "",
    **dict.fromkeys(WHITE_SPACE, " "),
}
_ALNUM = frozenset("0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")


def decompose(char):
    """The full canonical decomposition of a character."""
    code = ord(char)
    if 0xAC00 <= code < 0xAC00 + 11172:
        index = code - 0xAC00
        tail = index % 28
        parts = chr(0x1100 + index // 588) + chr(0x1161 + index % 588 // 28)
        return parts + chr(0x11A7 + tail) if tail else parts
    return tables.CANONICAL.get(char, char)


def decomposed(text):
    """NFD of a text: decomposed, and marks after each other ordered by class."""
    chars = [part for char in text for part in decompose(char)]
    classes = [tables.COMBINING.get(char, 0) for char in chars]
    start = 0
    while start < len(chars):
        end = start
        while end < len(chars) and classes[end]:
            end += 1
        if end - start > 1:
            order = sorted(range(start, end), key=classes.__getitem__)
            chars[start:end] = [chars[i] for i in order]
        start = end + 1
    return "".join(chars)


class Normal:
    """A normalised text that knows the bytes its parts come from."""

    def __init__(self, source):
        self.text = ""
        self._starts = []
        self._from = []
        parts = []
        length = 0
        blank = None
        for part, start, end in _clusters(source):
            if all(char in WHITE_SPACE for char in part):
                blank = (blank[0] if blank else start, end)
                continue
            # Most clusters are one character of ASCII that stands for itself.
            plain = part if part.isascii() else decomposed(part)
            folded = "".join(_FOLDED.get(char, char) for char in plain)
            if not folded:
                continue
            if blank and parts:
                self._starts.append(length)
                self._from.append(blank)
                parts.append(" ")
                length += 1
            blank = None
            self._starts.append(length)
            self._from.append((start, end))
            parts.append(folded)
            length += len(folded)
        self.text = "".join(parts)

    def locate(self, quote):
        """(first byte, one past the last) of the first occurrence that may stand; None without one."""
        wanted = Normal(quote).text
        if not wanted:
            return None
        at = 0
        for _ in range(MAX_TRIES):
            start = self.text.find(wanted, at)
            if start < 0:
                return None
            end = start + len(wanted)
            first, last = self._unit_from(start), self._unit_to(end)
            if first and last and not self._within_word(start) and not self._within_word(end):
                return first[0], last[1]
            at = start + 1
        return None

    def _index(self, at):
        i = bisect.bisect_left(self._starts, at)
        return i if i < len(self._starts) and self._starts[i] == at else None

    def _unit_from(self, at):
        i = self._index(at)
        return None if i is None else self._from[i]

    def _unit_to(self, at):
        if at == len(self.text):
            return self._from[-1]
        i = self._index(at)
        return self._from[i - 1] if i else None

    def _within_word(self, at):
        return 0 < at < len(self.text) and self.text[at - 1] in _ALNUM and self.text[at] in _ALNUM


def _clusters(source):
    """Each character with the marks after it, and its range of bytes."""
    clusters = []
    at = 0
    for char in source:
        end = at + len(char.encode("utf-8"))
        combines = char >= "\u0300" and tables.COMBINING.get(decompose(char)[0], 0)
        if combines and clusters:
            last = clusters[-1]
            clusters[-1] = (last[0] + char, last[1], end)
        else:
            clusters.append((char, at, end))
        at = end
    return clusters


def normalise(text):
    """A text in the form that is compared."""
    return Normal(text).text


def families(members):
    """Rule cortex-family/1 for (artifact, text or None): for each the number of the first of its family."""
    first = {}
    family = list(range(len(members)))
    for i, (artifact, text) in enumerate(members):
        marks = [("artifact", artifact)]
        normal = normalise(text) if text is not None else ""
        if normal:
            marks.append(("text", normal))
        for mark in marks:
            other = first.setdefault(mark, i)
            low, high = sorted((family[i], family[other]))
            family = [low if one == high else one for one in family]
    return [one + 1 for one in family]
