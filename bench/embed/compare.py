"""Runs our embedder and onnxruntime in turns and prints medians and ratios.

Each side is a process that has loaded the model and waits. The peer runs in several ways (see peer.py); each of its runs has a run of
ours right beside it, in an order that turns round by round, so that a load that comes and goes hits both alike. A ratio is our speed
divided by the peer's in such a pair: 1 is equal, 0.9 is a tenth slower. The goal is judged against the peer's fastest way.

Two ratios are given. By the clock is what a user sees, and on a busy machine it is noise. By CPU time it hardly depends on other
programs, but counts against the peer's way `layers`, whose threads spin while they wait.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
SENTENCES = HERE / "sentences.txt"
SINGLES = 50
GOAL = 0.9
PEER_WAYS = [(way, batch) for way in ("layers", "batches") for batch in (8, 16)]


class Side:
    """One process; `run` asks for one piece of work and returns wall and CPU seconds."""

    def __init__(self, name, command, way=None):
        self.name, self.way = name, way
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        if self._process.stdout.readline().strip() != "ready":
            sys.exit(f"{name} did not start (see above): {' '.join(command)}")

    def run(self, request):
        before = self._cpu_seconds()
        self._process.stdin.write(f"{request}\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            sys.exit(f"{self.name} stopped in the middle (see above)")
        return float(answer), self._cpu_seconds() - before

    def peak_megabytes(self):
        for line in Path(f"/proc/{self._process.pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1000
        return float("nan")

    def close(self):
        self._process.stdin.close()
        self._process.wait()

    def _cpu_seconds(self):
        # Fields 14 and 15 of proc(5) stat; the name in field 2 may hold spaces, so count from behind it.
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main():
    parser = argparse.ArgumentParser(description="Throughput of the embedder against onnxruntime in Python.")
    parser.add_argument("--ours", required=True, help="the built example embed_bench")
    parser.add_argument("--model", required=True, help="folder of the model")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="threads of each side (default: all)")
    parser.add_argument("--rounds", type=int, default=7, help="rounds (default: 7)")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    options = parser.parse_args()

    ours = Side("ours", [options.ours, options.model, str(SENTENCES), str(options.threads)])
    peers = [start_peer(options, way, batch) for way, batch in PEER_WAYS]
    load_before = os.getloadavg()[0]
    bulk = [compare(ours, peer, "bulk", options.rounds) for peer in peers]
    one_by_one = [compare(ours, peer, str(SINGLES), options.rounds) for peer in peers if peer.way == "layers"][:1]

    count = len(SENTENCES.read_text("utf-8").splitlines())
    report = Report(options.json)
    report.machine(options, load_before)
    report.section(f"{count} sentences in one call", bulk, count)
    report.section(f"{SINGLES} sentences one by one", one_by_one, SINGLES)
    report.memory([ours, *peers])
    report.verdict(bulk)
    for side in [ours, *peers]:
        side.close()


def start_peer(options, way, batch):
    command = [sys.executable, str(HERE / "peer.py"), options.model, str(SENTENCES), str(options.threads), way, str(batch)]
    return Side(f"onnxruntime, {way} of {batch}", command, way)


class Pairs:
    """Runs of one piece of work, ours beside the peer's: (wall, CPU) seconds."""

    def __init__(self, peer):
        self.peer = peer
        self.ours, self.theirs = [], []

    def ratio(self, clock):
        """Our speed divided by the peer's: the median of the pairs, the lowest and the highest."""
        ratios = [theirs[clock] / max(own[clock], 1e-9) for own, theirs in zip(self.ours, self.theirs)]
        return statistics.median(ratios), min(ratios), max(ratios)


WALL, CPU = 0, 1


def compare(ours, peer, request, rounds):
    pairs = Pairs(peer.name)
    for number in range(rounds):
        for side in (ours, peer) if number % 2 == 0 else (peer, ours):
            (pairs.ours if side is ours else pairs.theirs).append(side.run(request))
    return pairs


def speed(runs, clock, count):
    """Sentences per second, median."""
    return count / max(statistics.median(run[clock] for run in runs), 1e-9)


class Report:
    def __init__(self, as_json):
        self._as_json = as_json

    def machine(self, options, load_before):
        self._print({
            "threads": options.threads,
            "cores": os.cpu_count(),
            "rounds": options.rounds,
            "load_average_before": round(load_before, 2),
            "load_average_after": round(os.getloadavg()[0], 2),
        })

    def section(self, title, pairs_of_peers, count):
        if not self._as_json:
            print(f"\n{title}\n{'':<30}{'sentences/s':^18}{'per CPU second':^18}{'ratio by the clock':^24}{'by CPU time':^14}")
            print(f"{'':<30}{'ours':>9}{'peer':>9}{'ours':>9}{'peer':>9}{'median':>9}{'lowest':>8}{'highest':>8}{'median':>10}")
        for pairs in pairs_of_peers:
            wall, lowest, highest = pairs.ratio(WALL)
            cpu, _, _ = pairs.ratio(CPU)
            figures = [speed(runs, clock, count) for clock in (WALL, CPU) for runs in (pairs.ours, pairs.theirs)]
            if self._as_json:
                names = ("ours_per_second", "peer_per_second", "ours_per_cpu_second", "peer_per_cpu_second")
                figures_by_name = {name: round(figure, 1) for name, figure in zip(names, figures)}
                self._print({"case": title, "peer": pairs.peer, **figures_by_name, "ratio": round(wall, 3),
                             "spread": [round(lowest, 3), round(highest, 3)], "ratio_by_cpu_time": round(cpu, 3)})
            else:
                columns = "".join(f"{figure:>9.1f}" for figure in figures)
                print(f"{pairs.peer:<30}{columns}{wall:>9.2f}{lowest:>8.2f}{highest:>8.2f}{cpu:>10.2f}")

    def memory(self, sides):
        peaks = {side.name: round(side.peak_megabytes()) for side in sides}
        if not self._as_json:
            print("\npeak resident memory in MB")
        self._print(peaks)

    def verdict(self, bulk):
        """Whether the goal is met. A missed goal is a finding, not a failed run."""
        fastest = min(bulk, key=lambda pairs: statistics.median(run[WALL] for run in pairs.theirs))
        ratio, cpu_ratio = fastest.ratio(WALL)[0], fastest.ratio(CPU)[0]
        if not self._as_json:
            print()
        self._print({"goal": GOAL, "against": fastest.peer, "ratio": round(ratio, 3),
                     "ratio_by_cpu_time": round(cpu_ratio, 3), "met": ratio >= GOAL})

    def _print(self, facts):
        print(json.dumps(facts) if self._as_json else ", ".join(f"{name} {value}" for name, value in facts.items()))


if __name__ == "__main__":
    main()
