"""coalent on the same vectors: a filled pool and its reads.

Its units are built by the method that its own reads use (`_build_unit`), without the read around each, which
would take an hour; then every read is an ordinary `get`. The packing of a read is repeated at smaller budgets by
the package's own `_pool_pack`, because ranking does not depend on the budget.
"""

from __future__ import annotations

import hashlib
import warnings
from dataclasses import dataclass
from typing import Dict, List, Optional, Sequence, Tuple

import numpy as np
from coalent.semantic.cache import SemanticCache
from coalent.semantic.embedding import FunctionEmbedder
from coalent.semantic.memory import FunctionRetriever
from coalent.semantic.ports import Chunk, Synthesis
from coalent.semantic.unit import Cognition, ProvenanceManifest

from datasets import Document
from store import Items

_NAMESPACE = "bench"
_TOP_K = 6


@dataclass
class PeerRead:
    """What one read gives at one budget. `claims` are (source, text), in serving order."""

    payload: str
    claims: List[Tuple[str, str]]
    claims_payload: str


class Peer:
    """A pool with a unit for each source, whose claims are the sentences that Cortex extracted."""

    def __init__(self, documents: Sequence[Document], claims: Items, chunks: Items, questions: Dict[str, "np.ndarray"]) -> None:
        self._vectors: Dict[str, List[float]] = {}
        for items in (chunks, claims):
            for body, vector in zip(items.bodies, items.vectors):
                self._vectors[body.strip()] = vector.tolist()
        self._vectors.update((text, vector.tolist()) for text, vector in questions.items())
        self._nothing = [0.0] * chunks.vectors.shape[1]
        self._chunks, self._questions = chunks, questions
        self._meta = {
            document.id: {name: value for name, value in (
                ("title", document.title), ("source", document.origin), ("date", document.dated)) if value}
            for document in documents
        }
        self._sentences: Dict[str, List[str]] = {}
        for source, body in zip(claims.sources, claims.bodies):
            self._sentences.setdefault(source, []).append(body)
        self._packed_order: list = []
        self._raw: Optional[list] = None
        # It warns that no header function is given: its own ladder of title, source and date is what is compared.
        warnings.filterwarnings("ignore", message="read_path='pool' without pool_header")
        self.cache = SemanticCache(
            FunctionRetriever(self._retrieve), self, embedder=FunctionEmbedder(self._embed, batch=lambda texts: [self._embed(t) for t in texts]),
            read_path="pool", serve_budget=2000,
        )
        self._pack, self._floor = self.cache._pool_pack, self.cache._floor_pack
        self.cache._pool_pack, self.cache._floor_pack = self._pool_pack, self._floor_pack
        self._fill()

    def synthesize(self, query: str, chunks: Sequence[Chunk]) -> Synthesis:
        """Extractive: the sentences of the sources of the chunks."""
        sources = dict.fromkeys(chunk.artifact_id for chunk in chunks)
        claims = [text for source in sources for text in self._sentences.get(source, [])]
        return Synthesis(understanding={"claims": claims}, used=list(range(len(chunks))), ok=True)

    def get(self, question: str, budgets: Sequence[int]) -> Tuple[Dict[int, PeerRead], float, bool]:
        """A read at each budget, its coverage, and whether it needs retrieval."""
        self._packed_order, self._raw = [], None
        self.cache._serve_budget = max(budgets)
        result = self.cache.get(question, namespace=_NAMESPACE)
        order, raw = list(self._packed_order), self._raw
        reads = {}
        for budget in budgets:
            self.cache._serve_budget = budget
            picked, _, headers = self._pack(order)
            claims_payload = SemanticCache._pool_render(picked, headers)
            parts = [claims_payload] if claims_payload else []
            if raw is not None:
                parts += SemanticCache._attributed_raw(self._floor(raw))
            owners = {hit.unit_id: self.cache._units[hit.unit_id].evidence[0].artifact_id for hit in picked}
            reads[budget] = PeerRead("\n\n".join(parts), [(owners[hit.unit_id], hit.text) for hit in picked], claims_payload)
        return reads, result.coverage, result.needs_retrieval

    def _fill(self) -> None:
        by_source: Dict[str, List[Chunk]] = {}
        for source, body in zip(self._chunks.sources, self._chunks.bodies):
            by_source.setdefault(source, []).append(Chunk(source, body, meta=self._meta[source]))
        for source, chunks in by_source.items():
            name = hashlib.sha1(f"{_NAMESPACE}|artifact:{source}".encode()).hexdigest()[:16]
            seed = tuple(self._embed(chunks[0].text))
            unit = Cognition(id=f"cog:{name}", namespace=_NAMESPACE, query=source, query_embedding=seed, understanding={},
                             evidence=(), provenance=ProvenanceManifest("none", "none"))
            self.cache._units[unit.id] = unit
            self.cache._build_unit(unit, source, seed, chunks)

    def _retrieve(self, query: str, namespace: Optional[str] = None) -> List[Chunk]:
        best = self._chunks.nearest(self._questions[query])[:_TOP_K]
        return [Chunk(self._chunks.sources[at], self._chunks.bodies[at], meta=self._meta[self._chunks.sources[at]]) for at in best]

    def _embed(self, text: str) -> List[float]:
        # A unit's digest has no vector here: the pool path does not use it.
        return self._vectors.get(text.strip(), self._nothing)

    def _pool_pack(self, order: list) -> tuple:
        self._packed_order = list(order)
        return self._pack(order)

    def _floor_pack(self, chunks: list) -> list:
        self._raw = list(chunks)
        return self._floor(chunks)
