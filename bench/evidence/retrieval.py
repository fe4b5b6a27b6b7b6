#!/usr/bin/env python3
"""Retrieval of cortex_search on public sets: by words, by vector, and both, with one setting for all of them.

    python3 bench/evidence/retrieval.py --data DIR            all sets, about fifteen minutes
    python3 bench/evidence/retrieval.py --only scifact --keep
    CORTEX_BENCH_DATA=DIR python3 bench/evidence/retrieval.py --only scifact --latency-rounds 5

DIR holds a folder a set and `score.py`, which scores the runs. Lexical search of SciFact is also compared with bm25s
and tantivy. Runs in a virtual environment of its own (.cortex/evidence-venv).
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path
from typing import Dict, List, Sequence

_HERE = Path(__file__).resolve().parent
_VENV = _HERE.parent.parent / ".cortex" / "evidence-venv"
_REQUIREMENTS = _HERE / "requirements.txt"
_DATABASE = "bench_evidence"
_MODES = ("lexical", "vector", "auto")
# Chunks asked for, so that a hundred documents are among them, and documents handed to the scorer.
_CHUNKS, _DOCUMENTS = 400, 100
_QUOTES = '"“”„'


def enter_environment() -> None:
    """Makes the virtual environment if need be, and goes on in it."""
    if Path(sys.prefix).resolve() == _VENV.resolve():
        return
    stamp, wanted = _VENV / "requirements.txt", _REQUIREMENTS.read_text(encoding="utf-8")
    python = _VENV / "bin" / "python"
    if not stamp.is_file() or stamp.read_text(encoding="utf-8") != wanted:
        venv.create(_VENV, with_pip=True)
        subprocess.run([str(python), "-m", "pip", "install", "-q", "-r", str(_REQUIREMENTS)], check=True, stdin=subprocess.DEVNULL)
        stamp.write_text(wanted, encoding="utf-8")
    os.execv(str(python), [str(python), str(Path(__file__).resolve()), *sys.argv[1:]])


def main() -> int:
    """The command line."""
    sys.path[:0] = [str(_HERE.parent), str(_HERE.parent / "quality")]
    import harness
    import public_sets

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=os.environ.get("CORTEX_BENCH_DATA"), metavar="DIR",
                        help="folder of the sets (default: the environment variable CORTEX_BENCH_DATA)")
    parser.add_argument("--only", action="append", choices=list(public_sets.SETS), metavar="NAME",
                        help=f"{', '.join(public_sets.SETS)}; may be repeated (default: all)")
    parser.add_argument("--latency-rounds", type=int, default=3, metavar="N", help="rounds over all claims of SciFact (default 3)")
    parser.add_argument("--runs", type=Path, metavar="DIR", help="write the run files there")
    parser.add_argument("--keep", action="store_true", help="leave the filled database, and use one that was left")
    parser.add_argument("--cluster", type=Path, default=harness.places.STATE / "bench", metavar="DIR",
                        help="the private cluster (default .cortex/bench)")
    parser.add_argument("--as-installed", action="store_true", help="measure the extension that is installed, instead of building it")
    options = parser.parse_args()
    if not options.data or not (Path(options.data) / "score.py").is_file():
        parser.error("name the folder of the sets, with score.py in it, by --data DIR or CORTEX_BENCH_DATA")
    if options.latency_rounds < 1:
        parser.error(f"--latency-rounds {options.latency_rounds} is not 1 or more")
    return harness.guarded(lambda: measure(options))


def measure(options: argparse.Namespace) -> int:
    """Fills, searches, scores and prints."""
    import cluster
    import harness
    import public_sets

    sets = [public_sets.SETS[name](Path(options.data)) for name in options.only or public_sets.SETS]
    server = harness.open_server(options)
    report = harness.Report("retrieval", False)
    try:
        print(", ".join(f"{name} {value}" for name, value in server.describe().items()), flush=True)
        database = opened(server, options)
        fill(database, report, sets)
        with database.session() as session, tempfile.TemporaryDirectory() as folder:
            runs = options.runs or Path(folder)
            runs.mkdir(parents=True, exist_ok=True)
            print("\n| set | questions | mode | recall@5 | recall@10 | recall@20 | nDCG@10 | goal (recall@10) |\n|---|---|---|---|---|---|---|---|")
            for one in sets:
                for mode in _MODES:
                    ranked = search(session, one, mode, "without")
                    scores = scored(options, one.name, ranked, runs / f"{one.name}-{mode}.jsonl")
                    told = ""
                    if mode == "auto":
                        told = f"{one.goal:.3f}: {'met' if scores['recall@10'] >= one.goal else '**missed**'}"
                    line(one, mode, scores, told)
                if any(quote in question.text for question in one.questions for quote in _QUOTES):
                    ranked = search(session, one, "auto", "with")
                    scores = scored(options, one.name, ranked, runs / f"{one.name}-auto-quotes.jsonl")
                    line(one, "auto, quotes kept", scores, "")
            for one in sets:
                if one.name == "scifact":
                    beside_peers(session, options, report, one, runs)
        if not options.keep:
            harness.Database(server.bin_dir, cluster.Cluster(options.cluster).facts().url()).run(f"DROP DATABASE {_DATABASE} WITH (FORCE)")
    finally:
        cluster.Cluster(options.cluster).stop()
    print(f"\nload average at the end: {harness.load_average()}")
    return 0


def line(one, mode: str, scores: Dict[str, float], told: str) -> None:
    """A row of the table."""
    figures = " | ".join(f"{scores[name]:.3f}" for name in ("recall@5", "recall@10", "recall@20", "ndcg@10"))
    print(f"| {one.name} | {len(one.questions)} | {mode} | {figures} | {told} |", flush=True)


def opened(server, options):
    """The database, made anew unless one was left and is to be used."""
    import cluster
    from harness import Database

    url = cluster.Cluster(options.cluster).facts().url
    maintenance = Database(server.bin_dir, url())
    exists = bool(maintenance.run(f"SELECT 1 FROM pg_database WHERE datname = '{_DATABASE}'"))
    database = Database(server.bin_dir, url(_DATABASE))
    if not (exists and options.keep):
        maintenance.run(f"DROP DATABASE IF EXISTS {_DATABASE} WITH (FORCE);\nCREATE DATABASE {_DATABASE};")
        database.run("SET client_min_messages = warning;\nCREATE EXTENSION cortex CASCADE;\nCREATE TABLE public.loaded (name text PRIMARY KEY);")
    return database


def fill(database, report, sets) -> None:
    """Puts all sources, and waits until a worker has embedded their chunks."""
    import store
    from harness import BenchError

    key = ",".join(one.name for one in sets)
    with database.session() as session:
        loaded = session.rows("SELECT name FROM public.loaded")
        if loaded == [key]:
            return
        if loaded:
            raise BenchError(f"the database that was left holds {loaded[0]}; run once without --keep")
        for one in sets:
            report.say(f"putting {one.name}")
            for pool, documents in one.pools.items():
                store.create(session, pool)
                store.put(session, pool, documents)
        store.ask_later(session, [question for one in sets for question in one.questions])
        session.rows("SELECT cortex_work()")
        # Chunks are searched here: embedding the claims too would take three times as long and change nothing.
        session.rows("DELETE FROM cortex.claim; UPDATE cortex.document SET claim_count = 0, claim_terms = 0")
        report.say("embedding")
        with store.worker(database):
            store.wait(session, report, "embedding")
        store.keep_questions(session)
        session.rows(f"INSERT INTO public.loaded VALUES ('{key}')")
    database.settle()


def search(session, one, mode: str, quotes: str) -> Dict[str, List[str]]:
    """For each question its documents, best first: a document stands where its first chunk does. To cortex_search a
    quoted phrase is a condition, and these questions quote titles; `quotes` says "without" or "with" them."""
    from harness import BenchError, quoted

    query = "q.question" if quotes == "with" else f"translate(q.question, '{_QUOTES}', '')"
    found: Dict[str, List[str]] = {}
    for pool in one.pools:
        ids = [question.id for question in one.questions if question.pool == pool]
        if not ids:
            continue
        rows = session.rows(
            "SELECT jsonb_build_array(q.id, (SELECT jsonb_agg(s.artifact_id ORDER BY s.rank) FROM "
            f"cortex_search({query}, {'NULL' if mode == 'lexical' else 'q.e'}, {_CHUNKS}, {quoted(pool)}, {quoted(mode)}) s)) "
            f"FROM public.asked q WHERE q.id IN ({', '.join(map(quoted, ids))})"
        )
        for row in rows:
            id, artifacts = json.loads(row)
            found[id] = list(dict.fromkeys(artifacts or []))[:_DOCUMENTS]
    if len(found) != len(one.questions):
        raise BenchError(f"{len(found)} answers for {len(one.questions)} questions of {one.name}")
    return found


def scored(options, name: str, ranked: Dict[str, List[str]], path: Path) -> Dict[str, float]:
    """What `score.py` says of all questions."""
    import public_sets

    one = public_sets.SETS[name](Path(options.data))
    with path.open("w", encoding="utf-8") as file:
        for question in one.questions:
            ids = [public_sets.scored_id(name, artifact) for artifact in ranked[question.id]]
            file.write(json.dumps({"qid": question.scored_as, "ranked": ids}) + "\n")
    said = subprocess.run([sys.executable, str(Path(options.data) / "score.py"), name, str(path)],
                          check=True, capture_output=True, text=True).stdout
    return {key: float(value) for key, value in re.findall(r"([\w@]+)=([\d.]+)", said.splitlines()[0])}


def beside_peers(session, options, report, one, runs: Path) -> None:
    """Lexical search against bm25s and tantivy: quality, and time of each query with ten results."""
    import peers
    from harness import alternate, quoted

    report.say("peers")
    (documents,) = one.pools.values()
    texts = [f"{document.title}\n\n{document.text}" for document in documents]
    sides = {"bm25s": peers.with_bm25s(texts), "tantivy": peers.with_tantivy(texts)}
    for name, side in sides.items():
        ranked = {question.id: [documents[n].id for n in side(question.text, _DOCUMENTS)] for question in one.questions}
        line(one, name, scored(options, one.name, ranked, runs / f"scifact-{name}.jsonl"), "")

    def ours(question) -> float:
        return session.time(f"SELECT artifact_id, body FROM cortex_search({quoted(question.text)}, k => 10, namespace => 'scifact', mode => 'lexical')")

    def theirs(side, question) -> float:
        begun = time.perf_counter()
        side(question.text, 10)
        return 1000 * (time.perf_counter() - begun)

    times: Dict[str, List[float]] = {"ours": [], **{name: [] for name in sides}}

    def timed(name: str, one_time) -> float:
        measured = [one_time(question) for question in one.questions]
        times[name] += measured
        return statistics.median(measured)

    turns = {"ours": lambda _: timed("ours", ours)}
    for name, side in sides.items():
        turns[name] = lambda _, name=name, side=side: timed(name, lambda question: theirs(side, question))
    medians = alternate(options.latency_rounds, turns)
    print(f"\nLatency of lexical search on SciFact, {len(one.questions)} claims, ten results, {options.latency_rounds} rounds, ms:")
    for name in turns:
        print(f"  {name:8} p50 {percentile(times[name], 50):.2f}, p99 {percentile(times[name], 99):.2f}")
    for name in sides:
        ratio = statistics.median(a / b for a, b in zip(medians["ours"], medians[name]))
        goal = f" (goal at most 3: {'met' if ratio <= 3 else 'MISSED'})" if name == "tantivy" else ""
        print(f"  ours / {name}: {ratio:.2f}{goal}")


def percentile(values: Sequence[float], percent: float) -> float:
    """The harness's, by nearest rank."""
    import harness

    return harness.percentile(values, percent)


if __name__ == "__main__":
    enter_environment()
    sys.exit(main())
