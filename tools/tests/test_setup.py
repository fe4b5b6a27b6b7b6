"""Set-up: its lines of JSON, the PostgreSQL it accepts, and downloads that are not what was pinned."""

import io
import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import embedded_postgres
import extension_build
import fetch
import progress as reporting
import setup
from places import SetupError
from progress import Progress

_PROGRAM = str(Path(setup.__file__))


class Lines(unittest.TestCase):
    def records(self, body):
        out = io.StringIO()
        body(Progress(as_json=True, out=out))
        records = [json.loads(line) for line in out.getvalue().splitlines()]
        for record in records:
            self.assertEqual(list(record), ["step", "ok", "ms", "detail"])
            self.assertIsInstance(record["ms"], int)
        return records

    def test_one_object_a_step(self):
        def body(progress):
            with progress.step("one") as step:
                step.say("working\non it")
                step.detail = "done: \"quoted\"\nsecond line"
            progress.note("goes elsewhere")
            with progress.step("two"):
                pass

        records = self.records(body)
        self.assertEqual([(r["step"], r["ok"], r["detail"]) for r in records],
                         [("one", True, "done: \"quoted\"\nsecond line"), ("two", True, "")])

    def test_failures_are_told_and_raised(self):
        def failing(error, raised):
            def body(progress):
                with self.assertRaises(raised), progress.step("bad"):
                    raise error
            return body

        self.assertEqual(self.records(failing(SetupError("no luck"), SetupError))[0]["detail"], "no luck")
        self.assertFalse(self.records(failing(SetupError("no luck"), SetupError))[0]["ok"])
        self.assertIn("gone", self.records(failing(FileNotFoundError(2, "gone", "f"), SetupError))[0]["detail"])
        self.assertFalse(self.records(failing(ZeroDivisionError(), ZeroDivisionError))[0]["ok"])

    def test_for_people_a_line_names_step_time_and_result(self):
        out = io.StringIO()
        progress = Progress(out=out)
        with progress.step("one") as step:
            step.detail = "done"
        with self.assertRaises(SetupError), progress.step("two"):
            raise SetupError("broken")
        first, second = out.getvalue().splitlines()
        self.assertRegex(first, r"^ok +one +\d+\.\d s +done$")
        self.assertRegex(second, r"^FAILED +two +\d+\.\d s +broken$")

    def test_the_program_prints_json_and_its_status(self):
        good = subprocess.run([sys.executable, _PROGRAM, "postgres", "--json"], capture_output=True, text=True,
                              env={**os.environ, "PG_CONFIG": ""})
        self.assertEqual(good.returncode, 0, good.stdout)
        record = json.loads(good.stdout)
        self.assertEqual((record["step"], record["ok"]), ("postgres 18", True))
        bad = subprocess.run([sys.executable, _PROGRAM, "postgres", "model", "--json"], capture_output=True, text=True,
                             env={**os.environ, "PG_CONFIG": "/nonexistent/pg_config"})
        self.assertEqual(bad.returncode, 1)
        record = json.loads(bad.stdout)  # one line: what follows a failed step is not run
        self.assertFalse(record["ok"])
        self.assertIn("PG_CONFIG=/nonexistent/pg_config", record["detail"])


class Commands(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.addCleanup(setattr, reporting, "LOGS", reporting.LOGS)
        reporting.LOGS = Path(folder.name)
        self.step = reporting.Step("test")

    def run_python(self, code):
        return reporting.run_logged(self.step, [sys.executable, "-c", code], log="test")

    def log(self):
        return (reporting.LOGS / "test.log").read_text()

    def test_output_is_returned_logged_and_shown(self):
        self.assertEqual(self.run_python("print('one'); print('two'); print()"), "one\ntwo\n\n")
        self.assertIn("one\ntwo\n", self.log())
        self.assertEqual(self.step.status, "two")

    def test_failure_names_log_and_last_lines(self):
        with self.assertRaisesRegex(SetupError, r"(?s)status 3.*test\.log.*the reason"):
            self.run_python("import sys; print('the reason', file=sys.stderr); sys.exit(3)")
        self.assertIn("exit status 3", self.log())

    def test_no_input_and_no_program(self):
        self.assertEqual(self.run_python("import sys; print(repr(sys.stdin.read()))"), "''\n")
        with self.assertRaisesRegex(SetupError, "no-such-program"):
            reporting.run_logged(self.step, ["no-such-program"], log="test")


class OtherPostgres(unittest.TestCase):
    """PG_CONFIG names an installation of somebody else, good or not."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.place = Path(folder.name)
        self.out = io.StringIO()

    def inspect(self, version, pgvector="0.8.5", headers=True):
        (self.place / "extension").mkdir(exist_ok=True)
        control = self.place / "extension" / "vector.control"
        control.unlink() if control.exists() else None
        if pgvector:
            control.write_text(f"comment = 'vectors'\ndefault_version = '{pgvector}'\n")
        if headers:
            (self.place / "postgres.h").write_text("")
        program = self.place / "pg_config"
        program.write_text(
            f"#!/bin/sh\ncase $1 in --version) echo '{version}';; *) echo '{self.place}';; esac\n")
        program.chmod(0o755)
        return embedded_postgres.inspect(program, Progress(out=self.out))

    def test_versions_inside_and_outside(self):
        for version, major in (("PostgreSQL 14.0", 14), ("PostgreSQL 15.20 (Debian 15.20-0+deb12u1)", 15),
                               ("PostgreSQL 18beta1", 18), ("PostgreSQL 18.4", 18)):
            with self.subTest(version):
                self.assertEqual(self.inspect(version).major, major)
        for version in ("PostgreSQL 13.20", "PostgreSQL 19devel", "PostgreSQL 9.6.24", "something else", ""):
            with self.subTest(version), self.assertRaises(SetupError):
                self.inspect(version)

    def test_pgvector_inside_and_outside(self):
        for version in (None, "0.7.4", "0.5"):
            with self.subTest(version), self.assertRaisesRegex(SetupError, "pgvector"):
                self.inspect("PostgreSQL 15.1", version)
        for version, warned in (("0.8.0", True), ("0.8.3", True), ("0.8.4", False), ("0.10.0", False), ("1.0.0", False)):
            self.out = io.StringIO()
            with self.subTest(version):
                self.assertEqual(self.inspect("PostgreSQL 15.1", version).pgvector, version)
                self.assertEqual("warning" in self.out.getvalue(), warned)

    def test_missing_headers_and_programs(self):
        with self.assertRaisesRegex(SetupError, "server headers"):
            self.inspect("PostgreSQL 15.1", headers=False)
        with self.assertRaisesRegex(SetupError, "PG_CONFIG"):
            embedded_postgres.inspect(self.place / "nothing")

    def test_no_such_embedded_version(self):
        with self.assertRaisesRegex(SetupError, "no embedded PostgreSQL 17"):
            embedded_postgres.pg_config_path(17)


class Libclang(unittest.TestCase):
    def found_among(self, *names):
        with tempfile.TemporaryDirectory() as folder:
            for name in names:
                (Path(folder) / name).touch()
            with mock.patch.dict(os.environ, {"LIBCLANG_PATH": folder}):
                found = extension_build._find_libclang()
            return found and found.name

    def test_the_library_that_reads_c_and_no_other(self):
        for name in ("libclang.so", "libclang-14.so.14", "libclang.so.1"):
            self.assertEqual(self.found_among("libclang-cpp.so.14", name), name)
        self.assertIsNone(self.found_among("libclang-cpp.so.14", "libclang-cpp.so", "libclang_shared.so"))


class Downloads(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        for module, name in ((fetch, "DOWNLOADS"), (fetch, "run_logged"), (fetch, "pip_command")):
            self.addCleanup(setattr, module, name, getattr(module, name))
        fetch.DOWNLOADS = Path(folder.name)
        fetch.run_logged = self.pip
        fetch.pip_command = lambda: ["pip"]
        self.served = b"the pinned bytes"
        self.calls = 0
        self.wheel = fetch.Wheel("p", "1", "p-1.whl", self.sha256(self.served))

    @staticmethod
    def sha256(content):
        with tempfile.NamedTemporaryFile() as file:
            file.write(content)
            file.flush()
            return fetch.file_sha256(Path(file.name))

    def pip(self, step, command, *, log):
        self.calls += 1
        self.assertIn("--require-hashes", command)
        requirement = Path(command[command.index("--requirement") + 1]).read_text()
        self.assertEqual(requirement, f"p==1 --hash=sha256:{self.wheel.sha256}\n")
        (Path(command[command.index("--dest") + 1]) / "p-1.whl").write_bytes(self.served)

    def fetch(self):
        return fetch.wheel(reporting.Step("test"), self.wheel)

    def test_fetched_once(self):
        self.assertEqual(self.fetch().read_bytes(), b"the pinned bytes")
        self.fetch()
        self.assertEqual(self.calls, 1)

    def test_damaged_copy_is_fetched_again(self):
        self.fetch().write_bytes(b"the pinned byteS")
        self.assertEqual(self.fetch().read_bytes(), b"the pinned bytes")

    def test_other_bytes_are_refused_and_not_kept(self):
        self.served = b"the pinned byteS"
        with self.assertRaisesRegex(SetupError, "expected"):
            self.fetch()
        self.assertEqual(list(fetch.DOWNLOADS.iterdir()), [])

    def test_known_digest(self):
        self.assertEqual(self.sha256(b"abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad")


if __name__ == "__main__":
    unittest.main()
