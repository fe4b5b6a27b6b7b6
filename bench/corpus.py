"""Texts and vectors made by rule, the same in every run.

Texts: words of a made-up vocabulary whose frequencies fall off as one over the rank, as in natural text, a third
of them English stop words, in sentences of 8 to 16 words with a number in some. Every sentence is different.

Vectors: unit vectors around random centres, about a hundred to a centre, with uniform noise of 0.8 times the
centre's length, so that two of one cluster have a cosine of about 0.6 and of two clusters about 0. This is
kinder than nothing and harder than real embeddings, whose neighbourhoods have structure.
"""

from __future__ import annotations

import itertools
import math
import random
from dataclasses import dataclass
from typing import Iterator, List, Sequence

DIMS = 384
_VOCABULARY = 12_000
_STOP_WORDS = ("the", "of", "and", "in", "to", "is", "was", "for", "that", "with", "by", "on", "as", "are", "from")
_ONSETS = ("b", "c", "d", "f", "g", "h", "l", "m", "n", "p", "r", "s", "t", "v", "br", "cl", "dr", "gr", "pl", "st", "tr")
_RHYMES = ("a", "e", "i", "o", "u", "an", "el", "in", "or", "un", "ar", "et", "is", "om", "ul")
_PER_CENTRE = 100
_NOISE = 0.8


@dataclass(frozen=True)
class Row:
    """One row of a user's table."""

    title: str
    body: str

    def copied(self) -> str:
        """Its columns in COPY's text format; the texts hold nothing that has to be escaped."""
        return f"{self.title}\t{self.body}"


class Texts:
    """A source of rows and of queries that belong to them."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        syllables = [onset + rhyme for onset in _ONSETS for rhyme in _RHYMES]
        words: dict = {}
        while len(words) < _VOCABULARY:
            words["".join(self._random.choices(syllables, k=self._random.randint(2, 3)))] = None
        self._words = list(words)
        self._weights = list(itertools.accumulate(1 / (rank + 10) for rank in range(_VOCABULARY)))

    def rows(self, count: int, sentences: int = 4) -> Iterator[Row]:
        """So many rows of so many sentences each."""
        for _ in range(count):
            title = " ".join(self._content(3))
            yield Row(title, " ".join(self.sentence() for _ in range(sentences)))

    def sentence(self) -> str:
        """One sentence."""
        chosen = self._random
        words = self._content(chosen.randint(8, 16))
        for place in range(1, len(words), 3):
            words[place] = chosen.choice(_STOP_WORDS)
        if chosen.random() < 0.3:
            words.append(f"by {chosen.randint(2, 9999)} percent")
        text = " ".join(words)
        return text[0].upper() + text[1:] + "."

    def query(self, row: Row) -> str:
        """Four words of a row's text, as somebody would ask who remembers a part of it."""
        words = [word.strip(".").lower() for word in row.body.split()]
        known = [word for word in words if word.isalpha() and word not in _STOP_WORDS and word != "percent"]
        return " ".join(self._random.sample(known, 4))

    def _content(self, count: int) -> List[str]:
        return self._random.choices(self._words, cum_weights=self._weights, k=count)


class Vectors:
    """A source of clustered unit vectors, and of queries from the same clusters."""

    def __init__(self, seed: int, expected: int) -> None:
        self._random = random.Random(seed)
        self._centres = [self._direction(1.0) for _ in range(max(1, expected // _PER_CENTRE))]

    def vector(self) -> str:
        """One vector as pgvector writes it."""
        centre = self._random.choice(self._centres)
        return written([a + b for a, b in zip(centre, self._direction(_NOISE))])

    def _direction(self, length: float) -> List[float]:
        draw = self._random.random
        return scaled([draw() - 0.5 for _ in range(DIMS)], length)


def scaled(components: Sequence[float], length: float) -> List[float]:
    """The same direction with another length."""
    factor = length / math.sqrt(sum(c * c for c in components))
    return [c * factor for c in components]


def written(components: Sequence[float]) -> str:
    """A unit vector in this direction, in pgvector's text format."""
    return "[" + ",".join("%.5f" % c for c in scaled(components, 1.0)) + "]"
