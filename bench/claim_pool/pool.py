"""Our side: a database with the claims in it, loaded through the product's own path, and what is measured of it."""

from __future__ import annotations

import subprocess
from typing import Dict, List, Tuple

import data
import harness
from harness import Database, Report, Session

# Tokens that more than forty claims of this benchmark need.
_EXACT_BUDGET = 1_800
_SETTLED = "SELECT count(*) FROM cortex.job"


class Pool:
    """The claims of `given` in namespace default, vectors stored, indexes built, all sealed."""

    def __init__(self, database: Database, given: data.Data, report: Report, reuse: bool = False, indexed: bool = True) -> None:
        self._database = database
        self._given = given
        self._indexed = indexed
        self.claims = len(given.claims)
        self.questions = len(given.questions)
        if reuse:
            self._restore(report)
        else:
            self._load(report)
        self._session = database.session()
        self._literals = [data.literal(vector) for vector in given.questions]

    def close(self) -> None:
        self._session.close()

    # Loading

    def _load(self, report: Report) -> None:
        database, given = self._database, self._given
        database.script("claim_pool.sql")
        database.copy("public.given_source", (f"{n}\t{given.body(n)}" for n in range(given.sources)))
        copy_vectors(database, "public.question", given.questions, 0)
        report.say("chunking")
        database.run("CALL put_all()")
        database.run("SELECT cortex_work(1000000)")
        counts = database.run(
            "SELECT count(*), count(DISTINCT unit_id), min(ordinal), max(ordinal) FROM cortex.claim"
        )[0]
        if counts != f"{self.claims}|{given.sources}|1|{data.PER_SOURCE}":
            raise harness.BenchError(f"{self.claims} sentences in {given.sources} sources became {counts} claims, units, ordinals")
        report.say("storing vectors")
        copy_vectors(database, "public.given_vector", given.claims, 0)
        copy_vectors(database, "public.given_vector", given.chunks, self.claims)
        database.run("ANALYZE")
        database.run("SELECT cortex_space_use('default', cortex_space_register('synthetic', '1', 'by rule', 384))")
        with database.session() as session:
            where = "FROM pg_indexes WHERE tablename = 'emb_1' AND indexdef LIKE '%USING hnsw%'"
            indexes = session.rows(f"SELECT indexdef {where}")
            for name in session.rows(f"SELECT indexname {where}"):
                session.rows(f"DROP INDEX cortex.{name}")
            session.rows(f"CALL embed_all({self.claims})")
            if self._indexed:
                report.say("building the indexes")
                session.rows("SET maintenance_work_mem = '3GB'")
                for index in indexes:
                    session.rows(index)
        database.run("SELECT cortex_work(1000000)")
        if self._indexed:
            database.run("ANALYZE")
            measured = database.run("SELECT cortex_index_measure('default')")[0]
            report.say(f"the index as measured: {measured}")
        if database.run(_SETTLED) != ["0"]:
            raise harness.BenchError("work is left after loading")
        database.settle()

    def _restore(self, report: Report) -> None:
        """Takes back what an earlier run changed, by the same path."""
        database = self._database
        if database.run("SELECT count(*) FROM given_source") != [str(self._given.sources)]:
            raise harness.BenchError("the database that was kept holds another number of sources: run without --reuse")
        report.say("putting changed sources back")
        database.run("TRUNCATE question")
        copy_vectors(database, "public.question", self._given.questions, 0)
        database.run("CALL put_all()")
        database.run(f"CALL embed_all({self.claims})")
        database.run("SELECT cortex_work(1000000)")
        database.settle()

    # Reads

    def _statement(self, question: int, columns: str = "payload, tokens", budget: int = 1000) -> str:
        number = question % self.questions
        return f"SELECT {columns} FROM cortex_read('question {number}', {self._literals[number]}, {budget}, mode => 'vector')"

    def read(self, question: int) -> float:
        return self._session.time(self._statement(question))

    def served(self) -> float:
        """Claims in the payload, of the first twenty questions."""
        counts = [int(self._session.value(self._statement(n, "jsonb_array_length(claims)"))) for n in range(20)]
        decisions = {self._session.value(self._statement(n, "decision")) for n in range(20)}
        if decisions != {"serve"}:
            raise harness.BenchError(f"reads that should be served from the pool were {decisions}")
        return sum(counts) / len(counts)

    def first_read(self, question: int) -> float:
        """The first statement of a new connection."""
        with self._database.session() as session:
            return session.time(self._statement(question))

    def exactness(self, questions: range, top: int) -> Tuple[float, List[float]]:
        """The share of reads whose best `top` claims are those of an exact scan, and the share of claims in each.

        The budget is a little more than so many claims need, so that the read looks no deeper than one of its size
        does. The exact scan scores as reads do; the quantised question stands in the receipt.
        """
        equal = 0
        shares = []
        self._session.rows("CREATE TEMPORARY TABLE asked (claims jsonb, quantised bytea)")
        for number in questions:
            columns = "claims, decode(receipt::jsonb ->> 'query_vector', 'hex')"
            self._session.rows(f"TRUNCATE asked; INSERT INTO asked {self._statement(number, columns, _EXACT_BUDGET)}")
            ours = self._session.rows(
                "SELECT c ->> 'claim_id' FROM asked, jsonb_array_elements(claims) c "
                f"ORDER BY (c ->> 'score')::bigint DESC, (c ->> 'claim_id')::bigint LIMIT {top}"
            )
            exact = self._session.rows(
                "SELECT e.item_id FROM cortex.emb_1 e JOIN cortex.source_version v ON v.id = e.version_id AND v.closed_by IS NULL "
                "WHERE e.target = 'c' ORDER BY cortex._vector_score(e.embedding, (SELECT quantised FROM asked)) DESC, e.item_id "
                f"LIMIT {top}"
            )
            if len(ours) != top or len(exact) != top:
                raise harness.BenchError(f"{len(ours)} and {len(exact)} claims where {top} were expected")
            equal += ours == exact
            shares.append(len(set(ours) & set(exact)) / top)
        return equal / len(shares), shares

    def reads_per_second(self, clients: int, seconds: int) -> float:
        return self._database.pgbench("claim_pool_read.sql", "public", clients=clients, seconds=seconds, variables={"questions": self.questions})

    # Changes

    def change(self, source: int) -> None:
        """A new text for a source, chunked, its vectors stored: everything but the seal, which a worker makes later."""
        body = self._given.body(source).rsplit(". ", 1)[0] + ". The last word on it is new now."
        self._session.rows(f"SELECT put({source}, {harness.quoted(body)})")
        self._session.rows(f"CALL embed_all({self.claims})")

    def notice(self, source: int) -> float:
        return self._session.time(f"SELECT cortex_source_changed('source-{source}')")

    def seal(self) -> None:
        self._database.run("SELECT cortex_work(1000000)")
        self._database.settle()

    # Sizes

    def sizes(self) -> Dict[str, int]:
        """Bytes on disk: the vectors' table, its HNSW index of claims, and everything in schema cortex."""
        rows = self._database.run(
            "SELECT pg_relation_size('cortex.emb_1'), pg_relation_size('cortex.emb_1_claim_hnsw'), "
            "(SELECT sum(pg_total_relation_size(oid)) FROM pg_class WHERE relnamespace = 'cortex'::regnamespace AND relkind = 'r')"
        )[0].split("|")
        return dict(zip(("vectors", "index", "all"), map(int, rows)))


def copy_vectors(database: Database, table: str, vectors: "data.numpy.ndarray", first: int) -> None:
    """COPY in binary: as text it would take minutes."""
    child = subprocess.Popen(
        [str(database.bin_dir / "psql"), "-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", database.url,
         "-c", f"COPY {table} FROM STDIN (FORMAT binary)"], stdin=subprocess.PIPE,
    )
    assert child.stdin is not None
    for part in data.copied(vectors, first):
        child.stdin.write(part)
    child.stdin.close()
    if child.wait() != 0:
        raise harness.BenchError(f"COPY {table} failed")
