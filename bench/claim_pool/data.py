"""What both sides hold: texts, vectors and questions, made by rule, and written to a folder so that a process of
its own can read them.

A source has ten claims, a claim is one sentence of about 80 characters. Vectors are random unit vectors of 384
dimensions, by default without any structure, which is the worst case of an index by neighbourhood: beside the one
claim that a question is about, all others are about equally far. `clustered` puts a hundred claims around each of
many centres. A question has a cosine of about 0.7 to one claim. A chunk's vector is the mean of its claims'.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Iterator, List

import numpy

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import corpus  # noqa: E402

DIMS = corpus.DIMS
PER_SOURCE = 10
COSINE = 0.7
_PER_CENTRE = 100
_NOISE = 0.8
_BLOCK = 50_000


@dataclass
class Data:
    """One size. Row n of `claims` is claim n % 10 of source n // 10, row n of `chunks` the only chunk of source n."""

    claims: numpy.ndarray
    chunks: numpy.ndarray
    questions: numpy.ndarray
    texts: List[str]

    @property
    def sources(self) -> int:
        return len(self.chunks)

    def body(self, source: int) -> str:
        """The text of a source: its claims, one after another."""
        return " ".join(self.texts[source * PER_SOURCE:(source + 1) * PER_SOURCE])

    def vectors(self, source: int) -> numpy.ndarray:
        """The claims' vectors of a source."""
        return self.claims[source * PER_SOURCE:(source + 1) * PER_SOURCE]

    def write(self, folder: Path) -> None:
        for name in ("claims", "chunks", "questions"):
            numpy.save(folder / f"{name}.npy", getattr(self, name))
        (folder / "texts.txt").write_text("\n".join(self.texts), encoding="utf-8")


def read(folder: Path) -> Data:
    """What `write` wrote."""
    arrays = [numpy.load(folder / f"{name}.npy") for name in ("claims", "chunks", "questions")]
    return Data(*arrays, (folder / "texts.txt").read_text(encoding="utf-8").split("\n"))


def make(claims: int, questions: int, clustered: bool) -> Data:
    """The same for the same arguments, on every machine with this numpy."""
    random = numpy.random.default_rng(7)
    sources = claims // PER_SOURCE
    vectors = numpy.empty((sources * PER_SOURCE, DIMS), numpy.float32)
    centres = unit(random.standard_normal((max(1, claims // _PER_CENTRE), DIMS), numpy.float32)) if clustered else None
    for start in range(0, len(vectors), _BLOCK):
        block = unit(random.standard_normal((min(_BLOCK, len(vectors) - start), DIMS), numpy.float32))
        if centres is not None:
            block = unit(centres[random.integers(0, len(centres), len(block))] + numpy.float32(_NOISE) * block)
        vectors[start:start + len(block)] = block
    chunks = unit(vectors.reshape(sources, PER_SOURCE, DIMS).mean(axis=1))
    about = vectors[random.integers(0, len(vectors), questions)]
    away = random.standard_normal((questions, DIMS), numpy.float32)
    away = unit(away - (away * about).sum(axis=1, keepdims=True) * about)
    asked = unit(COSINE * about + (1 - COSINE ** 2) ** 0.5 * away)
    source = corpus.Texts(11)
    return Data(vectors, chunks, asked, [source.sentence() for _ in range(len(vectors))])


def unit(vectors: numpy.ndarray) -> numpy.ndarray:
    """Every row at length 1."""
    return (vectors / numpy.linalg.norm(vectors, axis=1, keepdims=True)).astype(numpy.float32)


def copied(vectors: numpy.ndarray, first: int) -> Iterator[bytes]:
    """Rows (integer, vector) in COPY's binary format, numbered from `first`."""
    yield b"PGCOPY\n\xff\r\n\0" + bytes(8)
    row = numpy.dtype([
        ("fields", ">i2"), ("n_size", ">i4"), ("n", ">i4"),
        ("size", ">i4"), ("dims", ">i2"), ("unused", ">i2"), ("e", ">f4", (DIMS,)),
    ])
    for start in range(0, len(vectors), _BLOCK):
        block = vectors[start:start + _BLOCK]
        rows = numpy.zeros(len(block), row)
        rows["fields"], rows["n_size"], rows["size"], rows["dims"] = 2, 4, 4 + 4 * DIMS, DIMS
        rows["n"] = numpy.arange(first + start, first + start + len(block))
        rows["e"] = block
        yield rows.tobytes()
    yield b"\xff\xff"


def literal(vector: numpy.ndarray) -> str:
    """A vector as SQL."""
    return "'[" + ",".join("%.7g" % component for component in vector) + "]'::vector"
