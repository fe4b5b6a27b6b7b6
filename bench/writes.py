#!/usr/bin/env python3
"""What binding a table costs its writers: each statement on a bound table against the same on an unbound one."""

from __future__ import annotations

import argparse
import contextlib
import statistics
import sys
from typing import Callable, Dict, Iterator, List, Optional

import corpus
import harness
from harness import Benchmark, Database, Report, Server, Session

_POOL = 20_000
_BATCH = 10_000
_CLIENTS = 8
# The trigger keeps its plan between statements; so many one-row updates show what that plan costs.
_SINGLES = 100


class Sizes:
    """How large everything is."""

    def __init__(self, small: bool) -> None:
        self.rows = 40_000 if small else 1_000_000
        self.rows_with_claims = 20_000 if small else 100_000
        self.rounds = 2 if small else 5
        self.rounds_of_all = 1 if small else 2
        self.oltp_rounds = 1 if small else 4
        self.oltp_seconds = 2 if small else 10


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--only", choices=["large", "claims"],
        help="large: 1,000,000 rows without claims; claims: 100,000 rows, without and with claims",
    )


def run(server: Server, options: argparse.Namespace, report: Report) -> None:
    sizes = Sizes(options.small)
    if options.only in (None, "large"):
        with server.database("bench_writes", options.keep) as database:
            large_table(database, sizes, report)
    if options.only in (None, "claims"):
        with server.database("bench_writes_claims", options.keep) as database:
            with_claims(database, sizes, report)


# The two set-ups

def large_table(database: Database, sizes: Sizes, report: Report) -> None:
    """Many rows, none of them chunked: the triggers alone."""
    prepare(database, ["unbound", "bound"])
    fill = f"INSERT INTO doc (title, body) SELECT title, body FROM pool, generate_series(1, {sizes.rows // _POOL})"
    report.say(f"filling two tables of {sizes.rows:,} rows")
    both(database, report, f"INSERT {sizes.rows:,} into an empty table", 1, lambda _: fill)

    # Before the first ANALYZE, when the planner knows nothing of our tables.
    both(database, report, f"UPDATE {_BATCH:,} body, nothing analysed", 2, windows(sizes.rows, set_body))
    database.settle()
    batches(database, sizes, report, goal_body=5.0)
    oltp(database, sizes, report, sizes.rows)
    one_after_many(database, sizes, report)

    for what, assignment, goal in (("body", set_body, 5.0), ("an unbound column", set_views, 1.8)):
        database.settle()
        report.say(f"updating all rows, {what}")
        every = lambda number, assignment=assignment: f"UPDATE doc SET {assignment(number)}"  # noqa: E731
        both(database, report, f"UPDATE {sizes.rows:,} {what}", sizes.rounds_of_all, every, goal=goal)


def with_claims(database: Database, sizes: Sizes, report: Report) -> None:
    """Fewer rows, once without and once with chunks and claims: cost must follow rows, not claims."""
    prepare(database, ["unbound", "bound", "claims"])
    fill = f"INSERT INTO doc (title, body) SELECT title, body FROM pool, generate_series(1, {sizes.rows_with_claims // _POOL})"
    for schema in ("unbound", "claims"):
        with database.session(f"{schema},public") as session:
            session.rows(fill)
    report.say(f"chunking {sizes.rows_with_claims:,} rows")
    database.run("SELECT cortex_work(1000000)")
    with database.session("bound,public") as session:
        session.rows(fill)
    claims = int(database.run("SELECT count(*) FROM cortex.claim")[0])
    database.settle()

    for what, assignment in (("body", set_body), ("an unbound column", set_views)):
        statement = windows(sizes.rows_with_claims, assignment)
        costs = timed(database, ["unbound", "bound", "claims"], sizes.rounds, statement)
        case = f"UPDATE {_BATCH:,} {what}"
        report.pair(f"{case}, {claims:,} claims", costs["claims"], costs["unbound"])
        report.pair(f"{case}, no claims", costs["bound"], costs["unbound"])
        report.pair(f"{case}, claims against no claims", costs["claims"], costs["bound"], goal=1.1)
    database.settle()
    rates = rates_of(database, ["bound", "claims"], sizes, "oltp_body.sql", sizes.rows_with_claims)
    report.pair(
        f"{_CLIENTS} clients, 1 row, body, claims against no claims", rates["claims"], rates["bound"],
        unit="tps", more_is_better=True, goal=1.1,
    )


def prepare(database: Database, schemas: List[str]) -> None:
    """The tables, each in a schema of its own, bound where the schema says so, and a pool of texts."""
    database.script("doc.sql")
    database.run("CREATE TABLE public.pool (n integer GENERATED ALWAYS AS IDENTITY, title text, body text)")
    database.copy("public.pool (title, body)", (row.copied() for row in corpus.Texts(1).rows(_POOL)))
    for schema in schemas:
        if schema not in ("unbound", "bound"):
            database.run(f"CREATE SCHEMA {schema};\nCREATE TABLE {schema}.doc (LIKE unbound.doc INCLUDING ALL) WITH (fillfactor = 90);")
        if schema != "unbound":
            database.run(
                f"SELECT cortex_bind('{schema}.doc', ARRAY['body']::name[], title_column => 'title', namespace => '{schema}')"
            )
    database.run("SELECT cortex_work()")  # ends the loading of the empty tables


# Statements

def set_body(number: int) -> str:
    """Every row gets a new text of the same length."""
    return f"body = overlay(body PLACING '{number:010d}' FROM 1 FOR 10)"


def set_views(_: int) -> str:
    return "views = views + 1"


def windows(rows: int, assignment: Callable[[int], str]) -> Callable[[int], str]:
    """UPDATE of a batch of rows, of others in each round."""
    def statement(number: int) -> str:
        low = number * 7919 % (rows // _BATCH) * _BATCH
        return f"UPDATE doc SET {assignment(number)} WHERE id > {low} AND id <= {low + _BATCH}"
    return statement


# Measuring

@contextlib.contextmanager
def sessions(database: Database, schemas: List[str]) -> Iterator[Dict[str, Session]]:
    """A session for each schema."""
    with contextlib.ExitStack() as stack:
        yield {schema: stack.enter_context(database.session(f"{schema},public")) for schema in schemas}


_stamp = 0


def stamp() -> int:
    """A number that no earlier statement wrote, so that an UPDATE always changes what it sets."""
    global _stamp
    _stamp += 1
    return _stamp


def timed(database: Database, schemas: List[str], rounds: int, statement: Callable[[int], str]) -> Dict[str, List[float]]:
    """Milliseconds of a statement in each schema, alternating. The statement is the same for all in a round."""
    texts = [statement(stamp()) for _ in range(rounds)]
    with sessions(database, schemas) as opened:
        def side(session: Session) -> Callable[[int], float]:
            return lambda number: session.time(texts[number - 1])
        return harness.alternate(rounds, {schema: side(session) for schema, session in opened.items()})


def both(
    database: Database, report: Report, case: str, rounds: int, statement: Callable[[int], str], goal: Optional[float] = None,
) -> None:
    costs = timed(database, ["unbound", "bound"], rounds, statement)
    report.pair(case, costs["bound"], costs["unbound"], goal=goal)


def batches(database: Database, sizes: Sizes, report: Report, goal_body: float) -> None:
    """Ten thousand rows by one statement."""
    rounds = sizes.rounds
    both(database, report, f"UPDATE {_BATCH:,} body", rounds, windows(sizes.rows, set_body), goal=goal_body)
    both(database, report, f"UPDATE {_BATCH:,} an unbound column", rounds, windows(sizes.rows, set_views), goal=2.0)
    insert = f"INSERT INTO doc (title, body) SELECT title, body FROM pool WHERE n <= {_BATCH}"
    both(database, report, f"INSERT {_BATCH:,}", rounds, lambda _: insert)


def oltp(database: Database, sizes: Sizes, report: Report, rows: int) -> None:
    """One row a transaction, many clients; once more while changes are being sealed, as a worker does."""
    for what, script, goal in (("body", "oltp_body.sql", 1.8), ("an unbound column", "oltp_views.sql", 1.4)):
        database.settle()
        report.say(f"{_CLIENTS} clients, {what}")
        rates = rates_of(database, ["unbound", "bound"], sizes, script, rows)
        report.pair(f"{_CLIENTS} clients, 1 row, {what}", rates["bound"], rates["unbound"], unit="tps", more_is_better=True, goal=goal)
    database.settle()
    with database.session() as worker, worker.repeating("SELECT cortex_seal()", 0.03):
        rates = rates_of(database, ["unbound", "bound"], sizes, "oltp_body.sql", rows)
    report.pair(
        f"{_CLIENTS} clients, 1 row, body, while changes are sealed", rates["bound"], rates["unbound"],
        unit="tps", more_is_better=True, goal=1.8,
    )


def rates_of(database: Database, schemas: List[str], sizes: Sizes, script: str, rows: int) -> Dict[str, List[float]]:
    def side(schema: str) -> Callable[[int], float]:
        return lambda _: database.pgbench(
            script, f"{schema},public", clients=_CLIENTS, seconds=sizes.oltp_seconds, variables={"rows": rows}
        )
    return harness.alternate(sizes.oltp_rounds, {schema: side(schema) for schema in schemas})


def one_after_many(database: Database, sizes: Sizes, report: Report) -> None:
    """A plan made for many rows must not be kept for one, nor the other way round."""
    after: List[float] = []
    fresh: List[float] = []
    first_after: List[float] = []
    first_fresh: List[float] = []
    batch = windows(sizes.rows, set_body)

    def one(number: int) -> str:
        return f"UPDATE doc SET {set_body(stamp())} WHERE id = {number * 104_729 % sizes.rows + 1}"

    for number in range(1, sizes.rounds + 1):
        for seen, firsts, begin in ((after, first_after, batch(stamp())), (fresh, first_fresh, None)):
            with database.session("bound,public") as session:
                session.rows("SET synchronous_commit = off")  # the disk's share would hide the plan's
                if begin:
                    session.rows(begin)
                costs = [session.time(one(number * _SINGLES + n)) for n in range(_SINGLES)]
            firsts.append(costs[0])
            seen.append(statistics.median(costs))
    report.pair(f"UPDATE 1 body after {_BATCH:,} against a fresh session", after, fresh, goal=2.0)
    report.pair("the first of them", first_after, first_fresh, goal=2.0)


BENCHMARK = Benchmark("writes", "UPDATE and INSERT of bound rows against the same on an unbound table", add_options, run)

if __name__ == "__main__":
    sys.exit(harness.main(BENCHMARK))
