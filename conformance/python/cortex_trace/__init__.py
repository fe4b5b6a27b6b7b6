"""A second verifier of Cortex traces, written from the documented rules and sharing no code with the first.

It needs the standard library and the package `blake3`. `offline.verify` takes the bytes of a trace and, for level
L2, those of its evidence file, and returns the same report as the program `cortex-verify`.
"""
