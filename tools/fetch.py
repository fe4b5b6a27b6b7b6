"""Downloads, each pinned by version and hash and kept in `.cortex/downloads/`."""

from __future__ import annotations

import hashlib
import platform
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Sequence

from places import DOWNLOADS, SetupError
from progress import Step, run_logged


@dataclass(frozen=True)
class Wheel:
    """One file of one release of a Python package, pinned by the SHA-256 of its bytes.

    `tags` are pip's `--platform`, `--python-version`, `--implementation` and `--abi` that select this file on
    every Python, also one it was not built for: we unpack it, we do not import it.
    """

    package: str
    version: str
    file_name: str
    sha256: str
    tags: Sequence[str] = ()


def wheel(step: Step, wanted: Wheel) -> Path:
    """The file of the wheel, downloaded with pip unless it is here already. Its hash is checked either way."""
    target = DOWNLOADS / wanted.file_name
    if target.is_file() and file_sha256(target) == wanted.sha256:
        return target
    DOWNLOADS.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=DOWNLOADS) as scratch:
        requirements = Path(scratch) / "requirements.txt"
        requirements.write_text(f"{wanted.package}=={wanted.version} --hash=sha256:{wanted.sha256}\n")
        step.say(f"downloading {wanted.package} {wanted.version}")
        run_logged(
            step,
            [*pip_command(), "download", "--no-deps", "--require-hashes", "--only-binary=:all:", "--no-input",
             "--progress-bar=off", *wanted.tags, "--dest", scratch, "--requirement", str(requirements)],
            log="download",
        )
        downloaded = Path(scratch) / wanted.file_name
        if not downloaded.is_file():
            raise SetupError(f"pip fetched {wanted.package} {wanted.version}, but not as {wanted.file_name}")
        found = file_sha256(downloaded)
        if found != wanted.sha256:
            raise SetupError(f"{wanted.file_name} has SHA-256 {found}, expected {wanted.sha256}; nothing was installed")
        downloaded.replace(target)
    return target


def pip_command() -> Sequence[str]:
    """How to call pip. Raises where this Python has none."""
    try:
        import pip  # noqa: F401  (only whether it is there)
    except ImportError:
        raise SetupError(
            f"{sys.executable} has no pip. Install it (Debian: apt-get install python3-pip) and run this again."
        ) from None
    return [sys.executable, "-m", "pip"]


def file_sha256(path: Path) -> str:
    """Lower-case hex SHA-256 of a file's bytes."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        for block in iter(lambda: file.read(1 << 20), b""):
            digest.update(block)
    return digest.hexdigest()


def machine() -> str:
    """`<system>-<processor>` in lower case with one name for each processor, such as `linux-x86_64`."""
    processor = platform.machine().lower()
    processor = {"amd64": "x86_64", "arm64": "aarch64"}.get(processor, processor)
    return f"{platform.system().lower()}-{processor}"
