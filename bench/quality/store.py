"""Cortex's side: filling namespaces, the worker that embeds, vectors fetched back, and reads."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Dict, Iterable, Iterator, List, Optional, Sequence

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import harness  # noqa: E402
from harness import BenchError, Database, Report, Session, quoted  # noqa: E402

import extension_build  # noqa: E402  (of tools/, which harness has put on the path)
import places  # noqa: E402
import setup  # noqa: E402

from datasets import Document, Question  # noqa: E402

# Questions are embedded as sources without a title, which embeds their text as it is.
_ASKED = "asked"
_GIVE_UP_SECONDS = 1800.0


@contextlib.contextmanager
def worker(database: Database) -> Iterator[None]:
    """`cortex worker` with the embedding model, meanwhile."""
    binary = extension_build.target_dir() / "release" / "cortex"
    for needed in (binary, setup.MODEL):
        if not needed.exists():
            raise BenchError(f"{needed} is missing; `python3 tools/setup.py sidecar model` makes it")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("CORTEX_", "PG"))}
    settings = {"CORTEX_DATABASE__URL": database.url, "CORTEX_MODEL__DIR": str(setup.MODEL), "CORTEX_LOG__LEVEL": "warn"}
    with tempfile.TemporaryFile("w+", encoding="utf-8") as said:
        child = subprocess.Popen([str(binary), "worker"], env={**inherited, **settings}, cwd=places.REPO,
                                 stdin=subprocess.DEVNULL, stdout=said, stderr=said)
        try:
            yield
        finally:
            ended = child.poll()
            child.terminate()
            child.wait()
            if ended is not None:
                said.seek(0)
                raise BenchError(f"`{binary} worker` ended with status {ended}: {said.read()[-500:]}")


def put(session: Session, namespace: str, documents: Iterable[Document], bare: bool = False) -> Dict[str, int]:
    """Puts documents, without their title, origin and date if `bare`. Returns the version of each."""
    versions = {}
    batch: List[Document] = []

    def flush() -> None:
        rows = ",\n".join(
            "(" + ", ".join("NULL" if value is None else quoted(value) for value in (
                document.id, document.text, *((None,) * 3 if bare else (document.title, document.origin, document.dated)),
            )) + ")" for document in batch
        )
        for line in session.rows(
            "SELECT jsonb_build_array(made ->> 'artifact_id', made -> 'version_id') FROM (VALUES\n" + rows +
            f") d (id, body, title, origin, dated), cortex_source_put(id, body, title, origin, dated, {quoted(namespace)}) made"
        ):
            id, version = json.loads(line)
            versions[id] = version
        batch.clear()

    for document in documents:
        batch.append(document)
        if len(batch) == 100:
            flush()
    if batch:
        flush()
    return versions


def create(session: Session, namespace: str) -> None:
    session.rows(f"SELECT cortex_create_namespace({quoted(namespace)})")


def ask_later(session: Session, questions: Sequence[Question]) -> None:
    """Hands the questions to the embedder."""
    create(session, _ASKED)
    put(session, _ASKED, (Document(question.id, question.text) for question in questions))


def wait(session: Session, report: Report, what: str) -> None:
    """Waits until every chunk and claim has its vector and every namespace is served by vectors."""
    begun, said = time.monotonic(), 0.0
    while True:
        waiting = session.value(
            "SELECT coalesce(sum(pending_chunk + pending_embed), 0) + count(*) FILTER (WHERE space IS NULL AND sources > 0) "
            "+ (SELECT 1000 * count(*) FROM cortex.jobs WHERE state <> 'dead') FROM cortex.namespaces"
        )
        if waiting == "0":
            return
        passed = time.monotonic() - begun
        if passed > _GIVE_UP_SECONDS:
            raise BenchError(f"{what}: not embedded within {_GIVE_UP_SECONDS:.0f} s")
        if passed > said + 15:
            said = passed
            stored = session.value("SELECT count(*) FROM cortex.emb_1") if session.value(
                "SELECT to_regclass('cortex.emb_1') IS NOT NULL") == "t" else "0"
            report.say(f"{what}: {stored} vectors after {passed:.0f} s")
        time.sleep(0.2)


def keep_questions(session: Session) -> None:
    """The questions with their vectors as a table that reads join."""
    session.rows(
        "CREATE TABLE public.asked AS SELECT s.artifact_id AS id, k.body AS question, e.embedding AS e "
        "FROM cortex.source s JOIN cortex.namespace n ON n.id = s.namespace_id "
        "JOIN cortex.source_version v ON v.source_id = s.id JOIN cortex.chunk k ON k.version_id = v.id "
        f"JOIN cortex.emb_1 e ON e.item_id = k.id WHERE n.name = {quoted(_ASKED)} AND k.start_byte = 0;\n"
        "ALTER TABLE public.asked ADD PRIMARY KEY (id)"
    )


@dataclass
class Items:
    """Claims or chunks of a namespace with their vectors, one row of `vectors` each."""

    ids: List[int]
    sources: List[str]
    starts: List[int]
    ends: List[int]
    bodies: List[str]
    vectors: "np.ndarray"

    def nearest(self, vector: "np.ndarray") -> "np.ndarray":
        """Positions, best first; ties in order of ids."""
        return np.argsort(-(self.vectors @ vector), kind="stable")


def fetch(session: Session, namespace: str, kind: str) -> Items:
    """The current claims ('c') or chunks ('k') of a namespace."""
    select = {
        "k": "SELECT i.id, i.version_id, i.start_byte, i.end_byte, i.body, i.namespace_id FROM cortex.chunk i",
        "c": "SELECT i.id, i.version_ids[1] AS version_id, i.start_bytes[1] AS start_byte, i.end_bytes[1] AS end_byte, i.body, "
             "i.namespace_id FROM cortex.claim i",
    }[kind]
    rows = [json.loads(line) for line in session.rows(
        "SELECT jsonb_build_array(i.id, s.artifact_id, i.start_byte, i.end_byte, i.body, e.embedding::text) "
        f"FROM ({select}) i JOIN cortex.namespace n ON n.id = i.namespace_id AND n.name = {quoted(namespace)} "
        "JOIN cortex.source_version v ON v.id = i.version_id AND v.closed_by IS NULL JOIN cortex.source s ON s.id = v.source_id "
        "JOIN cortex.emb_1 e ON e.item_id = i.id ORDER BY i.id"
    )]
    vectors = np.array([np.fromstring(row[5][1:-1], sep=",", dtype=np.float32) for row in rows])
    return Items(*(list(column) for column in list(zip(*rows))[:5]), unit(vectors))


def unit(vectors: "np.ndarray") -> "np.ndarray":
    """Rows of length 1."""
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def question_vectors(session: Session) -> Dict[str, "np.ndarray"]:
    """The vector of each question."""
    found = {}
    for line in session.rows("SELECT id || '|' || e::text FROM public.asked"):
        id, text = line.rsplit("|", 1)
        vector = np.fromstring(text[1:-1], sep=",", dtype=np.float32)
        found[id] = vector / np.linalg.norm(vector)
    return found


def read(
    session: Session, namespace: str, questions: Sequence[Question], budget: int, mode: str, profile: Optional[str] = None,
    vector: bool = True,
) -> Dict[str, dict]:
    """One `cortex_read` a question. `claims` are [claim_id, artifact_id, version_id, body], in serving order."""
    if not questions:
        return {}
    ids = ", ".join(quoted(question.id) for question in questions)
    lines = session.rows(
        "SELECT jsonb_build_object('id', q.id, 'payload', r.payload, 'tokens', r.tokens, 'arms', r.arms, 'coverage', r.coverage, "
        "'needs_retrieval', r.needs_retrieval, 'decision', r.decision, 'masked', r.masked, 'pending', r.pending, 'raw', r.raw -> 'chunks', 'claims', "
        "(SELECT coalesce(jsonb_agg(jsonb_build_array(c -> 'claim_id', c -> 'artifact_id', c -> 'version_id', c -> 'body') ORDER BY place), '[]') "
        "FROM jsonb_array_elements(r.claims) WITH ORDINALITY a (c, place))) "
        f"FROM public.asked q, cortex_read(q.question, {'q.e' if vector else 'NULL'}, {budget}, {quoted(namespace)}, {quoted(mode)}, "
        f"profile => {'NULL' if profile is None else quoted(profile)}) r WHERE q.id IN ({ids})"
    )
    found = {row["id"]: row for row in map(json.loads, lines)}
    if len(found) != len(questions):
        raise BenchError(f"{len(found)} reads of {namespace} for {len(questions)} questions")
    return found


def order(session: Session, namespace: str, questions: Sequence[Question], budget: int, mode: str) -> Dict[str, List[int]]:
    """The claims that a large read serves, best first."""
    ids = ", ".join(quoted(question.id) for question in questions)
    lines = session.rows(
        "SELECT jsonb_build_array(q.id, (SELECT coalesce(jsonb_agg(c -> 'claim_id' ORDER BY place), '[]') "
        "FROM jsonb_array_elements(r.claims) WITH ORDINALITY a (c, place))) "
        f"FROM public.asked q, cortex_read(q.question, q.e, {budget}, {quoted(namespace)}, {quoted(mode)}, 'context_only') r "
        f"WHERE q.id IN ({ids})"
    )
    return {id: claims for id, claims in map(json.loads, lines)}
