"""Rule cortex-ground/1, as far as the figures of a statement go: its numbers with their units, and its dates.

Offsets are bytes of the text in UTF-8, as the rule counts; a text is walked as characters.
"""
from . import tables
from .quote import WHITE_SPACE

_UNITS = (
    "% percent pct", "$ usd dollar dollars", "€ eur euro euros", "£ gbp pounds", "¥ jpy yen",
    "km kilometre kilometres kilometer kilometers", "m metre metres meter meters",
    "cm centimetre centimetres centimeter centimeters", "mm millimetre millimetres millimeter millimeters",
    "miles mile mi", "feet foot ft", "kg kilogram kilograms kilo kilos", "g gram grams", "mg milligram milligrams",
    "tonnes tonne tons ton t", "l litre litres liter liters", "ml millilitre millilitres milliliter milliliters",
    "years year yrs yr", "months month", "weeks week", "days day", "hours hour hrs hr h", "minutes minute mins min",
    "seconds second secs sec s", "ms millisecond milliseconds", "kw kilowatt kilowatts", "mw megawatt megawatts",
    "gw gigawatt gigawatts", "kwh", "gb gigabyte gigabytes", "mb megabyte megabytes", "kb kilobyte kilobytes",
    "hz hertz", "khz", "mhz", "ghz", "bar", "° degrees degree",
)
UNITS = {spelling: line.split()[0] for line in reversed(_UNITS) for spelling in line.split()}
_SMALL = ("zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
          "seventeen eighteen nineteen twenty").split()
_TENS = "thirty forty fifty sixty seventy eighty ninety".split()
NUMBER_WORDS = {**{word: i for i, word in enumerate(_SMALL)}, **{word: 10 * i for i, word in enumerate(_TENS, 3)}}
MONTHS = ("january february march april may june july august september october november december").split()
_SCALES = {"thousand": 3, **dict.fromkeys("million millions mn mio".split(), 6),
           **dict.fromkeys("billion billions bn".split(), 9), **dict.fromkeys("trillion trillions".split(), 12)}
_GAPS = (b" ", b", ", b". ", b"-", b" of ")
_DIGITS = frozenset("0123456789")


def fold(word):
    """A run of letters and digits with compatibility forms and case folded; None where that is not plain ASCII, as no
    word of the rule is anything else."""
    if word.isascii():
        return word.lower()
    folded = [char.lower() if char.isascii() else tables.TO_ASCII.get(char) for char in word]
    return None if None in folded else " ".join("".join(folded).split())


class _Text:
    """A text as characters, with the byte offset of each."""

    def __init__(self, text):
        self.chars = text
        self.offsets = [0]
        for char in text:
            self.offsets.append(self.offsets[-1] + len(char.encode("utf-8")))


def figures(statement, chunks):
    """(how many figures a statement has, whether each occurs in the chunks)."""
    evidence = _Evidence(chunks)
    numbers = list(_numbers(statement))
    data = statement.encode("utf-8")
    known = []
    for at, length, folded in _words(statement):
        if folded not in MONTHS:
            continue
        if any(_beside(data, number, at, at + length) for number in numbers):
            known.append(evidence.has_month(folded))
    known.extend(evidence.has_number(number) for number in numbers)
    return len(known), all(known)


def _beside(data, number, start, end):
    number_end = number["at"] + number["length"]
    low, high = (number_end, start) if number_end <= start else (end, number["at"])
    return low <= high and data[low:high] in _GAPS


class _Evidence:
    """The numbers, units and words of the chunks."""

    def __init__(self, chunks):
        self.numbers = {}
        self.units = set()
        self.words = set()
        for chunk in chunks:
            for number in _numbers(chunk):
                for reading in number["readings"] + number["parts"]:
                    self._add(reading, number["unit"])
            for _, _, folded in _words(chunk):
                if folded in NUMBER_WORDS:
                    self._add(str(NUMBER_WORDS[folded]), None)
                if folded in UNITS:
                    self.units.add(UNITS[folded])
                self.words.add(folded)
            self.units.update(UNITS[char] for char in set(chunk) if char in UNITS)

    def _add(self, reading, unit):
        self.numbers.setdefault(reading, set()).add(unit)
        if unit:
            self.units.add(unit)

    def _has_reading(self, reading, unit):
        found = self.numbers.get(reading, ())
        if unit is None:
            return bool(found)
        return any(other == unit or (other is None and unit in self.units) for other in found)

    def has_number(self, number):
        """Whether one of a number's readings occurs, or each of its parts does."""
        unit, parts = number["unit"], number["parts"]
        return (any(self._has_reading(reading, unit) for reading in number["readings"])
                or (bool(parts) and all(self._has_reading(part, unit) for part in parts)))

    def has_month(self, month):
        """Whether a month occurs by its name, its abbreviation or its number."""
        names = {month, month + "s", month[:3]}
        if month.endswith("s"):
            names.add(month[:-1])
        return bool(names & self.words) or str(MONTHS.index(month) + 1) in self.numbers


def _plain(whole, decimals):
    whole = whole.lstrip("0") or "0"
    decimals = decimals.rstrip("0")
    return f"{whole}.{decimals}" if decimals else whole


def _triples(groups):
    return len(groups) == 1 or (len(groups[0]) <= 3 and all(len(group) == 3 for group in groups[1:]))


def _readings(separators, groups):
    readings = []
    if _triples(groups):
        readings.append(_plain("".join(groups), ""))
    if len(groups) > 1 and separators[-1] in (".", ",") and _triples(groups[:-1]):
        readings.append(_plain("".join(groups[:-1]), groups[-1]))
    return readings or ["|".join(_plain(group, "") for group in groups)]


def _scaled(reading, zeros):
    if not zeros:
        return reading
    whole, _, decimals = reading.partition(".")
    padded = decimals.ljust(zeros, "0")
    return _plain(whole + padded[:zeros], padded[zeros:])


def _numbers(source):
    """The numbers of a text: place, readings, parts and unit."""
    if not _DIGITS & set(source):
        return
    text = _Text(source)
    chars = text.chars
    count = len(chars)

    def digit(i):
        return i < count and chars[i] in _DIGITS

    i = 0
    while i < count:
        if not digit(i):
            i += 1
            continue
        start = i
        separators, groups = [None], []
        while True:
            begin = i
            while digit(i):
                i += 1
            groups.append(chars[begin:i])
            if i >= count:
                break
            separator = chars[i]
            if separator in ",.'\u2019":
                inside = digit(i + 1)
            elif separator in " \u00a0\u2009\u202f":
                inside = all(digit(i + n) for n in (1, 2, 3)) and not digit(i + 4) and len(groups[0]) <= 3
            else:
                inside = False
            if not inside:
                break
            separators.append("\u00a0" if separator in "\u2009\u202f" else separator)
            i += 1
        end = i
        before = UNITS.get(chars[start - 1]) if start else None
        zeros, after_scale = _scale_at(chars, end)
        suffix, after_unit = _unit_at(chars, after_scale)
        last = max(after_scale, after_unit)
        while chars[last - 1] in WHITE_SPACE:
            last -= 1
        yield {
            "at": text.offsets[start],
            "length": text.offsets[last] - text.offsets[start],
            "readings": [_scaled(reading, zeros) for reading in _readings(separators, groups)],
            "parts": [_plain(group, "") for group in groups] if " " in separators else [],
            "unit": before or suffix,
        }


def _word_at(chars, at):
    """(folded word, place after it) of the word at a place, at most one blank on."""
    start = at + (chars[at:at + 1] in (" ", "\u00a0", "\u202f", "-"))
    end = start
    while end < len(chars) and tables.is_alphabetic(chars[end]):
        end += 1
    return (fold(chars[start:end]), end) if end > start else (None, at)


def _scale_at(chars, at):
    word, end = _word_at(chars, at)
    return (_SCALES[word], end) if word in _SCALES else (0, at)


def _unit_at(chars, at):
    start = at + (chars[at:at + 1] in (" ", "\u00a0", "\u202f"))
    if chars[start:start + 1] in UNITS:
        return UNITS[chars[start]], start + 1
    word, end = _word_at(chars, at)
    return (UNITS[word], end) if word in UNITS else (None, at)


def _words(source):
    """(first byte, bytes of the written form, folded form) of each run of letters and digits, the possessive left out
    and the dots of initials not written."""
    text = _Text(source)
    chars = text.chars
    words = []
    end_of_last = at = 0
    while True:
        start = at
        while start < len(chars) and not tables.is_alphanumeric(chars[start]):
            start += 1
        if start == len(chars):
            return [(first, len(written.encode("utf-8")), fold(written)) for first, written in words]
        at = start
        while at < len(chars) and (tables.is_alphanumeric(chars[at]) or "\u0300" <= chars[at] <= "\u036f"):
            at += 1
        written = chars[start:at]
        between = chars[end_of_last:start]
        end_of_last = at
        if between in ("'", "\u2019") and written in ("s", "S") and words:
            continue
        if between == "." and len(written) == 1 and words and _is_initials(words[-1][1]):
            words[-1] = (words[-1][0], words[-1][1] + written)
            continue
        words.append((text.offsets[start], written))


def _is_initials(written):
    return len(written) <= 8 and all(map(tables.is_uppercase, written))
