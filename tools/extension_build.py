"""Building: cargo-pgrx, the extension, the sidecar."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Dict, List, Optional, Sequence

import fetch
import places
import system_packages
from embedded_postgres import Installation
from places import SetupError
from progress import Progress, Step, run_logged

PGRX_VERSION = "0.18.1"
_TOOLS = places.STATE / "tools"
_STAMPS = places.STATE / "extension"
# What the built extension depends on, beside the compiler and PostgreSQL itself.
_EXTENSION_INPUTS = ("Cargo.toml", "Cargo.lock", "core", "extension", "sql")
_LIBCLANG_PLACES = (
    "/usr/lib/llvm-*/lib", "/usr/lib/*-linux-gnu", "/usr/lib64", "/usr/lib64/llvm*", "/usr/lib", "/usr/local/lib",
    "/opt/homebrew/opt/llvm/lib", "/usr/local/opt/llvm/lib", "/Library/Developer/CommandLineTools/usr/lib",
    "/Applications/Xcode.app/Contents/Developer/Toolchains/XcodeDefault.xctoolchain/usr/lib",
)


def environment(installation: Optional[Installation] = None) -> Dict[str, str]:
    """Our environment with the tools of this clone first on PATH and, if the extension is built for an
    installation, pgrx's settings for that one.

    The settings lie in a folder for each installation, written once: pgrx generates its bindings anew, which
    takes minutes, whenever its settings file is written.
    """
    path = os.pathsep.join([str(_TOOLS / "bin"), os.environ.get("PATH", "")])
    found = {**os.environ, "PATH": path}
    if installation:
        found["PGRX_HOME"] = str(_pgrx_home(installation))
    return found


def _pgrx_home(installation: Installation) -> Path:
    return places.STATE / "pgrx" / places.short_name(installation.pg_config)


def target_dir() -> Path:
    """Where cargo puts what it builds."""
    return Path(os.environ.get("CARGO_TARGET_DIR") or places.REPO / "target").absolute()


# Compilers

def ensure_compilers(step: Step, progress: Progress) -> None:
    """Cargo, a C compiler and libclang, which reads PostgreSQL's headers for the extension's build."""
    if not shutil.which("cargo"):
        raise SetupError("Rust is missing: `cargo` is not on PATH. Install Rust 1.95 or later and run this again.")
    rust = subprocess.run(["rustc", "--version"], cwd=places.REPO, capture_output=True, text=True).stdout.strip()
    if not shutil.which("cc"):
        system_packages.install(step, progress, ["gcc", "libc6-dev"], "a C compiler is needed")
    found = _find_libclang()
    if not found:
        system_packages.install(step, progress, ["libclang-dev"], "libclang is needed to read PostgreSQL's headers")
        found = _find_libclang()
        if not found:
            raise SetupError("libclang is still not found after installing libclang-dev; set LIBCLANG_PATH to its folder")
    step.detail = f"{rust or 'cargo'}, {found}"


def _find_libclang() -> Optional[Path]:
    named = os.environ.get("LIBCLANG_PATH")
    for pattern in ([named] if named else _LIBCLANG_PLACES):
        folders = [Path(pattern)] if named else sorted(Path("/").glob(pattern.lstrip("/")), reverse=True)
        for folder in folders:
            libraries: List[Path] = [folder] if folder.is_file() else []
            for name in ("libclang.so", "libclang-*.so", "libclang.so.*", "libclang-*.so.*", "libclang.dylib"):
                # libclang-cpp is another library: Clang's C++ interface, which bindgen cannot load.
                libraries.extend(path for path in sorted(folder.glob(name)) if not path.name.startswith("libclang-cpp"))
            if libraries:
                return libraries[0]
    return None


# cargo-pgrx

def ensure_pgrx(step: Step, progress: Progress, installations: Sequence[Installation]) -> None:
    """cargo-pgrx in the version of the pgrx crate, told of these installations. Another version of it is not touched."""
    if not shutil.which("cargo"):
        raise SetupError("Rust is missing: `cargo` is not on PATH. Install Rust 1.95 or later and run this again.")
    if _pgrx_version() != PGRX_VERSION:
        progress.note(f"building cargo-pgrx {PGRX_VERSION} into {_TOOLS} (some minutes, once)")
        building = {name: value for name, value in environment().items() if name != "CARGO_TARGET_DIR"}
        run_logged(
            step,
            # Without its default features it needs no OpenSSL headers.
            ["cargo", "install", "--locked", "--no-default-features", "--root", str(_TOOLS),
             "--version", PGRX_VERSION, "cargo-pgrx"],
            log="cargo-pgrx", cwd=places.REPO, env=building,
        )
        if _pgrx_version() != PGRX_VERSION:
            raise SetupError(f"cargo-pgrx was built but does not answer with version {PGRX_VERSION}")
    for found in installations:
        if not (_pgrx_home(found) / "config.toml").is_file():
            run_logged(
                step, ["cargo", "pgrx", "init", "--no-run", f"--pg{found.major}={found.pg_config}"],
                log="cargo-pgrx", cwd=places.REPO, env=environment(found),
            )
    step.detail = f"cargo-pgrx {PGRX_VERSION} for PostgreSQL {', '.join(found.version for found in installations)}"


def _pgrx_version() -> str:
    try:
        answer = subprocess.run(
            ["cargo", "pgrx", "--version"], cwd=places.REPO, env=environment(), stdin=subprocess.DEVNULL,
            capture_output=True, text=True,
        )
    except OSError:
        return ""
    found = re.search(r"cargo-pgrx (\S+)", answer.stdout)
    return found.group(1) if found else ""


# The extension

def install_extension(step: Step, installation: Installation, profile: str) -> None:
    """Builds the extension in a cargo profile, `release` or `dev`, and installs it into a PostgreSQL.

    Nothing happens if the sources, the compiler and the installed library are what they were the last time.
    """
    library = _installed_library(installation)
    stamp = _STAMPS / f"{places.short_name(installation.pg_config)}.json"
    wanted = {"profile": profile, "inputs": _inputs_digest(installation)}
    if _read_json(stamp) == {**wanted, "library": _digest_if_file(library)}:
        step.detail = f"up to date in PostgreSQL {installation.version} ({profile})"
        return
    if not os.access(library.parent, os.W_OK):
        raise SetupError(
            f"this user may not write to {library.parent}, where PostgreSQL {installation.version} looks for extensions. "
            "Run this as a user who may, or unset PG_CONFIG to use the embedded PostgreSQL."
        )
    run_logged(
        step,
        ["cargo", "pgrx", "install", "--manifest-path", str(places.REPO / "extension" / "Cargo.toml"),
         "--profile", profile, "--no-default-features", "--features", f"pg{installation.major}",
         "--pg-config", str(installation.pg_config)],
        # A backtrace of cargo-pgrx would push its message out of the lines that are shown.
        log=f"extension-pg{installation.major}", cwd=places.REPO,
        env={**environment(installation), "NO_COLOR": "1", "RUST_BACKTRACE": "0", "RUST_LIB_BACKTRACE": "0"},
    )
    _let_everyone_read(installation)
    _STAMPS.mkdir(parents=True, exist_ok=True)
    # The inputs again: the build may have written Cargo.lock.
    wanted["inputs"] = _inputs_digest(installation)
    stamp.write_text(json.dumps({**wanted, "library": _digest_if_file(library)}))
    step.detail = f"installed into PostgreSQL {installation.version} ({profile})"


def _installed_library(installation: Installation) -> Path:
    folder = Path(_ask(installation, "--pkglibdir"))
    suffix = ".dylib" if fetch.machine().startswith("darwin") and installation.major >= 16 else ".so"
    return folder / f"cortex{suffix}"


def _let_everyone_read(installation: Installation) -> None:
    """The server may run as another user than the one who builds, whatever that one's umask is."""
    control_folder = Path(_ask(installation, "--sharedir")) / "extension"
    for path in (_installed_library(installation), *control_folder.glob("cortex*")):
        if path.is_file():
            path.chmod(path.stat().st_mode | 0o444)


def _inputs_digest(installation: Installation) -> str:
    digest = hashlib.sha256()
    compiler = subprocess.run(["rustc", "--version", "--verbose"], cwd=places.REPO, capture_output=True, text=True)
    digest.update(f"{compiler.stdout}\0{PGRX_VERSION}\0{installation.version}\0{os.environ.get('RUSTFLAGS', '')}".encode())
    for name in _EXTENSION_INPUTS:
        place = places.REPO / name
        files = [place] if place.is_file() else sorted(path for path in place.rglob("*") if path.is_file())
        for path in files:
            digest.update(os.fsencode(path.relative_to(places.REPO)) + b"\0" + fetch.file_sha256(path).encode())
    return digest.hexdigest()


def _digest_if_file(path: Path) -> str:
    return fetch.file_sha256(path) if path.is_file() else ""


def _read_json(path: Path) -> Optional[Dict]:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def _ask(installation: Installation, option: str) -> str:
    return subprocess.run(
        [str(installation.pg_config), option], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True
    ).stdout.strip()


# The sidecar

def build_sidecar(step: Step) -> Path:
    """Builds the `cortex` binary in release profile and returns its path."""
    run_logged(
        step, ["cargo", "build", "--release", "-p", "cortex-sidecar"], log="sidecar", cwd=places.REPO, env=environment()
    )
    binary = target_dir() / "release" / "cortex"
    if not binary.is_file():
        raise SetupError(f"cargo built the sidecar, but {binary} is not there")
    step.detail = str(binary)
    return binary
