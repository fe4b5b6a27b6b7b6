#!/usr/bin/env python3
"""Brings what Cortex needs, step by step; a step whose result is there already takes no time."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

import embedded_postgres
from places import SetupError
from progress import Progress


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("step", choices=["postgres"])
    parser.add_argument("--pg", type=int, action="append")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    os.umask(0o022)
    progress = Progress(options.json)
    try:
        for major in options.pg or embedded_postgres.EMBEDDED_MAJORS:
            with progress.step(f"postgres {major}") as step:
                found = embedded_postgres.install(step, progress, major)
                step.detail = f"PostgreSQL {found.version} with pgvector {found.pgvector}"
    except SetupError:
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
