"""Counting tests: from the words of each runner, and never green when nothing ran."""

import contextlib
import io
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import test as driver
import test_counts
from test_counts import Counts

_CARGO = """
running 3 tests
test a ... ok
test result: ok. 2 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s

     Running tests/x.rs (target/debug/deps/x-1)
test says ... test result: ok. 9 passed; 9 failed; 9 ignored; in the middle of a line
test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s
"""


class Runners(unittest.TestCase):
    def test_nextest(self):
        for line, counts in {
            "     Summary [   0.012s] 12 tests run: 12 passed, 0 skipped": Counts(12, 0, 0),
            "     Summary [  61.012s] 12 tests run: 9 passed (1 slow, 1 flaky), 2 failed, 1 timed out, 3 skipped": Counts(9, 3, 3),
            "     Summary [   0.001s] 1 test run: 0 passed, 1 exec failed, 0 skipped": Counts(0, 1, 0),
            "     Summary [   0.1s] 2/5 tests run: 1 passed, 1 failed, 0 skipped": Counts(1, 4, 0),
            "error: could not compile `x`": Counts(),
            "     Summary of something else: 12 passed": Counts(),
        }.items():
            with self.subTest(line):
                self.assertEqual(test_counts.from_nextest(f"noise\n{line}\nerror: test run failed\n"), counts)

    def test_cargo_test(self):
        self.assertEqual(test_counts.from_cargo_test(_CARGO), Counts(3, 2, 1))
        self.assertEqual(test_counts.from_cargo_test("error[E0425]: cannot find value"), Counts())

    def test_unittest_as_it_prints_here(self):
        for body, counts in {
            "def test_a(self): pass": Counts(1, 0, 0),
            "def test_a(self): self.fail()\n    def test_b(self): pass": Counts(1, 1, 0),
            "def test_a(self): raise OSError\n    def test_b(self): self.skipTest('no')": Counts(0, 1, 1),
            "@unittest.expectedFailure\n    def test_a(self): self.fail()": Counts(1, 0, 0),
            "@unittest.expectedFailure\n    def test_a(self): pass": Counts(0, 1, 0),
            "@classmethod\n    def setUpClass(cls): raise OSError\n    def test_a(self): pass": Counts(0, 1, 0),
            "pass": Counts(0, 0, 0),
        }.items():
            with self.subTest(body), tempfile.TemporaryDirectory() as folder:
                (Path(folder) / "test_x.py").write_text(f"import unittest\nclass T(unittest.TestCase):\n    {body}\n")
                ran = subprocess.run([sys.executable, "-m", "unittest", "discover", "-s", folder],
                                     capture_output=True, text=True)
                self.assertEqual(test_counts.from_unittest(ran.stderr), counts, ran.stderr)


class Judgement(unittest.TestCase):
    part = driver.Part("p", ["true"], test_counts.from_cargo_test)

    def judge(self, output, status):
        return driver.judge(self.part, output, status, 0.0)

    def test_green_needs_tests_and_status(self):
        good = "test result: ok. 2 passed; 0 failed; 0 ignored; \n"
        bad = "test result: FAILED. 1 passed; 1 failed; 0 ignored; \n"
        empty = "test result: ok. 0 passed; 0 failed; 5 ignored; \n"
        self.assertEqual(self.judge(good, 0).total(), Counts(2, 0))
        self.assertEqual(self.judge(bad, 101).total(), Counts(1, 1))
        self.assertEqual(self.judge(good, 101).total(), Counts(2, 1), "a later binary did not compile")
        self.assertEqual(self.judge("", 101).total(), Counts(0, 1), "nothing compiled")
        self.assertEqual(self.judge("", 0).total(), Counts(0, 1), "nothing ran")
        self.assertEqual(self.judge(empty, 0).total().failed, 1, "all were ignored")

    def test_a_command_that_does_not_exist_is_a_failure(self):
        outcome = driver.run_part(driver.Part("p", ["no-such-program"], test_counts.from_unittest), {}, lambda line: None)
        self.assertEqual(outcome.total(), Counts(0, 1))

    def test_report_ends_in_the_sum(self):
        def report(*outcomes):
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                status = driver.report(outcomes)
            return status, out.getvalue().splitlines()[-1]

        good, bad = driver.Outcome("a", Counts(3, 0, 1), 0.1), driver.Outcome("b", Counts(2, 1), 0.1)
        self.assertEqual(report(good), (0, "3 passed, 0 failed"))
        self.assertEqual(report(good, bad), (1, "5 passed, 1 failed"))
        self.assertEqual(report(good, driver.Outcome("c", Counts(), 0.0, "no server")), (1, "3 passed, 1 failed"))
        self.assertEqual(report(), (1, "0 passed, 0 failed"))


class WhichTestsUseAServer(unittest.TestCase):
    def test_by_the_variable_they_read(self):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            (folder / "common").mkdir()
            (folder / "common" / "mod.rs").write_text('std::env::var("CORTEX_TEST_PG18_URL")')
            for text, uses in {
                'env!("CORTEX_TEST_PG16_URL")': True,
                "mod common;\n": True,
                "#[path = \"x\"]\npub(crate) mod common;": True,
                "mod commoner;\n": False,
                "// mod common\n": False,
            }.items():
                (folder / "t.rs").write_text(text)
                with self.subTest(text):
                    self.assertEqual(driver._uses_server(folder / "t.rs", {}), uses)

    def test_unit_tests_are_seen(self):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            (folder / "deep").mkdir()
            for text, has in {
                "#[test]\nfn a() {}": True,
                "    #[tokio::test(flavor = \"multi_thread\")]": True,
                "proptest! {": True,
                "#[cfg(test)]\nmod tests;": False,
                "pub fn test() {}": False,
            }.items():
                (folder / "deep" / "m.rs").write_text(text)
                with self.subTest(text):
                    self.assertEqual(driver._has_unit_tests(folder), has)

    def test_by_the_library_they_use(self):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            test, with_server, without = (folder / file for file in ("t.rs", "with.rs", "without.rs"))
            with_server.write_text('setting("CORTEX_TEST_PG_URL")')
            without.write_text("nothing of the kind")
            for text, library, uses in (
                ("use helper::Database;", {"helper": with_server}, True),
                ("use helper::Database;", {"helper": without}, False),
                ("use helpers::Database;", {"helper": with_server}, False),
                ("", {"helper": with_server}, False),
            ):
                test.write_text(text)
                with self.subTest(text):
                    self.assertEqual(driver._uses_server(test, library), uses)


if __name__ == "__main__":
    unittest.main()
