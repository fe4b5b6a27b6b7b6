"""Which server processes belong to a data folder, and which ports are free: questions to the operating system."""

from __future__ import annotations

import os
import socket
import subprocess
from pathlib import Path
from typing import List, Optional


def recorded_pid(data: Path) -> Optional[int]:
    """The process id in the first line of `postmaster.pid`, whether or not it is alive, or None."""
    try:
        first = (data / "postmaster.pid").read_text(encoding="utf-8", errors="replace").split("\n", 1)[0]
        return int(first)
    except (OSError, ValueError):
        return None


def says_ready(data: Path, pid: int) -> bool:
    """Whether `postmaster.pid` is of this process and its eighth line, the server's state, says ready."""
    try:
        lines = (data / "postmaster.pid").read_text(encoding="utf-8", errors="replace").split("\n")
    except OSError:
        return False
    return len(lines) >= 8 and lines[0].strip() == str(pid) and lines[7].strip() == "ready"


def serves(pid: int, data: Path) -> bool:
    """Whether the process is alive and works in the data folder, as every PostgreSQL process does."""
    if Path("/proc/self/cwd").exists():
        return _working_folder(pid) == os.path.realpath(data) and not _is_zombie(pid)
    shown = subprocess.run(["ps", "-o", "stat=,command=", "-p", str(pid)], capture_output=True, text=True).stdout
    return str(data) in shown and not shown.startswith("Z")


def processes_in(data: Path) -> List[int]:
    """Server processes of the data folder. Empty where there is no /proc; the server then waits for them itself."""
    proc = Path("/proc")
    if not (proc / "self/cwd").exists():
        return []
    found = []
    for entry in proc.iterdir():
        if entry.name.isdigit() and serves(int(entry.name), data) and _program(int(entry.name)) == "postgres":
            found.append(int(entry.name))
    return found


def _working_folder(pid: int) -> Optional[str]:
    try:
        return os.readlink(f"/proc/{pid}/cwd")
    except OSError:
        return None


def _program(pid: int) -> str:
    try:
        return os.path.basename(os.readlink(f"/proc/{pid}/exe").replace(" (deleted)", ""))
    except OSError:
        return ""


def _is_zombie(pid: int) -> bool:
    try:
        # The state follows the program's name, which is in parentheses and may hold anything.
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0] == "Z"
    except (OSError, IndexError):
        return True


def free_port() -> int:
    """A TCP port that nobody uses on 127.0.0.1 at this moment."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def port_is_free(port: int) -> bool:
    """Whether a server could listen on 127.0.0.1 at this port now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As the server does, so that connections in TIME_WAIT do not count as taken.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
