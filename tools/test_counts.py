"""Counts of passed and failed tests, read from what test runners print."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Counts:
    """How many tests passed, failed, and were skipped or ignored."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0

    def __add__(self, other: "Counts") -> "Counts":
        return Counts(self.passed + other.passed, self.failed + other.failed, self.skipped + other.skipped)


# What nextest calls a test that did not pass.
_NEXTEST_FAILURES = ("failed", "timed out", "exec failed")


def from_nextest(output: str) -> Counts:
    """From the last line `Summary [...] 3 tests run: 2 passed (1 slow), 1 failed, 4 skipped`.

    Tests that were cancelled before they ran (`2/3 tests run`) count as failed.
    """
    found = re.findall(r"^\s*Summary \[[^\]]*\]\s+(?:(\d+)/)?(\d+) tests? run: (.*)$", output, re.MULTILINE)
    if not found:
        return Counts()
    ran, planned, results = found[-1]
    number = dict((kind, int(count)) for count, kind in re.findall(r"(\d+) ([a-z][a-z ]*[a-z])", results))
    not_run = int(planned) - int(ran) if ran else 0
    failed = sum(number.get(kind, 0) for kind in _NEXTEST_FAILURES) + not_run
    return Counts(number.get("passed", 0), failed, number.get("skipped", 0))


def from_cargo_test(output: str) -> Counts:
    """The sum over the lines `test result: ok. 2 passed; 0 failed; 1 ignored; ...`, one for each test binary."""
    total = Counts()
    for passed, failed, ignored in re.findall(
        r"^test result: \w+\. (\d+) passed; (\d+) failed; (\d+) ignored;", output, re.MULTILINE
    ):
        total += Counts(int(passed), int(failed), int(ignored))
    return total


def from_unittest(output: str) -> Counts:
    """From the last lines `Ran 5 tests in 0.1s` and `FAILED (failures=1, errors=1, skipped=1)` or `OK`."""
    ran = re.findall(r"^Ran (\d+) tests? in ", output, re.MULTILINE)
    verdict = re.findall(r"^(OK|FAILED|NO TESTS RAN)(?: \((.*)\))?$", output, re.MULTILINE)
    if not ran or not verdict:
        return Counts()
    number = dict((kind, int(count)) for kind, count in re.findall(r"([a-z ]+)=(\d+)", verdict[-1][1] or ""))
    number = {kind.strip(): count for kind, count in number.items()}
    failed = number.get("failures", 0) + number.get("errors", 0) + number.get("unexpected successes", 0)
    skipped = number.get("skipped", 0)
    # An error outside a test, in setUpClass say, is counted as an error but not as a test that ran.
    return Counts(max(0, int(ran[-1]) - failed - skipped), failed, skipped)
