#!/bin/sh
# Verifies a trace with 12 pieces of evidence offline, L0 to L2, on one core, and compares the rate with the bound.
# Exit code 1 if the bound is missed.
set -e
cd "$(dirname "$0")/../.."
exec cargo run --quiet --release -p cortex-conformance --no-default-features --example verify_rate
