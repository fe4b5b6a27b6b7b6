#!/usr/bin/env python3
"""What reads of the claim pool cost, beside coalent over the same vectors in the same run.

    python3 bench/claim_pool/run.py                          1,000, 10,000 and 100,000 claims (about half an hour)
    python3 bench/claim_pool/run.py --sizes 1000             one size
    python3 bench/claim_pool/run.py --sizes 1000000          the peer is left out above --peer-up-to
    python3 bench/claim_pool/run.py --clustered              vectors in clusters instead of at random

A ratio is the peer's cost divided by ours: 100 is a hundred times faster. It installs the peer under .cortex.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import harness  # noqa: E402
from harness import Report, Server, percentile  # noqa: E402
from places import STATE  # noqa: E402

_REQUIREMENTS = HERE / "requirements.txt"
_PACKAGES = STATE / "bench-claim-pool"
_DATABASE = "bench_claim_pool"
_READERS = 8
# What the issue asks for.
_GOAL_RATIO = 100
_GOAL_SAME = 0.995
_GOAL_SCALE = 0.7
_TOP = 40


def install() -> None:
    """The peer and numpy in a folder of their own."""
    done = _PACKAGES / "installed.txt"
    wanted = _REQUIREMENTS.read_text(encoding="utf-8")
    if not done.exists() or done.read_text(encoding="utf-8") != wanted:
        subprocess.run(
            [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--upgrade",
             "--only-binary=:all:", "--target", str(_PACKAGES), "--requirement", str(_REQUIREMENTS)],
            check=True, stdout=sys.stderr,
        )
        done.write_text(wanted, encoding="utf-8")
    sys.path.insert(0, str(_PACKAGES))


class Peer:
    """The peer's process."""

    def __init__(self, folder: Path) -> None:
        self._child = subprocess.Popen(
            [sys.executable, str(HERE / "peer.py"), str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            text=True, encoding="utf-8", env={"PYTHONPATH": str(_PACKAGES), "PATH": "/usr/bin:/bin"},
        )
        self.facts = self._answer()

    def ask(self, do: str, **arguments: Any) -> Dict[str, Any]:
        assert self._child.stdin is not None
        self._child.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
        self._child.stdin.flush()
        return self._answer()

    def _answer(self) -> Dict[str, Any]:
        assert self._child.stdout is not None
        line = self._child.stdout.readline()
        if not line:
            raise harness.BenchError(f"the peer ended with status {self._child.wait()}")
        return json.loads(line)

    def close(self) -> None:
        assert self._child.stdin is not None
        self._child.stdin.close()
        self._child.wait()


@contextlib.contextmanager
def peer_of(folder: Path, wanted: bool) -> Iterator[Optional[Peer]]:
    """The peer with the data of a folder, or none."""
    peer = Peer(folder) if wanted else None
    try:
        yield peer
    finally:
        if peer:
            peer.close()


@contextlib.contextmanager
def database_of(server: Server, options: argparse.Namespace) -> Iterator[harness.Database]:
    """A fresh database, or with --reuse the one that an earlier run kept."""
    if not options.reuse:
        with server.database(_DATABASE, options.keep) as database:
            yield database
        return
    kept = server.kept(_DATABASE)
    if not kept:
        raise harness.BenchError("no earlier run kept its database: run with --keep first")
    yield kept


class Lines:
    """Figures of one size, printed as they come."""

    def __init__(self, report: Report, claims: int) -> None:
        self._report = report
        self._claims = claims

    def cost(self, what: str, ours: List[float], peer: Optional[List[float]] = None, goal: Optional[float] = None, unit: str = "ms") -> None:
        """Median, p99 and best of both sides and the ratio of the medians."""
        text = f"{self._claims:>9,}  {what:<44} {shape(ours)} {unit}"
        entry: Dict[str, Any] = {"claims": self._claims, "case": what, "unit": unit, "ours": figures(ours)}
        if peer:
            ratio = statistics.median(peer) / statistics.median(ours)
            text += f"   peer {shape(peer)}   x{ratio:.3g}"
            entry |= {"peer": figures(peer), "ratio": ratio}
            if goal:
                text += f"  goal >= {goal:g}: {'met' if ratio >= goal else 'MISSED'}"
        self._out(text, entry)

    def value(self, what: str, value: str, entry: Dict[str, Any]) -> None:
        self._out(f"{self._claims:>9,}  {what:<44} {value}", {"claims": self._claims, "case": what, **entry})

    def _out(self, text: str, entry: Dict[str, Any]) -> None:
        print(json.dumps(entry) if self._report.as_json else text, flush=True)


def figures(costs: List[float]) -> Dict[str, float]:
    return {"p50": statistics.median(costs), "p99": percentile(costs, 99), "best": min(costs), "rounds": len(costs)}


def shape(costs: List[float]) -> str:
    return f"p50 {statistics.median(costs):9.3f}  p99 {percentile(costs, 99):9.3f}  best {min(costs):9.3f}"


def run(server: Server, options: argparse.Namespace, report: Report) -> None:
    import data
    import pool

    medians: Dict[int, float] = {}
    for claims in options.sizes:
        report.say(f"making {claims:,} claims")
        given = data.make(claims, options.questions, options.clustered)
        with tempfile.TemporaryDirectory(prefix="claim-pool-") as name, database_of(server, options) as database:
            folder = Path(name)
            given.write(folder)
            loaded = pool.Pool(database, given, report, options.reuse, not options.without_index)
            report.say("starting the peer" if claims <= options.peer_up_to else "no peer at this size")
            with peer_of(folder, claims <= options.peer_up_to) as peer:
                medians[claims] = measure(loaded, peer, Lines(report, claims), options, report, folder)
            loaded.close()
    growth(medians, report)


def measure(pool: Any, peer: Optional[Peer], lines: Lines, options: argparse.Namespace, report: Report, folder: Path) -> float:
    """All figures of one size. Returns the median of a warm read."""
    first_ms = [pool.first_read(number) for number in range(7)]
    peer_first = [peer.ask("read", question=0)["ms"]] if peer else None
    lines.cost("first read of a new connection / of the cache", first_ms, peer_first)
    if peer:
        lines.value("peer: constructing the cache from a store", f"{peer.facts['construct_ms']:.1f} ms", peer.facts)

    report.say("warm reads")
    rounds = range(pool.questions)
    for number in rounds[:5]:
        pool.read(number)
        peer and peer.ask("read", question=number)
    ours: List[float] = []
    theirs: List[float] = []
    served = []
    for number in rounds[5:]:
        ours.append(pool.read(number))
        if peer and number < 5 + options.peer_rounds:
            answer = peer.ask("read", question=number)
            theirs.append(answer["ms"])
            served.append(answer["claims"])
            if not answer["hit"] or answer["retrievals"]:
                raise harness.BenchError(f"a read of the peer's was not served from its pool: {answer}")
    warm = statistics.median(ours)
    lines.cost("warm read", ours, theirs, _GOAL_RATIO if pool.claims == 100_000 else None)
    again = [pool.read(5) for _ in range(50)]
    lines.cost("the same question again", again)
    lines.value("claims in the payload", f"{pool.served():.1f}" + (f"   peer {statistics.mean(served):.1f}" if served else ""), {})

    report.say("exactness")
    same, shares = pool.exactness(range(min(pool.questions, options.exact_rounds)), _TOP)
    lines.value(
        f"top {_TOP} equal to the exact scan's", f"{same:.3f} of reads, {statistics.mean(shares):.4f} of claims  "
        f"goal >= {_GOAL_SAME:g}: {'met' if same >= _GOAL_SAME else 'MISSED'}", {"reads": same, "claims_share": statistics.mean(shares)},
    )

    report.say("changes")
    changed: List[float] = []
    changed_peer: List[float] = []
    warm_beside: List[float] = []
    for number in range(options.changes):
        pool.change(number)
        changed.append(pool.read(number))
        warm_beside.append(pool.read(number + 1))
        if peer:
            changed_peer.append(peer.ask("read_changed", source=number, question=number)["ms"])
    lines.cost("read right after one source changed", changed, changed_peer)
    share = statistics.median(changed) / statistics.median(warm_beside)
    lines.value("  of that, beside the next read", f"x{share:.2f}  goal <= 1: {'met' if share <= 1.05 else 'MISSED'} (5 % for noise)", {"ratio": share})
    pool.seal()

    notices = [pool.notice(options.changes + number) for number in range(options.changes)]
    notices_peer = [peer.ask("notice", source=options.changes + number)["ms"] for number in range(options.changes)] if peer else None
    lines.cost("change notice (peer: in memory, not durable)", notices, notices_peer)
    if peer and pool.claims <= 10_000:
        lines.cost("change notice (peer: units in SQLite)", notices, peer.ask("notice_durable", folder=str(folder), rounds=20)["ms"])
    pool.seal()

    report.say("memory")
    sizes = pool.sizes()
    text = ", ".join(f"{name} {size / pool.claims:.0f}" for name, size in sizes.items())
    lines.value("bytes for each claim, on disk with indexes", text, sizes)
    if peer:
        memory = peer.ask("memory")
        per_claim = (memory["peak_kb"] - peer.facts["base_kb"]) * 1024 / pool.claims
        ratio = per_claim / (sizes["all"] / pool.claims)
        lines.value("bytes for each claim, peer's peak memory", f"{per_claim:.0f}, x{ratio:.2f} ours on disk", memory)

    report.say("concurrent readers")
    runs = harness.alternate(4, {
        str(clients): lambda _, clients=clients: pool.reads_per_second(clients, options.seconds) for clients in (1, _READERS)
    })
    one, many = (statistics.median(runs[str(clients)]) for clients in (1, _READERS))
    cores = server_cores()
    share = many / (one * cores)
    lines.value(
        f"{_READERS} readers / ({cores} cores x one reader)", f"{many:.0f} / {one:.0f} reads a second, x{share:.2f}  "
        f"goal >= {_GOAL_SCALE:g}: {'met' if share >= _GOAL_SCALE else 'MISSED'}", {"one": one, "many": many, "share": share},
    )
    return warm


def server_cores() -> int:
    """Cores that this process may use; the server's are the same."""
    return len(os.sched_getaffinity(0))


def growth(medians: Dict[int, float], report: Report) -> None:
    """Whether a warm read's median grows no faster than the logarithm of the number of claims, from 10,000 on."""
    sizes = sorted(size for size in medians if size >= 10_000)
    for size in sizes[1:]:
        grown = medians[size] / medians[sizes[0]]
        allowed = math.log(size) / math.log(sizes[0])
        verdict = "met" if grown <= allowed else "MISSED"
        entry = {"case": "growth", "from": sizes[0], "to": size, "grown": grown, "allowed": allowed}
        text = f"warm read p50 from {sizes[0]:,} to {size:,} claims: x{grown:.2f}  goal <= x{allowed:.2f} (log n): {verdict}"
        print(json.dumps(entry) if report.as_json else text, flush=True)


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--sizes", type=lambda text: [int(size) for size in text.split(",")], default=[1_000, 10_000, 100_000],
                        metavar="N,N", help="claims, by default 1000,10000,100000; multiples of ten, at least 1000")
    parser.add_argument("--peer-up-to", type=int, default=100_000, metavar="N", help="no peer above so many claims")
    parser.add_argument("--reuse", action="store_true", help="measure the database that a run of the same single size kept (--keep)")
    parser.add_argument("--without-index", action="store_true", help="build no HNSW index: every read scans the one-byte copies")
    parser.add_argument("--clustered", action="store_true", help="a hundred claims around each centre, instead of random")
    parser.add_argument("--questions", type=int, default=405, metavar="N", help="different questions (default 405, five to warm up)")
    parser.add_argument("--peer-rounds", type=int, default=60, metavar="N", help="reads of the peer")
    parser.add_argument("--exact-rounds", type=int, default=200, metavar="N", help="reads compared with the exact scan")
    parser.add_argument("--changes", type=int, default=30, metavar="N", help="changes of one source")
    parser.add_argument("--seconds", type=int, default=4, metavar="N", help="length of each run of concurrent readers (four with one, four with eight)")


BENCHMARK = harness.Benchmark("claim_pool", "reads of the claim pool beside coalent", options, run)


def main() -> int:
    install()
    # A million claims with their index take 4 GB; read from the page cache they would cost more than they do.
    if any(argument.startswith("1000000") or ",1000000" in argument for argument in sys.argv):
        harness.SETTINGS["shared_buffers"] = "6GB"
    return harness.main(BENCHMARK)


if __name__ == "__main__":
    sys.exit(main())
