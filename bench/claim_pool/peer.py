#!/usr/bin/env python3
"""The peer in a process of its own: a coalent cache over given data, asked line by line.

Requests come as JSON on standard input, one a line, and answers go to standard output in the same way. Vectors come
from a table look-up, so that no side pays for embedding. Units are made as a build leaves them and loaded from a
store, since building through its interface is quadratic in the number of units.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
import warnings
from pathlib import Path
from typing import Any, Callable, Dict, List, Tuple

import data

import coalent  # noqa: E402
from coalent import Chunk, Cognition, InMemoryCognitionStore, SemanticCache, SQLiteCognitionStore
from coalent.domain.models import ProvenanceManifest, SourceSpan

Vector = Tuple[float, ...]


class Table:
    """An embedder that looks up."""

    def __init__(self) -> None:
        self.known: Dict[str, Vector] = {}

    def embed(self, text: str) -> Vector:
        return self.known[text]


class NoRetriever:
    """Every read of this benchmark is served from the pool; one that is not shows in the count."""

    calls = 0

    def retrieve(self, query: str, *, namespace: Any = None) -> List[Chunk]:
        NoRetriever.calls += 1
        return []


class NoSynthesizer:
    def synthesize(self, query: str, chunks: Any) -> Any:
        raise AssertionError("a read of this benchmark builds nothing")


def unit(of: data.Data, source: int) -> Cognition:
    """The unit of one source, as a build leaves it."""
    artifact = f"source-{source}"
    body = of.body(source)
    seed = tuple(float(x) for x in of.chunks[source])
    chunk = Chunk(artifact_id=artifact, text=body, meta={"title": f"Source {source}", "source": "bench", "date": "2026-01-01"})
    return Cognition(
        id=f"cog:{source:016x}", namespace="", query=f"about {artifact}", query_embedding=seed,
        understanding={"claims": of.texts[source * data.PER_SOURCE:(source + 1) * data.PER_SOURCE]},
        evidence=(chunk,),
        provenance=ProvenanceManifest("synth@1", "semantic@2", (SourceSpan.from_text(artifact, body),)),
        understanding_embedding=seed,
        claim_embeddings=tuple(tuple(float(x) for x in row) for row in of.vectors(source)),
        source_meta={"title": f"Source {source}", "source": "bench", "date": "2026-01-01"},
    )


def timed(work: Callable[[], Any]) -> Tuple[float, Any]:
    """Milliseconds, and what came of it."""
    start = time.perf_counter()
    result = work()
    return (time.perf_counter() - start) * 1000, result


class Peer:
    def __init__(self, folder: Path) -> None:
        self.data = data.read(folder)
        self.table = Table()
        for number, row in enumerate(self.data.questions):
            self.table.known[f"question {number}"] = tuple(float(x) for x in row)
        store = InMemoryCognitionStore()
        for source in range(self.data.sources):
            store.put(unit(self.data, source))
        self.loaded_kb = resident()
        self.construct_ms, self.cache = timed(lambda: self.over(store))

    def over(self, store: Any) -> SemanticCache:
        return SemanticCache(
            NoRetriever(), NoSynthesizer(), embedder=self.table, read_path="pool", serve_budget=1000, coverage_floor=0.0,
            pool_header=lambda unit: f"[{unit.source_meta['title']} | {unit.source_meta['source']} | {unit.source_meta['date']}]",
            store=store,
        )

    def ready(self) -> Dict[str, Any]:
        return {"version": coalent.__version__ if hasattr(coalent, "__version__") else "?", "construct_ms": self.construct_ms}

    def read(self, question: int) -> Dict[str, Any]:
        ms, result = timed(lambda: self.cache.get(f"question {question}"))
        return {"ms": ms, "claims": len(result.pool), "hit": result.cache_hit, "retrievals": NoRetriever.calls}

    def notice(self, source: int) -> Dict[str, Any]:
        """A change notice, then the unit is put back as a build would, outside the time."""
        ms, result = timed(lambda: self.cache.source_changed(f"source-{source}", text=f"changed {time.time_ns()}"))
        assert len(result.dirtied) == 1, result
        self.rebuild(source)
        return {"ms": ms}

    def rebuild(self, source: int) -> None:
        """What the peer does when the build of a unit is done: the unit is fresh and its rows are replaced."""
        held = self.cache._units[f"cog:{source:016x}"]
        held.mark_fresh()
        self.cache._rows_epoch += 1
        self.cache._status_gen += 1
        self.cache._index_unit_rows(held)

    def read_changed(self, source: int, question: int) -> Dict[str, Any]:
        """One source changed and was built again; then a read."""
        self.cache.source_changed(f"source-{source}", text=f"changed {time.time_ns()}")
        self.rebuild(source)
        return self.read(question)

    def notice_durable(self, folder: str, rounds: int) -> Dict[str, Any]:
        """Change notices of a cache whose units lie in SQLite, in a file: the peer's way to survive a restart."""
        store = SQLiteCognitionStore(str(Path(folder) / "peer.sqlite"))
        for source in range(min(self.data.sources, 1_000)):
            store.put(unit(self.data, source))
        cache = self.over(store)
        costs = [timed(lambda: cache.source_changed(f"source-{source}", text="changed"))[0] for source in range(rounds)]
        return {"ms": costs}

    def memory(self) -> Dict[str, Any]:
        return {"rss_kb": resident(), "peak_kb": resident("VmHWM")}


def resident(field: str = "VmRSS") -> int:
    """This process's memory in kB, as Linux tells it."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1])
    return 0


def main() -> int:
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    base = resident()
    peer = Peer(Path(sys.argv[1]))
    print(json.dumps({**peer.ready(), "base_kb": base}), file=answers, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        answer = getattr(peer, request.pop("do"))(**request)
        print(json.dumps(answer), file=answers, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
