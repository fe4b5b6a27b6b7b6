"""One set, all contestants, the same vectors: what gold the payloads hold and what they cost."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Dict, List, Optional, Sequence, Tuple

import measure
import peer
import store
from datasets import Dataset, Document, Pool, Question
from harness import Report, Session
from measure import contains, mean, words
from store import Items

BUDGETS = (250, 500, 1000, 2000)
TOP_K = (4, 6, 9, 12)
# The read whose coverage and misses the gate is judged by.
GATE_BUDGET = 1000
# A read this large shows where the first gold claim stands in the fused order; what it does not serve counts as last.
_ORDER_BUDGET = 20_000
_LADDER_BUDGETS = (500, GATE_BUDGET)
_FIRST_RUNG = "title, origin, date"
NO_HEADER = "public.no_header(jsonb)"


@dataclass
class Row:
    """A contestant at one setting, a value for each answerable question."""

    contestant: str
    setting: str
    tokens: List[int] = field(default_factory=list)
    answer: List[bool] = field(default_factory=list)
    some: List[bool] = field(default_factory=list)
    every: List[bool] = field(default_factory=list)
    recall: List[float] = field(default_factory=list)
    escalated: List[bool] = field(default_factory=list)

    def add(self, payload: str, question: "Asked", escalated: bool = False) -> None:
        text = words(payload)
        held = [contains(text, piece) for piece in question.pieces]
        self.tokens.append(measure.tokens(payload))
        self.some.append(any(held))
        self.every.append(all(held))
        self.recall.append(sum(held) / len(held))
        self.escalated.append(escalated)
        if question.question.answers:
            self.answer.append(any(contains(text, answer) for answer in question.question.answers))


@dataclass
class Asked:
    """A question with the texts of its gold: the claims in its gold spans (a span without one: its text)."""

    question: Question
    pieces: List[str]
    claims: set


@dataclass
class Gate:
    """Coverage of each question by one way of reading, and what is known of the question."""

    coverage: List[float] = field(default_factory=list)
    needs: List[bool] = field(default_factory=list)
    unanswerable: List[bool] = field(default_factory=list)
    missed: List[Optional[bool]] = field(default_factory=list)


@dataclass
class Outcome:
    """All that was measured on one set."""

    dataset: Dataset
    documents: int = 0
    claims: int = 0
    chunks: int = 0
    questions: int = 0
    rows: Dict[Tuple[str, str], Row] = field(default_factory=dict)
    gates: Dict[str, Gate] = field(default_factory=dict)
    percentiles: Dict[str, List[float]] = field(default_factory=dict)
    first_ten: Dict[str, List[bool]] = field(default_factory=dict)
    ladder: Dict[Tuple[str, str], Row] = field(default_factory=dict)
    ladder_coverage: Dict[str, List[float]] = field(default_factory=dict)
    headers: Dict[str, List[int]] = field(default_factory=dict)   # contestant: claims served, misplaced
    arms: Dict[str, int] = field(default_factory=dict)
    raw: Dict[str, List[int]] = field(default_factory=dict)       # mode: raw chunks, those whose whole text stands in claims above
    foreign: List[float] = field(default_factory=list)
    checked: int = 0

    def row(self, contestant: str, setting: str, ladder: bool = False) -> Row:
        rows = self.ladder if ladder else self.rows
        return rows.setdefault((contestant, setting), Row(contestant, setting))


def namespaces(dataset: Dataset, ladder: Sequence[str]) -> Dict[str, Tuple[Pool, bool]]:
    """The namespaces of a set: one a pool, and a second one without titles where the header ladder is measured."""
    found = {pool.name: (pool, False) for pool in dataset.pools}
    if dataset.name in ladder:
        found.update((f"{pool.name}-bare", (pool, True)) for pool in dataset.pools)
    return found


def run(session: Session, report: Report, dataset: Dataset, vectors: Dict[str, object], ladder: bool, budgets: Sequence[int]) -> Outcome:
    """Measures one set whose namespaces are filled."""
    outcome = Outcome(dataset)
    for pool in dataset.pools:
        if pool.questions:
            _Measuring(session, report, outcome, pool, vectors, budgets).run(ladder)
    return outcome


class _Measuring:
    """One pool."""

    def __init__(
        self, session: Session, report: Report, outcome: Outcome, pool: Pool, vectors: Dict[str, object], budgets: Sequence[int],
    ) -> None:
        self._session, self._report, self._outcome, self._pool = session, report, outcome, pool
        self._vectors, self._budgets = vectors, budgets
        self._claims = store.fetch(session, pool.name, "c")
        self._chunks = store.fetch(session, pool.name, "k")
        self._bodies = dict(zip(self._chunks.ids, self._chunks.bodies))
        self._documents = {document.id: document for document in pool.documents}
        self._headers = {d.id: measure.header(d.title, d.origin, d.dated, d.id) for d in pool.documents}
        self._asked = [_with_gold(question, self._documents, self._claims) for question in pool.questions]
        outcome.documents += len(pool.documents)
        outcome.claims += len(self._claims.ids)
        outcome.chunks += len(self._chunks.ids)
        outcome.questions += len(pool.questions)

    def run(self, ladder: bool) -> None:
        name = self._pool.name
        for mode in ("auto", "vector", "lexical"):
            self._report.say(f"{name}: cortex_read, {mode}")
            self._cortex(mode)
        self._report.say(f"{name}: naive retrieval, and where the gold claims stand")
        self._naive()
        self._percentiles()
        if ladder:
            self._report.say(f"{name}: header ladder")
            self._ladder()
        self._report.say(f"{name}: coalent")
        self._peer()

    def _cortex(self, mode: str) -> None:
        gate = self._outcome.gates.setdefault(f"cortex {mode}", Gate())
        before: Dict[str, list] = {}
        # Without vectors one budget shows what the arm is worth.
        for budget in self._budgets if mode != "lexical" else (GATE_BUDGET,):
            reads = self._reads(self._pool.name, budget, mode, self._headers)
            for asked in self._asked:
                read = reads[asked.question.id]
                ids = [claim[0] for claim in read["claims"]]
                if ids[:len(before.get(asked.question.id, []))] != before.get(asked.question.id, []):
                    self._report.fault(f"{asked.question.id}: what {budget} tokens serve does not begin with what a smaller budget serves")
                before[asked.question.id] = ids
                self._outcome.arms[f"{mode}: {read['arms']}"] = self._outcome.arms.get(f"{mode}: {read['arms']}", 0) + 1
                self._count_raw(mode, read)
                if asked.question.answerable:
                    row = self._outcome.row(f"cortex {mode}", str(budget))
                    row.add(read["payload"], asked, bool(read["raw"]))
                if budget == GATE_BUDGET:
                    gate.coverage.append(read["coverage"])
                    gate.needs.append(read["needs_retrieval"])
                    gate.unanswerable.append(not asked.question.answerable)
                    gate.missed.append(not row.some[-1] if asked.question.answerable else None)

    def _count_raw(self, mode: str, read: dict) -> None:
        """How much of the raw text repeats what the claims above it say already."""
        if not read["raw"]:
            return
        counts = self._outcome.raw.setdefault(mode, [0, 0])
        said = words(" ".join(claim[3] for claim in sorted(read["claims"])))
        for chunk in read["raw"]:
            counts[0] += 1
            counts[1] += not chunk["cut"] and contains(said, self._bodies[chunk["chunk_id"]])

    def _reads(self, namespace: str, budget: int, mode: str, headers: Optional[Dict[str, str]]) -> Dict[str, dict]:
        """Reads, each checked: tokens, budget, and the header that each claim stands under."""
        reads = store.read(self._session, namespace, self._pool.questions, budget, mode, vector=mode != "lexical")
        served = self._outcome.headers.setdefault("cortex", [0, 0])
        for id, read in reads.items():
            counted = measure.tokens(read["payload"])
            self._outcome.checked += 1
            if counted != read["tokens"] or counted > budget:
                self._report.fault(f"{id}: {counted} tokens in the payload, {read['tokens']} reported, {budget} allowed")
            if headers is not None:
                claims = [(claim[1], claim[3]) for claim in read["claims"]]
                served[0] += len(claims)
                served[1] += measure.misplaced(read["payload"], claims, headers)
        return reads

    def _naive(self) -> None:
        for asked in self._asked:
            if not asked.question.answerable:
                continue
            nearest = self._chunks.nearest(self._vectors[asked.question.id])
            for k in TOP_K:
                parts = [f"{self._headers[self._chunks.sources[at]]}\n{self._chunks.bodies[at]}" for at in nearest[:k]]
                self._outcome.row("naive top-k", str(k)).add("\n\n".join(parts), asked)

    def _percentiles(self) -> None:
        answerable = [asked for asked in self._asked if asked.question.answerable and asked.claims]
        fused = store.order(self._session, self._pool.name, [asked.question for asked in answerable], _ORDER_BUDGET, "auto")
        number = len(self._claims.ids)
        for asked in answerable:
            nearest = [self._claims.ids[at] for at in self._claims.nearest(self._vectors[asked.question.id])]
            for name, order in (("cosine", nearest), ("fused", fused[asked.question.id])):
                rank = next((place for place, id in enumerate(order, start=1) if id in asked.claims), number)
                self._outcome.percentiles.setdefault(name, []).append(100 * rank / number)
                self._outcome.first_ten.setdefault(name, []).append(rank <= 10)

    def _ladder(self) -> None:
        name, bare = self._pool.name, f"{self._pool.name}-bare"
        for asked, coverage in zip(self._asked, self._outcome.gates["cortex auto"].coverage[-len(self._asked):]):
            if asked.question.answerable:
                self._outcome.ladder_coverage.setdefault(_FIRST_RUNG, []).append(coverage)
        for budget in _LADDER_BUDGETS:
            self._outcome.ladder[_FIRST_RUNG, str(budget)] = self._outcome.rows["cortex auto", str(budget)]
        rungs = {
            "no header line, same vectors": (name, None, NO_HEADER),
            "[source: id], vectors without title": (bare, {id: f"[source: {id}]" for id in self._documents}, None),
        }
        for rung, (namespace, headers, function) in rungs.items():
            self._set_header(namespace, function)
            for budget in _LADDER_BUDGETS:
                reads = self._reads(namespace, budget, "auto", headers)
                for asked in self._asked:
                    if asked.question.answerable:
                        self._outcome.row(rung, str(budget), ladder=True).add(reads[asked.question.id]["payload"], asked)
                        if budget == GATE_BUDGET:
                            self._outcome.ladder_coverage.setdefault(rung, []).append(reads[asked.question.id]["coverage"])
            self._set_header(namespace, None)

    def _set_header(self, namespace: str, function: Optional[str]) -> None:
        value = "null" if function is None else f'"{function}"'
        self._session.rows(f"SELECT cortex_pool_set('{namespace}', '{{\"header\": {value}}}')")

    def _peer(self) -> None:
        questions = {asked.question.text: self._vectors[asked.question.id] for asked in self._asked}
        other = peer.Peer(self._pool.documents, self._claims, self._chunks, questions)
        headers = {
            d.id: f"[{' | '.join(part.strip() for part in (d.title, d.origin, d.dated) if part)}]" if d.title or d.origin or d.dated
            else f"## {d.id}" for d in self._pool.documents
        }
        served = self._outcome.headers.setdefault("coalent", [0, 0])
        gate = self._outcome.gates.setdefault("coalent", Gate())
        for asked in self._asked:
            reads, coverage, needs = other.get(asked.question.text, self._budgets)
            for budget, read in reads.items():
                served[0] += len(read.claims)
                served[1] += measure.misplaced(read.claims_payload, read.claims, headers)
                if asked.question.answerable:
                    row = self._outcome.row("coalent", str(budget))
                    row.add(read.payload, asked, read.payload != read.claims_payload)
                    missed = not row.some[-1]
                if budget == GATE_BUDGET:
                    gate.missed.append(missed if asked.question.answerable else None)
            gate.coverage.append(coverage)
            gate.needs.append(needs)
            gate.unanswerable.append(not asked.question.answerable)


def _with_gold(question: Question, documents: Dict[str, Document], claims: Items) -> Asked:
    pieces: List[str] = []
    ids = set()
    for span in question.gold:
        text = documents[span.document].text
        start, end = (len(text[:at].encode()) for at in (span.start, span.end))
        inside = [
            at for at, source in enumerate(claims.sources)
            if source == span.document and claims.starts[at] < end and claims.ends[at] > start
        ]
        ids.update(claims.ids[at] for at in inside)
        pieces.extend([claims.bodies[at] for at in inside] or [text[span.start:span.end]])
    return Asked(question, list(dict.fromkeys(pieces)), ids)


def foreign(outcomes: Sequence[Outcome], session: Session, vectors: Dict[str, object], each: int = 60) -> None:
    """The coverage of questions that belong to another set: a pool cannot answer them."""
    for outcome in outcomes:
        others = [question for other in outcomes if other is not outcome
                  for question in sorted(other.dataset.questions, key=lambda q: q.id)[:each] if question.answerable]
        for pool in outcome.dataset.pools[:1]:
            claims = store.fetch(session, pool.name, "c")
            outcome.foreign = [float((claims.vectors @ vectors[question.id]).max()) for question in others]


def summary(row: Row) -> Dict[str, float]:
    """The means of a row."""
    tokens, recall = mean(row.tokens), mean(row.recall)
    return {
        "tokens": tokens, "answer": mean(row.answer), "some": mean(row.some), "every": mean(row.every), "recall": recall,
        "per_thousand": 1000 * recall / tokens if tokens else float("nan"), "escalated": mean(row.escalated),
    }
