"""What the benchmarks share: a server of their own, sessions that time statements, and reports of ratios.

Two sides are always measured in one run and alternate, because absolute times of a shared machine mean little.
A ratio is our cost divided by the peer's: 1 is equal, 2 is twice as slow.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import math
import os
import re
import secrets
import statistics
import subprocess
import sys
import threading
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Callable, Dict, Iterable, Iterator, List, Optional, Sequence, Tuple

HERE = Path(__file__).resolve().parent
SQL = HERE / "sql"
sys.path.insert(0, str(HERE.parent / "tools"))

import cluster  # noqa: E402
import embedded_postgres  # noqa: E402
import places  # noqa: E402
import setup as setting_up  # noqa: E402
from places import SetupError  # noqa: E402
from progress import Progress  # noqa: E402

# Autovacuum would start in the middle of a side; each benchmark vacuums and analyses between its rounds
# instead. The larger buffers and WAL keep checkpoints out of the short measurements. All else is default.
SETTINGS = {
    "autovacuum": "off",
    "shared_buffers": "1GB",
    "max_wal_size": "16GB",
    "checkpoint_timeout": "30min",
    "maintenance_work_mem": "512MB",
    "log_min_messages": "warning",
}


_CASE_WIDTH = 72


class BenchError(Exception):
    """A benchmark cannot go on; the text says why."""


# Sessions

class Session:
    """One database session: a psql child that stays connected and measures each statement itself."""

    def __init__(self, program: Path, url: str, search_path: str) -> None:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
        environment["PGOPTIONS"] = f"-c search_path={search_path}"
        self._child = subprocess.Popen(
            [str(program), "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-d", url],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, encoding="utf-8", env=environment,
        )
        self._mark = f"end-{secrets.token_hex(8)}"
        self.rows("\\timing on")

    def rows(self, sql: str) -> List[str]:
        """Runs statements and returns their output, a line for each row, columns parted by `|`."""
        return self._run(sql)[0]

    def value(self, sql: str) -> str:
        """The only value of a query."""
        found = self.rows(sql)
        if len(found) != 1:
            raise BenchError(f"{len(found)} rows where one was expected: {_shorten(sql)}")
        return found[0]

    def time(self, sql: str) -> float:
        """Runs statements and returns how long psql waited for their results, in milliseconds."""
        return sum(self._run(sql)[1])

    def timed(self, sql: str) -> Tuple[List[str], List[float]]:
        """The output, and the time of each statement."""
        return self._run(sql)

    def _run(self, sql: str) -> Tuple[List[str], List[float]]:
        assert self._child.stdin is not None and self._child.stdout is not None
        end = "" if sql.lstrip().startswith("\\") or sql.rstrip().endswith(";") else ";"
        with contextlib.suppress(BrokenPipeError):
            self._child.stdin.write(f"{sql}{end}\n\\echo {self._mark}\n")
            self._child.stdin.flush()
        lines: List[str] = []
        times: List[float] = []
        for line in self._child.stdout:
            line = line.rstrip("\n")
            if line == self._mark:
                return lines, times
            timed = re.fullmatch(r"Time: ([\d.]+) ms(?: \(.*\))?", line)
            if timed:
                times.append(float(timed.group(1)))
            else:
                lines.append(line)
        raise BenchError(f"psql ended after `{_shorten(sql)}`:\n" + "\n".join(lines[-5:]))

    @contextlib.contextmanager
    def repeating(self, sql: str, pause: float) -> Iterator[None]:
        """Meanwhile runs a statement again and again with a pause in seconds, in this session."""
        done = threading.Event()
        failures: List[BenchError] = []

        def repeat() -> None:
            try:
                while not done.wait(pause):
                    self.rows(sql)
            except BenchError as error:
                failures.append(error)

        thread = threading.Thread(target=repeat, daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()
        if failures:
            raise failures[0]

    def close(self) -> None:
        """Ends the session and waits for psql."""
        assert self._child.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._child.stdin.close()
        self._child.wait()

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _shorten(sql: str) -> str:
    text = " ".join(sql.split())
    return text if len(text) <= 160 else text[:160] + " ..."


def quoted(text: str) -> str:
    """An SQL literal."""
    return "'" + text.replace("'", "''") + "'"


# Databases and servers

class Database:
    """One database with the extension in it."""

    def __init__(self, bin_dir: Path, url: str) -> None:
        self.bin_dir = bin_dir
        self.url = url

    def session(self, search_path: str = "public") -> Session:
        """A new session."""
        return Session(self.bin_dir / "psql", self.url, search_path)

    def run(self, sql: str) -> List[str]:
        """Runs statements in a session of their own."""
        with self.session() as session:
            return session.rows(sql)

    def script(self, name: str) -> None:
        """Runs a file of `bench/sql`."""
        self.run((SQL / name).read_text(encoding="utf-8"))

    def copy(self, target: str, lines: Iterable[str]) -> None:
        """COPY into `target` from lines in COPY's text format."""
        child = subprocess.Popen(
            [str(self.bin_dir / "psql"), "-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", self.url, "-c", f"COPY {target} FROM STDIN"],
            stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True, encoding="utf-8",
        )
        assert child.stdin is not None and child.stderr is not None
        with contextlib.suppress(BrokenPipeError):
            for line in lines:
                child.stdin.write(line)
                child.stdin.write("\n")
        with contextlib.suppress(BrokenPipeError):
            child.stdin.close()
        said = child.stderr.read()
        if child.wait() != 0:
            raise BenchError(f"COPY {target}: {said.strip()}")

    def settle(self) -> None:
        """Vacuums, analyses and checkpoints, so that a side does not pay for what ran before it."""
        self.run("VACUUM (ANALYZE);\nCHECKPOINT;")

    def pgbench(self, script: str, search_path: str, *, clients: int, seconds: int, variables: Dict[str, int]) -> float:
        """Transactions a second of `script` (a file of `bench/sql`) with so many clients."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
        environment["PGOPTIONS"] = f"-c search_path={search_path}"
        done = subprocess.run(
            [str(self.bin_dir / "pgbench"), "-n", "-M", "prepared", "-c", str(clients), "-j", "2", "-T", str(seconds),
             *(f"-D{name}={value}" for name, value in variables.items()), "-f", str(SQL / script), self.url],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, env=environment,
        )
        failed = re.search(r"number of failed transactions: (\d+)", done.stdout)
        rate = re.search(r"^tps = ([\d.]+)", done.stdout, re.MULTILINE)
        if done.returncode != 0 or not rate or (failed and failed.group(1) != "0"):
            raise BenchError(
                f"pgbench {script} ended with status {done.returncode}: {done.stderr.strip()}\n{done.stdout.strip()}"
            )
        return float(rate.group(1))


class Server:
    """The private cluster of the benchmarks."""

    def __init__(self, facts: cluster.Facts, profile: str) -> None:
        self._facts = facts
        self.profile = profile
        self.bin_dir = Path(facts.bin_dir)

    @contextlib.contextmanager
    def database(self, name: str, keep: bool = False) -> Iterator[Database]:
        """A fresh database with the extension, dropped afterwards unless it is to be kept."""
        maintenance = Database(self.bin_dir, self._facts.url())
        maintenance.run(f"DROP DATABASE IF EXISTS {name} WITH (FORCE);\nCREATE DATABASE {name};")
        made = Database(self.bin_dir, self._facts.url(name))
        made.run("SET client_min_messages = warning;\nCREATE EXTENSION cortex CASCADE;")
        try:
            yield made
        finally:
            if not keep:
                maintenance.run(f"DROP DATABASE {name} WITH (FORCE);")

    def kept(self, name: str) -> Optional[Database]:
        """A database that an earlier run kept, or none."""
        maintenance = Database(self.bin_dir, self._facts.url())
        there = maintenance.run(f"SELECT FROM pg_database WHERE datname = '{name}'")
        return Database(self.bin_dir, self._facts.url(name)) if there else None

    def describe(self) -> Dict[str, str]:
        """Versions, machine and load, as they belong to any figure."""
        with self.database("bench_versions") as database, database.session() as session:
            versions = {
                "postgresql": session.value("SHOW server_version"),
                "pgvector": session.value("SELECT extversion FROM pg_extension WHERE extname = 'vector'"),
                "cortex": session.value("SELECT extversion FROM pg_extension WHERE extname = 'cortex'"),
                "fsync": session.value("SHOW fsync"),
            }
        return {
            **versions,
            "extension_profile": self.profile,
            "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
            "cores": str(os.cpu_count()),
            "load_average": load_average(),
        }


def load_average() -> str:
    """Load averages of 1, 5 and 15 minutes: how busy others kept the machine."""
    return " ".join(f"{load:.1f}" for load in os.getloadavg())


# Measuring

def alternate(rounds: int, sides: Dict[str, Callable[[int], float]]) -> Dict[str, List[float]]:
    """Runs every side once a round, in an order that turns with each round. A side gets the round's number,
    from 1, and answers with its cost."""
    names = list(sides)
    measured: Dict[str, List[float]] = {name: [] for name in names}
    for number in range(1, rounds + 1):
        turn = (number - 1) % len(names)
        for name in names[turn:] + names[:turn]:
            measured[name].append(sides[name](number))
    return measured


def percentile(values: Sequence[float], percent: float) -> float:
    """The nearest-rank percentile."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(percent / 100 * len(ordered)) - 1)]


@dataclass
class Figure:
    """One measured case: our value, the peer's, and the ratio of costs with its spread over the rounds."""

    case: str
    unit: str
    ours: float
    peer: Optional[float] = None
    ratio: Optional[float] = None
    spread: Optional[Tuple[float, float]] = None
    rounds: int = 1
    goal: Optional[float] = None
    note: str = ""


@dataclass
class Report:
    """The figures of one benchmark, printed as they come in."""

    bench: str
    as_json: bool
    figures: List[Figure] = field(default_factory=list)
    faults: List[str] = field(default_factory=list)

    def say(self, text: str) -> None:
        """What is being done. Goes to standard error, so that standard output holds figures alone."""
        print(f"[{time.strftime('%H:%M:%S')} load {os.getloadavg()[0]:.1f}] {self.bench}: {text}", file=sys.stderr, flush=True)

    def pair(
        self, case: str, ours: Sequence[float], peer: Sequence[float], *, unit: str = "ms",
        more_is_better: bool = False, goal: Optional[float] = None, note: str = "",
    ) -> Figure:
        """Two sides of the same rounds: medians, and the median of the rounds' ratios."""
        ratios = [(theirs / our if more_is_better else our / theirs) for our, theirs in zip(ours, peer)]
        return self.add(Figure(
            case, unit, statistics.median(ours), statistics.median(peer), statistics.median(ratios),
            (min(ratios), max(ratios)), len(ratios), goal, note,
        ))

    def value(self, case: str, value: float, unit: str, *, rounds: int = 1, note: str = "") -> Figure:
        """A value that has no peer."""
        return self.add(Figure(case, unit, value, rounds=rounds, note=note))

    def fault(self, text: str) -> None:
        """Something that must never happen did: the run ends with a non-zero status."""
        self.faults.append(text)
        print(f"FAULT {self.bench}: {text}", file=sys.stderr, flush=True)

    def add(self, figure: Figure) -> Figure:
        self.figures.append(figure)
        if self.as_json:
            print(json.dumps({"bench": self.bench, **asdict(figure)}), flush=True)
        else:
            print(_line(figure), flush=True)
        return figure


def _line(figure: Figure) -> str:
    text = f"{figure.case:<{_CASE_WIDTH}} {_number(figure.ours):>10}"
    if figure.ratio is not None and figure.peer is not None and figure.spread is not None:
        low, high = figure.spread
        text += f" / {_number(figure.peer):>10} {figure.unit:<8} x{figure.ratio:.2f} ({low:.2f}-{high:.2f}, {figure.rounds} rounds)"
    else:
        text += f" {figure.unit}"
    if figure.goal is not None and figure.ratio is not None:
        text += f"  goal <= {figure.goal:g}: {'met' if figure.ratio <= figure.goal else 'MISSED'}"
    return text + (f"  [{figure.note}]" if figure.note else "")


def _number(value: float) -> str:
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.3g}"


# Command line

@dataclass(frozen=True)
class Benchmark:
    """What a script measures: `run` gets a server, the options and a report."""

    name: str
    purpose: str
    add_options: Callable[[argparse.ArgumentParser], None]
    run: Callable[[Server, argparse.Namespace, Report], None]


def common_options(parser: argparse.ArgumentParser) -> None:
    """Options of every script."""
    parser.add_argument("--json", action="store_true", help="one JSON object a line: the machine first, then each figure")
    parser.add_argument("--small", action="store_true", help="small sizes: shows that it runs, the figures mean little")
    parser.add_argument("--keep", action="store_true", help="leave the databases for a look; the next run replaces them")
    parser.add_argument(
        "--cluster", type=Path, default=places.STATE / "bench", metavar="DIR", help="the private cluster (default .cortex/bench)"
    )
    parser.add_argument(
        "--as-installed", action="store_true",
        help="measure the extension that is installed, whatever its profile, instead of building it in release profile",
    )


def open_server(options: argparse.Namespace) -> Server:
    """Builds and installs the extension in release profile, and starts the private cluster with fsync on."""
    progress = Progress(out=sys.stderr)
    setup = setting_up.Setup(progress, [embedded_postgres.EMBEDDED_MAJORS[0]])
    if not options.as_installed:
        with setting_up.one_at_a_time(progress):
            setup.extension()
    installation = setup.postgres()[0]
    with progress.step("cluster", "starting PostgreSQL") as step:
        facts = cluster.Cluster(options.cluster, say=step.say).create(installation, fsync=True, settings=SETTINGS)
        step.detail = f"PostgreSQL {facts.server_version} in {options.cluster}, port {facts.port}"
    return Server(facts, "as installed" if options.as_installed else "release")


def run_all(benchmarks: Sequence[Benchmark], options: argparse.Namespace) -> int:
    """Runs benchmarks one after another and stops the server. Returns the exit status."""
    server = open_server(options)
    reports = []
    try:
        facts = server.describe()
        print(json.dumps({"machine": facts}) if options.json else ", ".join(f"{k} {v}" for k, v in facts.items()), flush=True)
        for benchmark in benchmarks:
            report = Report(benchmark.name, options.json)
            if not options.json:
                print(f"\n{benchmark.name}: {benchmark.purpose}\n{'':<{_CASE_WIDTH}} {'ours':>10} / {'peer':>10}", flush=True)
            reports.append(report)
            benchmark.run(server, options, report)
    finally:
        cluster.Cluster(options.cluster).stop()
    print(json.dumps({"load_average_at_end": load_average()}) if options.json else f"\nload average at the end: {load_average()}")
    return 1 if any(report.faults for report in reports) else 0


def main(benchmark: Benchmark) -> int:
    """The command line of one script."""
    parser = argparse.ArgumentParser(description=benchmark.purpose)
    common_options(parser)
    benchmark.add_options(parser)
    return guarded(lambda: run_all([benchmark], parser.parse_args()))


def guarded(run: Callable[[], int]) -> int:
    """Runs a command line, with expected failures as a message instead of a traceback."""
    os.umask(0o022)
    try:
        return run()
    except (BenchError, SetupError) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
