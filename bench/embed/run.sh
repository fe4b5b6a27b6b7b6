#!/bin/sh
# Throughput of the in-process embedder against onnxruntime in Python: same model, same sentences, same threads.
# Installs what it needs under .cortex and builds the release binary; options go to compare.py (--help).
set -eu
cd "$(dirname "$0")/../.."

packages=.cortex/bench-embed
requirements=bench/embed/requirements.txt
python3 tools/model/prepare.py .cortex/model >&2
if ! cmp -s "$requirements" "$packages/installed.txt"; then
    rm -rf "$packages"
    python3 -m pip install --quiet --disable-pip-version-check --no-deps --only-binary=:all: \
        --target "$packages" --requirement "$requirements" >&2
    cp "$requirements" "$packages/installed.txt"
fi
cargo build --quiet --release -p cortex-sidecar --example embed_bench
PYTHONPATH="$packages" exec python3 bench/embed/compare.py \
    --ours "${CARGO_TARGET_DIR:-target}/release/examples/embed_bench" --model .cortex/model "$@"
