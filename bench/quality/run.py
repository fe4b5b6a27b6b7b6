#!/usr/bin/env python3
"""What gold the payloads of cortex_read hold, beside plain top-k retrieval and beside coalent, on public sets.

    python3 bench/quality/run.py --data DIR               all sets, about half an hour; writes RESULTS.md
    python3 bench/quality/run.py --only hotpotqa100       one set; prints, writes nothing
    CORTEX_BENCH_DATA=DIR python3 bench/quality/run.py --keep

DIR holds a folder a set: multihoprag500, musique100, hotpotqa100, locomo, beam100k. No model judges: a span is
contained in a payload, or it is not. Runs in a virtual environment of its own (.cortex/quality-venv).
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
import venv
from pathlib import Path

_HERE = Path(__file__).resolve().parent
_VENV = _HERE.parent.parent / ".cortex" / "quality-venv"
_REQUIREMENTS = _HERE / "requirements.txt"
_DATABASE = "bench_quality"


def enter_environment() -> None:
    """Makes the virtual environment if need be, and goes on in it."""
    if Path(sys.prefix).resolve() == _VENV.resolve():
        return
    python = _VENV / "bin" / "python"
    stamp = _VENV / "requirements.txt"
    wanted = _REQUIREMENTS.read_text(encoding="utf-8")
    if not stamp.is_file() or stamp.read_text(encoding="utf-8") != wanted:
        venv.create(_VENV, with_pip=True)
        subprocess.run([str(python), "-m", "pip", "install", "-q", "-r", str(_REQUIREMENTS)], check=True, stdin=subprocess.DEVNULL)
        stamp.write_text(wanted, encoding="utf-8")
    os.execv(str(python), [str(python), str(Path(__file__).resolve()), *sys.argv[1:]])


def main() -> int:
    # After enter_environment: these need what it installs.
    import datasets
    sys.path.insert(0, str(_HERE.parent))
    import harness

    names = [*datasets.SETS, "beam100k"]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=os.environ.get("CORTEX_BENCH_DATA"), metavar="DIR",
                        help="folder of the sets (default: the environment variable CORTEX_BENCH_DATA)")
    parser.add_argument("--only", action="append", choices=names, metavar="NAME", help=f"{', '.join(names)}; may be repeated (default: all)")
    parser.add_argument("--sample", type=int, default=300, metavar="N", help="questions of each set at most, chosen by a fixed seed; 0: all (default 300)")
    parser.add_argument("--conversations", type=int, default=0, metavar="N", help="conversations of LoCoMo at most; 0: all five (default)")
    parser.add_argument("--chats", type=int, default=0, metavar="N", help="chats of BEAM at most, the shortest ones; 0: all ten (default)")
    parser.add_argument("--no-ladder", action="store_true", help="leave out the header ladder, which embeds two sets a second time")
    parser.add_argument("--keep", action="store_true", help="leave the filled database, and use one that was left")
    parser.add_argument("--write", action="store_true", help="write RESULTS.md also when only some sets ran")
    parser.add_argument("--cluster", type=Path, default=harness.places.STATE / "bench", metavar="DIR", help="the private cluster (default .cortex/bench)")
    parser.add_argument("--as-installed", action="store_true", help="measure the extension that is installed, instead of building it")
    options = parser.parse_args()
    if not options.data or not Path(options.data).is_dir():
        parser.error("name the folder of the sets by --data DIR or CORTEX_BENCH_DATA")
    for name in ("sample", "conversations", "chats"):
        if getattr(options, name) < 0:
            parser.error(f"--{name} {getattr(options, name)} is negative")
    return harness.guarded(lambda: measure_all(options))


def measure_all(options: argparse.Namespace) -> int:
    """Fills, measures, prints and writes."""
    import cluster
    import datasets
    import harness
    import results

    chosen = options.only or [*datasets.SETS, "beam100k"]
    folder = Path(options.data)
    sets = [datasets.SETS[name](folder / name) for name in datasets.SETS if name in chosen]
    for dataset in sets:
        if dataset.name == "locomo" and options.conversations:
            # The shortest ones.
            dataset.pools = sorted(dataset.pools, key=lambda pool: (len(pool.documents), pool.name))[:options.conversations]
    chats, left_out = datasets.beam(folder / "beam100k") if "beam100k" in chosen else ([], 0)
    if options.chats:
        chats = sorted(chats, key=lambda chat: (sum(len(message.text) for message in chat.messages), chat.name))[:options.chats]
    server = harness.open_server(options)
    report = harness.Report("quality", False)
    begun = time.monotonic()
    try:
        machine = server.describe()
        database = opened(server, options)
        found = measure_sets(database, options, report, sets, chats, left_out)
    finally:
        cluster.Cluster(options.cluster).stop()
    machine["load_average_at_end"] = harness.load_average()
    machine["minutes"] = f"{(time.monotonic() - begun) / 60:.1f}"
    machine["questions_per_set_at_most"] = str(options.sample or "all")
    machine["conversations_of_locomo"] = str(options.conversations or "all")
    machine["chats_of_beam"] = str(options.chats or "all")
    text = results.text(machine, *found, report.faults)
    print(text)
    if options.write or not options.only:
        (_HERE / "RESULTS.md").write_text(text, encoding="utf-8")
    return 1 if report.faults else 0


def opened(server, options):
    """The database, made anew unless one was left and is to be used."""
    import cluster
    from harness import Database

    url = cluster.Cluster(options.cluster).facts().url
    maintenance = Database(server.bin_dir, url())
    exists = bool(maintenance.run(f"SELECT FROM pg_database WHERE datname = '{_DATABASE}'"))
    database = Database(server.bin_dir, url(_DATABASE))
    if not (exists and options.keep):
        maintenance.run(f"DROP DATABASE IF EXISTS {_DATABASE} WITH (FORCE);\nCREATE DATABASE {_DATABASE};")
        database.run(
            "SET client_min_messages = warning;\nCREATE EXTENSION cortex CASCADE;\n"
            "CREATE TABLE public.loaded (name text PRIMARY KEY);\n"
            "CREATE FUNCTION public.no_header(jsonb) RETURNS text LANGUAGE sql IMMUTABLE AS $$ SELECT ''::text $$;"
        )
    return database


def measure_sets(database, options, report, sets, chats, left_out):
    """Everything that needs the database."""
    import contest
    import store
    import updates

    key = ("bare " if ladder_sets(options) else "") + ",".join(pool.name for dataset in sets for pool in dataset.pools) + ",".join(["", *(chat.name for chat in chats)])
    with database.session() as session:
        if session.value(f"SELECT count(*) FROM public.loaded WHERE name = '{key}'") == "0":
            if session.value("SELECT count(*) FROM public.loaded") != "0":
                raise store.BenchError("the database that was left holds other sets; run once without --keep")
            fill(session, database, report, sets, chats, ladder_sets(options))
            session.rows(f"INSERT INTO public.loaded VALUES ('{key}')")
            database.settle()
        vectors = store.question_vectors(session)
        outcomes = []
        for dataset in sets:
            dataset.sample(options.sample)
            outcomes.append(contest.run(session, report, dataset, vectors, dataset.name in ladder_sets(options), contest.BUDGETS))
        if len(outcomes) > 1:
            contest.foreign(outcomes, session, vectors)
        replaced = None
        if chats:
            with store.worker(database):
                replaced = updates.run(session, report, chats, left_out, vectors)
    if not options.keep:
        database_dropped(options, database)
    return outcomes, replaced


# Sets on which the header ladder is measured: a second namespace of each, without titles, is embedded for it.
LADDER = ("hotpotqa100", "multihoprag500")


def ladder_sets(options):
    """The sets on which the header ladder is measured in this run."""
    return () if options.no_ladder else LADDER


def fill(session, database, report, sets, chats, ladder) -> None:
    """Puts all sources, and waits until a worker has embedded them."""
    import contest
    import store
    import updates

    report.say("putting the sources")
    store.ask_later(session, [question for dataset in sets for question in dataset.questions] + updates.questions(chats))
    for dataset in sets:
        for name, (pool, bare) in contest.namespaces(dataset, ladder).items():
            store.create(session, name)
            store.put(session, name, pool.documents, bare)
    updates.fill(session, chats)
    report.say("embedding")
    with store.worker(database):
        store.wait(session, report, "embedding")
    store.keep_questions(session)


def database_dropped(options, database) -> None:
    """Drops the database once all sessions are closed."""
    import cluster
    from harness import Database

    Database(database.bin_dir, cluster.Cluster(options.cluster).facts().url()).run(f"DROP DATABASE {_DATABASE} WITH (FORCE);")


if __name__ == "__main__":
    enter_environment()
    sys.exit(main())
