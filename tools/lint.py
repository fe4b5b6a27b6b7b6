#!/usr/bin/env python3
"""Checks form: formatting, lock file, clippy without a warning, Python that compiles. Runs every check, then sums up."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Dict, List, Sequence, Tuple

import embedded_postgres
import extension_build
import places
import setup as setting_up
from places import SetupError
from progress import Progress

_MAJOR = embedded_postgres.EMBEDDED_MAJORS[0]
# As cargo-pgrx passes it when it builds the extension; the same flags let the two share what they compile.
_PGRX_FLAGS = (
    "--config",
    """target.'cfg(all(target_family = "unix", not(target_os = "macos")))'.rustflags = """
    """["-C", "link-arg=-Wl,--no-gc-sections"]""",
)
_EXTENSION_CRATE = "cortex"


def checks() -> List[Tuple[str, Sequence[str]]]:
    """(name, command) of each check."""
    python_files = [str(path) for path in sorted((places.REPO / "tools").rglob("*.py"))]
    return [
        ("cargo fmt", ["cargo", "fmt", "--all", "--check"]),
        ("Cargo.lock", ["cargo", "metadata", "--locked", "--format-version", "1"]),
        ("clippy", ["cargo", "clippy", "--workspace", "--exclude", _EXTENSION_CRATE, "--all-targets", "--", "-D", "warnings"]),
        ("clippy, extension",
         ["cargo", *_PGRX_FLAGS, "clippy", "-p", _EXTENSION_CRATE, "--no-default-features", "--features", f"pg{_MAJOR}",
          "--", "-D", "warnings"]),
        ("Python compiles", [sys.executable, "-c", _COMPILE, *python_files]),
    ]


# In memory: a check writes nothing.
_COMPILE = "import sys\nfor path in sys.argv[1:]: compile(open(path, encoding='utf-8').read(), path, 'exec')"


def main() -> int:
    os.umask(0o022)
    progress = Progress()
    setup = setting_up.Setup(progress, [_MAJOR], tests=True)
    try:
        with setting_up.one_at_a_time(progress):
            setup.libclang()
            setup.pgrx()
            installation = setup.postgres()[0]
    except SetupError:
        return 1  # the step has said why
    environment = extension_build.environment(installation)
    results = [(name, _passes(name, command, environment)) for name, command in checks()]
    print()
    for name, passed in results:
        print(f"{'ok' if passed else 'FAILED':<7}{name}")
    return 0 if all(passed for _, passed in results) else 1


def _passes(name: str, command: Sequence[str], environment: Dict[str, str]) -> bool:
    print(f"\n--- {name}", flush=True)
    # Of `cargo metadata` only the complaint is of interest.
    quiet = subprocess.DEVNULL if "metadata" in command else None
    try:
        return subprocess.run(
            list(command), cwd=places.REPO, env=environment, stdin=subprocess.DEVNULL, stdout=quiet
        ).returncode == 0
    except OSError as error:
        print(f"`{command[0]}` cannot be run: {error.strerror}")
        return False


if __name__ == "__main__":
    sys.exit(main())
