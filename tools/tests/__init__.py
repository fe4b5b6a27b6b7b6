"""Tests of the tools: `python3 -m unittest discover -s tools/tests -t tools`."""
