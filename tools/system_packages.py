"""Packages of the distribution: installed only after saying so, and only where we may."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import List, Optional, Sequence

import places
from places import SetupError
from progress import Progress, Step, run_logged

_APT_LISTS = Path("/var/lib/apt/lists")
# apt's own defaults, stated so that no local setting can weaken them: nothing unsigned is taken.
_SIGNED_ONLY = (
    "-o", "APT::Get::AllowUnauthenticated=false",
    "-o", "Acquire::AllowInsecureRepositories=false",
)


def has_apt() -> bool:
    """Whether this is a distribution of Debian's family."""
    return shutil.which("apt-get") is not None


def install(step: Step, progress: Progress, packages: Sequence[str], why: str) -> None:
    """Installs packages with apt. Raises with the command to run where there is no apt or no right to use it."""
    wanted = " ".join(packages)
    if not has_apt():
        raise SetupError(f"{why}, and there is no apt here. Install what Debian calls {wanted} and run this again.")
    prefix = _privilege()
    if prefix is None:
        raise SetupError(f"{why}, and this user may not install packages. Run: sudo apt-get install {wanted}")
    progress.note(f"installing from the distribution: {wanted} ({why})")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    update_lists(step, only_if_missing=True)
    command = [*prefix, "apt-get", *_SIGNED_ONLY, "install", "-y", "--no-install-recommends", *packages]
    try:
        run_logged(step, command, log="apt", env=environment)
    except SetupError:
        # Lists that are older than the archive name files that are gone from it.
        update_lists(step, only_if_missing=False)
        run_logged(step, command, log="apt", env=environment)


def update_lists(step: Step, only_if_missing: bool) -> bool:
    """Fetches the package lists. Returns False where we may not."""
    prefix = _privilege()
    if only_if_missing and any(_APT_LISTS.glob("*Packages*")):
        return True
    if prefix is None:
        return False
    run_logged(step, [*prefix, "apt-get", *_SIGNED_ONLY, "update"], log="apt")
    return True


def download(step: Step, package: str, folder: Path) -> Path:
    """Downloads the package that the configured archives serve, without installing it. apt checks its signature."""
    if not has_apt():
        raise SetupError(f"there is no apt here to download {package} with")
    update_lists(step, only_if_missing=True)
    command = ["apt-get", *_SIGNED_ONLY, "download", package]
    try:
        run_logged(step, command, log="apt", cwd=folder)
    except SetupError:
        if not update_lists(step, only_if_missing=False):
            raise
        run_logged(step, command, log="apt", cwd=folder)
    found = list(folder.glob(f"{package}_*.deb"))
    if len(found) != 1:
        raise SetupError(f"apt-get download {package} left {len(found)} files where one was expected")
    return found[0]


def listed_sha256(package: str, version: str) -> Optional[str]:
    """The SHA-256 that the signed package lists give for a version, or None if they do not list it."""
    shown = subprocess.run(
        ["apt-cache", "show", f"{package}={version}"], stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    for line in shown.stdout.splitlines():
        if line.startswith("SHA256:"):
            return line.split(":", 1)[1].strip()
    return None


def _privilege() -> Optional[List[str]]:
    """What to put before a command that needs root, or None where we cannot become root without a question."""
    if places.is_root():
        return []
    if shutil.which("sudo"):
        asked = subprocess.run(["sudo", "-n", "true"], stdin=subprocess.DEVNULL, capture_output=True)
        if asked.returncode == 0:
            return ["sudo", "-n"]
    return None
