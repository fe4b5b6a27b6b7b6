"""Canonical JSON: RFC 8785 restricted to ASCII keys and to integers within +-(2^53 - 1), without floats.

Reading is strict: what two readers could understand differently (a key twice, `1.0`, half a surrogate pair) is
refused. `Refused.kind` is the name of the rule that was broken, `Refused.at` the byte where.
"""
import re

MAX_BYTES = 8 << 20
MAX_DEPTH = 32
MAX_VALUES = 1 << 18
MAX_INTEGER = (1 << 53) - 1

_LIMITS = ("too_large", "too_deep", "too_many_values")
_SPACE = re.compile(r"[ \t\n\r]*")
_PLAIN = re.compile(r'[^"\\\x00-\x1f]*')
_DIGITS = re.compile(r"[0-9]*")
_HEX4 = re.compile(r"[0-9a-fA-F]{4}")
_ESCAPES = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_WORDS = (("true", True), ("false", False), ("null", None))


class Refused(Exception):
    """A text that is not canonical JSON."""

    def __init__(self, kind, at):
        super().__init__(f"{kind}, at byte {at}")
        self.kind = kind
        self.at = at

    @property
    def code(self):
        """The code of a verification that stops here."""
        if self.kind in _LIMITS:
            return "T_LIMIT"
        return "T_NONCANON" if self.kind == "not_canonical" else "T_PARSE"


def parse(data):
    """The value of a JSON text of the restricted kind, given as bytes; white space is allowed."""
    if len(data) > MAX_BYTES:
        raise Refused("too_large", MAX_BYTES)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Refused("invalid_utf8", error.start) from None
    reader = _Reader(text)
    reader.skip_space()
    value = reader.value()
    reader.skip_space()
    if reader.at < len(text):
        reader.refuse("trailing_bytes")
    return value


def parse_canonical(data):
    """The value of a text that is its own canonical form."""
    value = parse(data)
    again = encode(value).encode("utf-8")
    if again != data:
        pairs = zip(data, again)
        at = next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(data), len(again)))
        raise Refused("not_canonical", at)
    return value


class _Reader:
    """Recursive descent over the characters of a text."""

    def __init__(self, text):
        self.text = text
        self.at = 0
        self.depth = 0
        self.values = 0

    def refuse(self, kind, at=None):
        at = self.at if at is None else at
        raise Refused(kind, len(self.text[:at].encode("utf-8")))

    def unexpected(self):
        self.refuse("unexpected" if self.at < len(self.text) else "unexpected_end")

    def peek(self):
        return self.text[self.at:self.at + 1]

    def take(self, char):
        if self.peek() != char:
            self.unexpected()
        self.at += 1

    def skip_space(self):
        # Canonical text has none.
        if self.text[self.at:self.at + 1] <= " ":
            self.at = _SPACE.match(self.text, self.at).end()

    def value(self):
        self.values += 1
        if self.values > MAX_VALUES:
            self.refuse("too_many_values")
        first = self.peek()
        if first == '"':
            return self.string()
        if first in ("{", "["):
            if self.depth == MAX_DEPTH:
                self.refuse("too_deep")
            self.depth += 1
            value = self.object() if first == "{" else self.array()
            self.depth -= 1
            return value
        if first and first in "-0123456789":
            return self.number()
        for word, value in _WORDS:
            if self.text.startswith(word, self.at):
                self.at += len(word)
                return value
        return self.unexpected()

    def array(self):
        self.take("[")
        items = []
        self.skip_space()
        if self.peek() == "]":
            self.at += 1
            return items
        while True:
            self.skip_space()
            items.append(self.value())
            self.skip_space()
            if self.peek() == "]":
                self.at += 1
                return items
            self.take(",")

    def object(self):
        self.take("{")
        members = {}
        self.skip_space()
        if self.peek() == "}":
            self.at += 1
            return members
        while True:
            self.skip_space()
            start = self.at
            if self.peek() != '"':
                self.unexpected()
            key = self.string()
            if not key.isascii():
                self.refuse("non_ascii_key", start)
            if key in members:
                self.refuse("duplicate_key", start)
            self.skip_space()
            self.take(":")
            self.skip_space()
            members[key] = self.value()
            self.skip_space()
            if self.peek() == "}":
                self.at += 1
                return members
            self.take(",")

    def number(self):
        start = self.at
        negative = self.peek() == "-"
        self.at += negative
        digits = _DIGITS.match(self.text, self.at).group()
        self.at += len(digits)
        if not digits:
            self.unexpected()
        after = self.peek()
        if after == ".":
            self.refuse("float", start)
        if after in ("e", "E"):
            self.refuse("exponent", start)
        if len(digits) > 1 and digits[0] == "0":
            self.refuse("leading_zero", start)
        if negative and digits == "0":
            self.refuse("negative_zero", start)
        if len(digits) > 16 or int(digits) > MAX_INTEGER:
            self.refuse("out_of_range", start)
        return -int(digits) if negative else int(digits)

    def string(self):
        self.take('"')
        parts = []
        while True:
            plain = _PLAIN.match(self.text, self.at)
            parts.append(plain.group())
            self.at = plain.end()
            after = self.peek()
            if after == '"':
                self.at += 1
                return "".join(parts)
            if after == "\\":
                parts.append(self.escape())
            elif after:
                self.refuse("control_character")
            else:
                self.unexpected()

    def escape(self):
        start = self.at
        self.at += 1
        letter = self.peek()
        if not letter:
            self.unexpected()
        self.at += 1
        if letter in _ESCAPES:
            return _ESCAPES[letter]
        if letter != "u":
            self.refuse("bad_escape", start)
        code = self.hex4(start)
        if 0xD800 <= code <= 0xDBFF:
            if not self.text.startswith("\\u", self.at):
                self.refuse("lone_surrogate", start)
            self.at += 2
            second = self.hex4(start)
            if not 0xDC00 <= second <= 0xDFFF:
                self.refuse("lone_surrogate", start)
            code = 0x10000 + ((code - 0xD800) << 10) + (second - 0xDC00)
        elif 0xDC00 <= code <= 0xDFFF:
            self.refuse("lone_surrogate", start)
        return chr(code)

    def hex4(self, start):
        digits = _HEX4.match(self.text, self.at)
        if not digits:
            self.refuse("bad_escape", start)
        self.at = digits.end()
        return int(digits.group(), 16)


_SHORT = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}
_TO_ESCAPE = re.compile(r'["\\\x00-\x1f]')


def _quoted(text):
    def escaped(match):
        char = match.group()
        return _SHORT.get(char) or f"\\u{ord(char):04x}"

    return f'"{_TO_ESCAPE.sub(escaped, text)}"'


def encode(value):
    """The canonical text of a value that was parsed."""
    if value is None:
        return "null"
    if value is True:
        return "true"
    if value is False:
        return "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, list):
        return f"[{','.join(map(encode, value))}]"
    members = (f"{_quoted(key)}:{encode(value[key])}" for key in sorted(value))
    return f"{{{','.join(members)}}}"
