"""Where the project keeps what it installs for itself, and who may reach it.

Everything lies under `<repo>/.cortex`. One case needs more: PostgreSQL refuses to run as root, so root runs
it as another user, and a clone under a private folder (`/root`, say) is out of that user's reach. Then the
Postgres installation and the data of clusters go to `/var/lib/cortex/<name of this clone>`, and `.cortex/pg`
is a link to it.
"""

from __future__ import annotations

import hashlib
import os
import pwd
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Optional

REPO = Path(__file__).resolve().parent.parent
STATE = REPO / ".cortex"
LOGS = STATE / "log"
DOWNLOADS = STATE / "downloads"

# The first of these that exists runs the server when we are root; where none does, the first is created.
_CREATED_USER = "cortex-pg"
_KNOWN_USERS = ("postgres", _CREATED_USER)


class SetupError(Exception):
    """Something the user has to know or do; the text says what was wrong and what helps."""


@dataclass(frozen=True)
class ServerUser:
    """The unprivileged account under which root runs PostgreSQL."""

    name: str
    uid: int
    gid: int

    def as_popen_arguments(self) -> dict:
        """Arguments for `subprocess` that drop root's rights, supplementary groups included."""
        return {"user": self.uid, "group": self.gid, "extra_groups": []}


def is_root() -> bool:
    """True when file permissions do not bind us and PostgreSQL would refuse to start."""
    return os.geteuid() == 0


def server_user(announce: Callable[[str], None] = lambda text: None) -> Optional[ServerUser]:
    """The account that runs servers, or None where we are an ordinary user and run them ourselves.

    Creates `cortex-pg` when there is no suitable account, after telling `announce`.
    """
    if not is_root():
        return None
    for name in _KNOWN_USERS:
        found = _look_up(name)
        if found:
            return found
    if not shutil.which("useradd"):
        raise SetupError(
            "PostgreSQL does not run as root, and there is neither a user to run it as nor `useradd` to make one. "
            f"Create a user named {_CREATED_USER}, or run this as an ordinary user."
        )
    announce(f"creating the system user {_CREATED_USER}, since PostgreSQL does not run as root")
    subprocess.run(
        ["useradd", "--system", "--no-create-home", "--home-dir", "/nonexistent", "--user-group",
         "--shell", "/usr/sbin/nologin", _CREATED_USER],
        check=True, stdin=subprocess.DEVNULL, capture_output=True,
    )
    created = _look_up(_CREATED_USER)
    if not created:
        raise SetupError(f"useradd made no user {_CREATED_USER}. Create it by hand and run this again.")
    return created


def _look_up(name: str) -> Optional[ServerUser]:
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        return None
    return ServerUser(name, entry.pw_uid, entry.pw_gid)


def can_reach(folder: Path, user: Optional[ServerUser]) -> bool:
    """Whether `user` can enter `folder`, or its nearest ancestor that exists. Tried, not computed from modes,
    because access lists and mount options count too."""
    if user is None:
        return True
    while not folder.is_dir():
        folder = folder.parent
    entered = subprocess.run(
        ["/bin/sh", "-c", 'cd -- "$1"', "sh", str(folder)],
        cwd="/", stdin=subprocess.DEVNULL, capture_output=True, **user.as_popen_arguments(),
    )
    return entered.returncode == 0


def shared_home(user: Optional[ServerUser]) -> Path:
    """The folder for files the server's user must reach: `.cortex`, or a place of this clone under /var/lib."""
    if can_reach(STATE, user):
        return STATE
    return Path("/var/lib/cortex") / short_name(REPO)


def short_name(path: Path) -> str:
    """A short, stable name for a path: sixteen hex digits of its hash."""
    return hashlib.sha256(os.fsencode(path)).hexdigest()[:16]


def make_open_folder(folder: Path) -> Path:
    """Creates a folder that every user may enter, whatever the umask, and those above it that are missing."""
    missing = []
    while not folder.is_dir():
        missing.append(folder)
        folder = folder.parent
    for step in reversed(missing):
        step.mkdir(exist_ok=True)
        step.chmod(0o755)
    return missing[0] if missing else folder
