#!/usr/bin/env python3
"""Runs the benchmarks, all or those named, on a private cluster under .cortex/bench. `make bench` calls this.

    python3 bench/run.py                     all of them (about half an hour)
    python3 bench/run.py writes read         these two
    python3 bench/run.py --small             all of them with small sizes (a minute), to see that they run
"""

from __future__ import annotations

import argparse
import sys

import chunking
import freshness
import harness
import history
import read
import writes

_BENCHMARKS = {benchmark.name: benchmark for benchmark in (
    writes.BENCHMARK, read.BENCHMARK, history.BENCHMARK, freshness.BENCHMARK, chunking.BENCHMARK,
)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", nargs="*", help=f"{', '.join(_BENCHMARKS)} (default: all)")
    harness.common_options(parser)
    for benchmark in _BENCHMARKS.values():
        benchmark.add_options(parser.add_argument_group(f"options of {benchmark.name}"))
    options = parser.parse_args()
    unknown = [name for name in options.name if name not in _BENCHMARKS]
    if unknown:
        parser.error(f"there is no benchmark {unknown[0]!r}; there are {', '.join(_BENCHMARKS)}")
    chosen = [_BENCHMARKS[name] for name in options.name or _BENCHMARKS]
    return harness.guarded(lambda: harness.run_all(chosen, options))


if __name__ == "__main__":
    sys.exit(main())
