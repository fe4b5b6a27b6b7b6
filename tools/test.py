#!/usr/bin/env python3
"""Runs every test there is and ends in a line `N passed, N failed`.

Sets up what the tests need, makes clusters of PostgreSQL 18 and 16 under `.cortex/test`, runs each part whether
or not others failed, and removes the clusters. A part that cannot be run, or that runs no test, counts as one
failure. Tests find a server in CORTEX_TEST_PG18_URL or CORTEX_TEST_PG16_URL, of which a run against one
version sets only its own, and that server's programs in the folder CORTEX_TEST_PG18_BIN or _PG16_BIN.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Dict, List, Optional, Sequence, Tuple

import cluster
import embedded_postgres
import extension_build
import places
import setup as setting_up
import test_counts
from places import SetupError
from progress import Progress
from test_counts import Counts

_CLUSTERS = places.STATE / "test"
_LOG = places.LOGS / "test.log"
# It cannot be linked into a test binary; it is tested through SQL.
_EXTENSION_CRATE = "cortex"
_SETTINGS = {
    # Two-phase commit and logical replication are part of what is tested.
    "max_prepared_transactions": "64",
    "wal_level": "logical",
    "max_connections": "200",
    "log_min_messages": "warning",
}


@dataclass(frozen=True)
class Part:
    """A group of tests that one command runs. `needs` says what has to be set up for it."""

    name: str
    command: Sequence[str]
    count: Callable[[str], Counts]
    server: Optional[int] = None


@dataclass(frozen=True)
class Outcome:
    """What came of a part. `fault` says why it counts as failed beyond its failed tests."""

    name: str
    counts: Counts
    seconds: float
    fault: str = ""

    def total(self) -> Counts:
        """The counts with the fault, if there is one, as a failure of its own."""
        return self.counts + Counts(failed=1) if self.fault else self.counts


def parts() -> List[Part]:
    """All parts, the quick ones first. A test that uses a server runs once on each version, any other once."""
    listed = [
        Part("tools", [sys.executable, "-m", "unittest", "discover", "-s", "tools/tests", "-t", "tools"],
             test_counts.from_unittest),
    ]
    packages = _packages()
    del packages[_EXTENSION_CRATE]
    for crate, package in packages.items():
        flags = [*package.units, *_selected(package, with_server=False)]
        if flags:
            listed.append(_cargo_part(crate, ["-p", crate, *flags]))
    for major in embedded_postgres.EMBEDDED_MAJORS:
        for crate, package in packages.items():
            flags = _selected(package, with_server=True)
            if flags:
                listed.append(_cargo_part(f"{crate} on PostgreSQL {major}", ["-p", crate, *flags], major))
    return listed


def _selected(package: "Package", with_server: bool) -> List[str]:
    """Cargo's flags for the integration tests that do, or do not, use a server."""
    names = [
        name for name, path in package.integration_tests.items() if _uses_server(path, package.library) == with_server
    ]
    return [flag for name in names for flag in ("--test", name)]


@dataclass(frozen=True)
class Package:
    """A crate of the workspace: its integration tests by name, with the file of each, cargo's flags that select
    its unit tests, and the file of its library, if it has one, under the library's name."""

    integration_tests: Dict[str, Path]
    units: Tuple[str, ...]
    library: Dict[str, Path]


def _packages() -> Dict[str, Package]:
    told = subprocess.run(
        ["cargo", "metadata", "--no-deps", "--format-version", "1"],
        cwd=places.REPO, stdin=subprocess.DEVNULL, capture_output=True, text=True,
    )
    if told.returncode != 0:
        raise SetupError(f"cargo cannot read the workspace: {told.stderr.strip()}")
    found = {}
    for package in json.loads(told.stdout)["packages"]:
        targets = package["targets"]
        tests = {target["name"]: Path(target["src_path"]) for target in targets if "test" in target["kind"]}
        kinds = {kind for target in targets for kind in target["kind"] if _has_unit_tests(Path(target["src_path"]).parent)}
        units = tuple(flag for kind, flag in (("lib", "--lib"), ("bin", "--bins")) if kind in kinds)
        library = {target["name"]: Path(target["src_path"]) for target in targets if "lib" in target["kind"]}
        found[package["name"]] = Package(tests, units, library)
    return found


def _has_unit_tests(sources: Path) -> bool:
    """Whether any file of these sources holds a test. A library that only helps tests has none, and that is right."""
    test = re.compile(r"#\[(\w+::)*test\b|\bproptest!")
    return any(test.search(path.read_text(encoding="utf-8")) for path in sources.rglob("*.rs"))


def _uses_server(test: Path, library: Dict[str, Path]) -> bool:
    """Whether a test reads a server's URL from the environment: itself, in a module beside it that it names, or
    in its crate's library, if it uses that."""
    marker = "CORTEX_TEST_PG"
    text = test.read_text(encoding="utf-8")
    if marker in text:
        return True
    for name, path in library.items():
        if re.search(rf"\b{name}\b", text) and marker in path.read_text(encoding="utf-8"):
            return True
    for name in re.findall(r"^\s*(?:pub(?:\([a-z]+\))? )?mod (\w+);", text, re.MULTILINE):
        for module in (test.parent / f"{name}.rs", test.parent / name / "mod.rs"):
            if module.is_file() and marker in module.read_text(encoding="utf-8"):
                return True
    return False


def _cargo_part(name: str, selection: Sequence[str], server: Optional[int] = None) -> Part:
    if shutil.which("cargo-nextest"):
        command = ["cargo", "nextest", "run", "--no-fail-fast", "--color=never", *selection]
        return Part(name, command, test_counts.from_nextest, server)
    command = ["cargo", "test", "--no-fail-fast", "--color=never", *selection]
    return Part(name, command, test_counts.from_cargo_test, server)


# Running

def run_part(part: Part, environment: Dict[str, str], show: Callable[[str], None]) -> Outcome:
    """Runs a part, passes its output on line by line, and counts."""
    began = time.monotonic()
    lines = []
    try:
        process = subprocess.Popen(
            list(part.command), cwd=places.REPO, env=environment, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, encoding="utf-8", errors="replace",
        )
    except OSError as error:
        return Outcome(part.name, Counts(), 0.0, f"`{part.command[0]}` cannot be run: {error.strerror}")
    assert process.stdout is not None
    with process:
        for line in process.stdout:
            lines.append(line)
            show(line)
    return judge(part, "".join(lines), process.returncode, time.monotonic() - began)


def judge(part: Part, output: str, status: int, seconds: float) -> Outcome:
    """Counts from the output, and a fault where the exit status says more than they do or no test ran."""
    counts = part.count(output)
    fault = ""
    if status != 0 and counts.failed == 0:
        fault = f"ended with status {status}"
    elif counts.passed + counts.failed == 0:
        fault = "ran no test"
    return Outcome(part.name, counts, seconds, fault)


class Servers:
    """The clusters of this run, each with the extension of this source tree installed."""

    def __init__(self, progress: Progress, setups: Dict[int, setting_up.Setup]) -> None:
        self._progress = progress
        self._setups = setups
        self._clusters: Dict[int, cluster.Cluster] = {}
        self._faults: Dict[int, str] = {}

    def facts(self, major: int) -> Tuple[Optional[cluster.Facts], str]:
        """(facts, fault): a running server of this version, or why there is none."""
        if major not in self._clusters and major not in self._faults:
            try:
                self._clusters[major] = self._make(major)
            except SetupError as error:
                self._faults[major] = str(error).splitlines()[0]
        if major in self._faults:
            return None, self._faults[major]
        return self._clusters[major].facts(), ""

    def _make(self, major: int) -> cluster.Cluster:
        setup = self._setups[major]
        with setting_up.one_at_a_time(self._progress):
            setup.extension()
        installation = setup.postgres()[0]
        with self._progress.step(f"cluster {major}", "starting PostgreSQL") as step:
            made = cluster.Cluster(_CLUSTERS / str(major), say=step.say)
            made.destroy()
            facts = made.create(installation, fsync=False, settings=_SETTINGS)
            step.detail = f"PostgreSQL {facts.server_version}, port {facts.port}"
        return made

    def remove(self) -> None:
        """Stops and removes the clusters."""
        for made in self._clusters.values():
            made.destroy()


def _environment(server: Optional[cluster.Facts]) -> Dict[str, str]:
    """Our environment without settings of the sidecar or of psql, which would change what is tested, with the
    Python that has our packages, and with the server if there is one."""
    environment = {
        name: value for name, value in extension_build.environment().items() if not name.startswith(("CORTEX_", "PG"))
    }
    environment["PYTHON"] = str(setting_up.venv_python())
    if server:
        environment[f"CORTEX_TEST_PG{server.pg_major}_URL"] = server.url()
        environment[f"CORTEX_TEST_PG{server.pg_major}_BIN"] = server.bin_dir
    return environment


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--only", metavar="TEXT", help="run the parts whose name contains this")
    parser.add_argument("--list", action="store_true", help="list the parts and run none")
    parser.add_argument("--keep", action="store_true", help="leave the clusters running afterwards")
    options = parser.parse_args()
    os.umask(0o022)
    progress = Progress()

    setups = {
        major: setting_up.Setup(progress, [major], tests=True) for major in embedded_postgres.EMBEDDED_MAJORS
    }
    try:
        chosen = [part for part in parts() if not options.only or options.only in part.name]
    except (SetupError, OSError) as error:
        print(f"test.py: {error}", file=sys.stderr)
        return 1
    if not chosen:
        print(f"test.py: no part's name contains {options.only!r}; --list shows them", file=sys.stderr)
        return 2
    if options.list:
        for part in chosen:
            print(f"{part.name}: {' '.join(part.command)}")
        return 0
    if os.environ.get("PG_CONFIG"):
        progress.note("PG_CONFIG is not used here: tests run on the embedded PostgreSQL 18 and 16")
        del os.environ["PG_CONFIG"]

    servers = Servers(progress, setups)
    outcomes = []
    try:
        faults = _set_up(progress, setups[embedded_postgres.EMBEDDED_MAJORS[0]])
        outcomes.extend(Outcome(f"set-up: {name}", Counts(), 0.0, fault) for name, fault in faults)
        for part in chosen:
            outcomes.append(_run(part, servers))
        for major in embedded_postgres.EMBEDDED_MAJORS:
            if not options.only and not any(part.server == major for part in chosen):
                outcomes.append(Outcome(f"PostgreSQL {major}", Counts(), 0.0, "no test uses a server"))
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    finally:
        if not options.keep:
            servers.remove()
    return report(outcomes)


def _set_up(progress: Progress, setup: setting_up.Setup) -> List[Tuple[str, str]]:
    """What the parts need beside servers. Returns (step, fault) for each that failed."""
    faults = []
    with setting_up.one_at_a_time(progress):
        for name, step in (("python", setup.python), ("compilers", setup.libclang), ("postgres", setup.postgres),
                           ("model", setup.model)):
            try:
                step()
            except SetupError as error:
                faults.append((name, str(error).splitlines()[0]))
    return faults


def _run(part: Part, servers: Servers) -> Outcome:
    server = None
    if part.server:
        server, fault = servers.facts(part.server)
        if fault:
            return Outcome(part.name, Counts(), 0.0, f"no server: {fault}")
    print(f"\n--- {part.name}: {' '.join(part.command)}", flush=True)
    places.LOGS.mkdir(parents=True, exist_ok=True)
    with open(_LOG, "a", encoding="utf-8") as log:
        log.write(f"\n--- {part.name}\n")

        def show(line: str) -> None:
            log.write(line)
            sys.stdout.write(line)
            sys.stdout.flush()

        return run_part(part, _environment(server), show)


def report(outcomes: Sequence[Outcome]) -> int:
    """Prints a line for each part and the sum, and returns the exit status."""
    total = Counts()
    print()
    for outcome in outcomes:
        total += outcome.total()
        verdict = "FAILED" if outcome.total().failed else "ok"
        skipped = f", {outcome.counts.skipped} skipped" if outcome.counts.skipped else ""
        reason = f"  ({outcome.fault})" if outcome.fault else ""
        print(
            f"{verdict:<7}{outcome.name:<40} {outcome.counts.passed:>5} passed, {outcome.counts.failed} failed{skipped}"
            f"  {outcome.seconds:.1f} s{reason}"
        )
    print(f"{total.passed} passed, {total.failed} failed", flush=True)
    return 1 if total.failed or total.passed == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
