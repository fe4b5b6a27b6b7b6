#!/usr/bin/env python3
"""Brings what Cortex needs, step by step. A step whose result is there already takes no time.

    python3 tools/setup.py all                 everything that `make demo` needs
    python3 tools/setup.py extension --pg 16   build the extension and install it into PostgreSQL 16
    PG_CONFIG=/usr/bin/pg_config python3 tools/setup.py extension

What it installs goes into `.cortex` of this clone, except packages of the distribution, which it names first
and installs only as root or with a sudo that asks nothing. It never asks a question. `--json` prints one line
{"step","ok","ms","detail"} for each step.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import subprocess
import sys
import venv
from contextlib import contextmanager
from pathlib import Path
from typing import Callable, Dict, Iterator, List

import cluster
import embedded_postgres
import extension_build
import fetch
import places
import release_notes
from embedded_postgres import FOR_TESTS, FOR_USE, Installation
from places import SetupError
from progress import Progress, run_logged

MODEL = places.STATE / "model"
VENV = places.STATE / "venv"
DEMO = places.STATE / "demo"
_REQUIREMENTS = Path(__file__).with_name("requirements.txt")
_PREPARE_MODEL = Path(__file__).with_name("model") / "prepare.py"


class Setup:
    """The steps. Each brings what it needs itself, so that any of them can be asked for alone."""

    def __init__(self, progress: Progress, majors: List[int], tests: bool = False) -> None:
        self._progress = progress
        self._majors = majors
        self._tree, self._profile = (FOR_TESTS, "dev") if tests else (FOR_USE, "release")
        self._installations: Dict[int, Installation] = {}
        self._ready: set = set()

    def libclang(self) -> None:
        """Cargo, a C compiler, libclang."""
        if self._once("libclang"):
            with self._progress.step("compilers", "looking for cargo, cc and libclang") as step:
                extension_build.ensure_compilers(step, self._progress)

    def postgres(self) -> List[Installation]:
        """The PostgreSQL servers to use: PG_CONFIG's, or the embedded ones."""
        for major in self._majors:
            if major in self._installations:
                continue
            name = "postgres" if os.environ.get("PG_CONFIG") else f"postgres {major}"
            with self._progress.step(name, "looking for PostgreSQL") as step:
                found = embedded_postgres.chosen(step, self._progress, major, self._tree)
                step.detail = f"PostgreSQL {found.version} with pgvector {found.pgvector}"
                self._installations[major] = found
        return [self._installations[major] for major in self._majors]

    def pgrx(self) -> None:
        """cargo-pgrx, told of these servers."""
        installations = self.postgres()
        if self._once("pgrx"):
            with self._progress.step("cargo-pgrx", "looking for cargo-pgrx") as step:
                extension_build.ensure_pgrx(step, self._progress, installations)

    def extension(self) -> None:
        """The extension, built and installed into these servers."""
        self.libclang()
        self.pgrx()
        for installation in self.postgres():
            with self._progress.step(f"extension pg{installation.major}", "comparing with the last build") as step:
                extension_build.install_extension(step, installation, self._profile)

    def sidecar(self) -> None:
        """The `cortex` binary, in release profile."""
        with self._progress.step("sidecar", "building the cortex binary") as step:
            extension_build.build_sidecar(step)

    def model(self) -> None:
        """The embedding model."""
        with self._progress.step("model", "checking the embedding model") as step:
            run_logged(step, [sys.executable, str(_PREPARE_MODEL), str(MODEL)], log="model")
            step.detail = f"all-MiniLM-L6-v2 in {MODEL}"

    def docs_data(self) -> None:
        """Rows for the demo."""
        with self._progress.step("release notes", "looking for the rows") as step:
            step.detail = release_notes.describe(release_notes.prepare(step, self._progress))

    def python(self) -> None:
        """Python packages of our own tools and tests, in an environment of their own."""
        with self._progress.step("python", "looking for the packages") as step:
            stamp = VENV / ".requirements"
            wanted = fetch.file_sha256(_REQUIREMENTS)
            if not (stamp.is_file() and stamp.read_text() == wanted and venv_python().exists()):
                # Debian's Python has no ensurepip without another package; the pip that runs this installs instead.
                venv.create(VENV, with_pip=False, clear=True)
                folder = subprocess.run(
                    [str(venv_python()), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
                    capture_output=True, text=True, check=True,
                ).stdout.strip()
                run_logged(
                    step,
                    [*fetch.pip_command(), "install", "--no-deps", "--require-hashes", "--only-binary=:all:", "--no-input",
                     "--progress-bar=off", "--target", folder, "--requirement", str(_REQUIREMENTS)],
                    log="python",
                )
                stamp.write_text(wanted)
            step.detail = f"packages of {_REQUIREMENTS.name} in {VENV}"

    def demo_cluster(self) -> None:
        """The demo's private cluster, made if it is missing and started."""
        installation = self.postgres()[0]
        with self._progress.step("cluster", "starting PostgreSQL") as step:
            facts = cluster.Cluster(DEMO, say=step.say).create(installation)
            step.detail = f"PostgreSQL {facts.server_version} in {DEMO}, port {facts.port}"

    def all(self) -> None:
        """What the demo needs, the likeliest to fail first."""
        self.libclang()
        self.postgres()
        self.model()
        self.docs_data()
        self.extension()
        self.sidecar()

    def demo(self) -> None:
        """Everything, and the cluster."""
        self.all()
        self.demo_cluster()

    def _once(self, name: str) -> bool:
        if name in self._ready:
            return False
        self._ready.add(name)
        return True


def venv_python() -> Path:
    """The Python that has our packages."""
    return VENV / "bin" / "python"


@contextmanager
def one_at_a_time(progress: Progress) -> Iterator[None]:
    """Holds the clone's set-up lock, which dies with its holder. Says so when it has to wait."""
    places.STATE.mkdir(exist_ok=True)
    with open(places.STATE / "setup.lock", "w", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress.note("another set-up runs in this clone; waiting for it to end")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


_STEPS: Dict[str, Callable[[Setup], object]] = {
    "postgres": Setup.postgres,
    "libclang": Setup.libclang,
    "pgrx": Setup.pgrx,
    "model": Setup.model,
    "extension": Setup.extension,
    "sidecar": Setup.sidecar,
    "docs-data": Setup.docs_data,
    "python": Setup.python,
    "all": Setup.all,
    "demo": Setup.demo,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("step", choices=list(_STEPS), nargs="+")
    parser.add_argument(
        "--pg", type=int, action="append", choices=embedded_postgres.EMBEDDED_MAJORS,
        help="embedded PostgreSQL version; may be given twice (default 18); PG_CONFIG overrides it",
    )
    parser.add_argument("--tests", action="store_true", help="the installation that tests use, extension in dev profile")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    options = parser.parse_args()
    # What we install is read by the server's user, whatever the umask of the caller is.
    os.umask(0o022)
    progress = Progress(options.json)
    majors = options.pg or [embedded_postgres.EMBEDDED_MAJORS[0]]
    setup = Setup(progress, majors, options.tests)
    try:
        with one_at_a_time(progress):
            for name in options.step:
                _STEPS[name](setup)
    except SetupError:
        return 1  # the step has said why
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
