"""The life of a cluster: made, killed, crowded out, started again, removed, and never anybody else's folder."""

import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

import cluster
import embedded_postgres
import places
import release_notes
import server_process
from cluster import Cluster
from places import SetupError
from progress import Progress

_PROGRAM = str(Path(cluster.__file__))
INSTALLATION = None


def setUpModule():
    global INSTALLATION
    progress = Progress(out=sys.stderr)
    with progress.step("postgres 18") as step:
        INSTALLATION = embedded_postgres.install(step, progress, 18)


class ClusterTest(unittest.TestCase):
    """A folder of its own for each test, with what is left in it destroyed afterwards."""

    def setUp(self):
        self.place = Path(tempfile.mkdtemp(prefix="cortex-test-"))
        self.place.chmod(0o755)
        self.addCleanup(shutil.rmtree, self.place, ignore_errors=True)

    def cluster(self, name="c", parent=None):
        made = Cluster((parent or self.place) / name)
        self.addCleanup(self._destroy, made)
        return made

    def created(self, **options):
        made = self.cluster()
        made.create(INSTALLATION, fsync=False, **options)
        return made

    @staticmethod
    def _destroy(made):
        if (made.folder / cluster.MARKER).is_file() and not made.folder.is_symlink():
            made.destroy()


class Life(ClusterTest):
    def test_create_again_reuses(self):
        made = self.created()
        first, pid = made.facts(), made.running_pid()
        made.psql("CREATE TABLE kept (n int); INSERT INTO kept VALUES (7);")
        again = Cluster(made.folder).create(INSTALLATION)
        self.assertEqual(again, first)
        self.assertEqual(made.running_pid(), pid)
        self.assertTrue(made.stop())
        self.assertIsNone(made.running_pid())
        self.assertFalse(made.stop())
        made.start()
        self.assertEqual(made.psql("SELECT n FROM kept;"), "7")

    def test_is_as_promised(self):
        made = self.created(settings={"work_mem": "7MB", "application_name": "it's \\ here"})
        facts = made.facts()
        self.assertEqual(made.psql("SHOW server_encoding;"), "UTF8")
        self.assertEqual(made.psql("SELECT datcollate FROM pg_database WHERE datname = 'postgres';"), "C")
        self.assertEqual(made.psql("SHOW fsync; SHOW work_mem; SHOW listen_addresses;"), "off\n7MB\n127.0.0.1")
        self.assertEqual(made.psql("SELECT reset_val FROM pg_settings WHERE name = 'work_mem';"), "7168")
        self.assertEqual(made.psql("CREATE EXTENSION vector; SELECT '[3,4]'::vector <-> '[0,0]';"), "5")
        self.assertEqual(stat.S_IMODE((made.folder / cluster.FACTS).stat().st_mode), 0o600)
        self.assertEqual(stat.S_IMODE(Path(facts.socket_dir).stat().st_mode), 0o700)
        record = json.loads((made.folder / cluster.FACTS).read_text())
        self.assertEqual((record["url"], record["superuser_url"]), (facts.url(tcp=True), facts.url()))
        if places.is_root():
            self.assertNotEqual(Path(facts.data_dir).stat().st_uid, 0)

    def test_tcp_wants_the_password(self):
        made = self.created()
        facts = made.facts()
        psql = [str(Path(facts.bin_dir) / "psql"), "-X", "-A", "-t", "-w", "-c", "SELECT 1", "-d"]
        right = subprocess.run([*psql, facts.url(tcp=True)], capture_output=True, text=True)
        self.assertEqual((right.returncode, right.stdout), (0, "1\n"), right.stderr)
        wrong_url = facts.url(tcp=True).replace(facts.password, "guess")
        wrong = subprocess.run([*psql, wrong_url], capture_output=True, text=True)
        self.assertNotEqual(wrong.returncode, 0)
        self.assertIn("password authentication failed", wrong.stderr)

    def test_socket_only(self):
        made = self.created(tcp=False)
        facts = made.facts()
        self.assertEqual(made.psql("SHOW listen_addresses;"), "")
        self.assertRaises(SetupError, facts.url, tcp=True)
        with socket.socket() as probe:
            self.assertNotEqual(probe.connect_ex(("127.0.0.1", facts.port)), 0)

    def test_another_major_version_is_refused(self):
        made = self.created()
        other = embedded_postgres.Installation(INSTALLATION.pg_config, INSTALLATION.bin_dir, 16, "16.0", "0.8.5")
        with self.assertRaisesRegex(SetupError, "PostgreSQL 18 cluster, not 16"):
            made.create(other)

    def test_bad_settings_are_refused(self):
        for name in ("", "a b", "x'; port", "1st", "fsync=on"):
            with self.subTest(name), self.assertRaises(SetupError):
                self.cluster().create(INSTALLATION, settings={name: "1"})
        with self.assertRaises(SetupError):
            self.created(settings={"work_mem": "1MB'\nport = '1"})

    def test_a_setting_that_postgres_refuses_shows_its_reason(self):
        with self.assertRaisesRegex(SetupError, "no_such_setting"):
            self.created(settings={"no_such_setting": "1"})

    def test_loads_release_notes_to_the_byte(self):
        made = self.created()
        rows = self.place / "rows.jsonl"
        bodies = ["tab\there", "back\\slash \\N \\. \\t", "line\n\nbreak\r", "\\.", "caf\u00e9 \U0001f600 '\"", "\\N"]
        rows.write_text("".join(
            json.dumps({"id": n, "version": "15", "released_on": None, "section": "", "body": body}) + "\n"
            for n, body in enumerate(bodies)), encoding="utf-8")
        self.assertEqual(release_notes.load(made.psql, rows), (len(bodies), True))
        stored = json.loads(made.psql("SELECT json_agg(body ORDER BY id) FROM release_note WHERE released_on IS NULL;"))
        self.assertEqual(stored, bodies)
        made.psql("DELETE FROM release_note WHERE id > 1;")
        self.assertEqual(release_notes.load(made.psql, rows), (2, False))


class Crashes(ClusterTest):
    def test_killed_server_with_a_busy_backend(self):
        made = self.created()
        made.psql("CREATE TABLE kept (n int); INSERT INTO kept VALUES (7);")
        facts, pid = made.facts(), made.running_pid()
        busy = subprocess.Popen(
            [str(Path(facts.bin_dir) / "psql"), "-X", "-d", facts.url(), "-c", "DO $$ BEGIN LOOP PERFORM 1; END LOOP; END $$"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(busy.wait)
        self.wait_for(lambda: made.psql("SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'DO %';") == "1")
        os.kill(pid, signal.SIGKILL)
        self.wait_for(lambda: made.running_pid() is None)
        self.assertTrue(server_process.processes_in(Path(facts.data_dir)), "the busy backend should have outlived its server")
        made.start()
        self.assertNotEqual(made.running_pid(), pid)
        self.assertEqual(made.psql("SELECT n FROM kept;"), "7")

    def test_killed_server_may_be_destroyed(self):
        made = self.created()
        os.kill(made.running_pid(), signal.SIGKILL)
        self.assertTrue(made.destroy())
        self.assertFalse(made.folder.exists())

    def test_stale_lock_that_names_another_process(self):
        made = self.created()
        data = Path(made.facts().data_dir)
        lock = (data / "postmaster.pid").read_text().split("\n")
        made.stop()
        # Alive, of the server's user where there is one, and not a server.
        user = places.server_user()
        other = subprocess.Popen(["sleep", "600"], cwd="/", **(user.as_popen_arguments() if user else {}))
        self.addCleanup(other.wait)
        self.addCleanup(other.kill)
        (data / "postmaster.pid").write_text("\n".join([str(other.pid), *lock[1:]]))
        if user:
            os.chown(data / "postmaster.pid", user.uid, user.gid)
        self.assertIsNone(made.running_pid())
        made.start()
        self.assertIsNone(other.poll(), "a process that is not ours was ended")
        self.assertEqual(made.psql("SELECT 1;"), "1")

    def test_taken_port(self):
        made = self.created()
        port = made.facts().port
        made.stop()
        with socket.socket() as taker:
            taker.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            taker.bind(("127.0.0.1", port))
            taker.listen()
            facts = made.start()
            self.assertNotEqual(facts.port, port)
            self.assertEqual(made.facts(), facts)
            self.assertEqual(made.psql("SHOW port;"), str(facts.port))

    def test_interrupted_creation(self):
        made = self.cluster()
        made.folder.mkdir()
        (made.folder / cluster.MARKER).write_text("")
        (made.folder / "data.new").mkdir()
        (made.folder / "data.new" / "half").write_text("a cluster")
        made.create(INSTALLATION, fsync=False)
        self.assertEqual(made.psql("SELECT 1;"), "1")
        self.assertFalse((made.folder / "data.new").exists())

    def test_damaged_facts(self):
        made = self.created()
        pid = made.running_pid()
        for damage in ("", "{}", "[]", '{"format": 99}', '{"format": 1}'):
            (made.folder / cluster.FACTS).write_text(damage)
            with self.subTest(damage), self.assertRaisesRegex(SetupError, "damaged"):
                made.facts()
        self.assertTrue(made.destroy())
        self.assertFalse(server_process.serves(pid, made.folder / "data"))

    def test_two_at_once_make_one(self):
        folder = self.cluster().folder
        command = [sys.executable, _PROGRAM, "create", "--dir", str(folder), "--no-fsync", "--json",
                   "--pg-config", str(INSTALLATION.pg_config)]
        both = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)]
        answers = [process.communicate() for process in both]
        self.assertEqual([process.returncode for process in both], [0, 0], answers)
        facts = [json.loads(out) for out, _ in answers]
        self.assertEqual(facts[0], facts[1])

    def wait_for(self, condition):
        deadline = time.monotonic() + 30
        while not condition():
            self.assertLess(time.monotonic(), deadline, "waited in vain")
            time.sleep(0.05)


class Folders(ClusterTest):
    def test_destroy_refuses_what_is_not_ours(self):
        foreign = self.place / "foreign"
        foreign.mkdir()
        (foreign / "thesis.txt").write_text("ten years")
        self.assertRaisesRegex(SetupError, "not a cluster of ours", Cluster(foreign).destroy)
        self.assertEqual((foreign / "thesis.txt").read_text(), "ten years")
        self.assertFalse(Cluster(self.place / "nothing").destroy())

    def test_destroy_refuses_a_link(self):
        made = self.created()
        link = self.place / "link"
        link.symlink_to(made.folder)
        self.assertRaisesRegex(SetupError, "symbolic link", Cluster(link).destroy)
        self.assertIsNotNone(made.running_pid())

    def test_destroy_removes_nothing_beside(self):
        made = self.created()
        (self.place / "beside").write_text("stays")
        self.assertTrue(made.destroy())
        self.assertEqual([path.name for path in self.place.iterdir()], ["beside"])

    def test_create_refuses_a_folder_with_other_things(self):
        foreign = self.place / "foreign"
        foreign.mkdir()
        (foreign / "data").mkdir()
        self.assertRaisesRegex(SetupError, "not empty", Cluster(foreign).create, INSTALLATION)
        self.assertEqual([path.name for path in foreign.iterdir()], ["data"])

    def test_long_path_gets_a_short_socket(self):
        made = self.cluster("d" * 60, parent=self.place / ("e" * 60))
        facts = made.create(INSTALLATION, fsync=False)
        self.assertEqual(Path(facts.socket_dir).parent, Path("/tmp"))
        self.assertEqual(made.psql("SELECT 1;"), "1")
        made.stop()
        shutil.rmtree(facts.socket_dir)  # as cleaners of /tmp do
        made.start()
        self.assertEqual(made.psql("SELECT 1;"), "1")
        made.destroy()
        self.assertFalse(Path(facts.socket_dir).exists())

    def test_socket_path_just_inside_and_just_outside_the_limit(self):
        room = cluster._SOCKET_PATH_LIMIT - len(cluster._LONGEST_SOCKET_NAME) - len("/socket")
        inside, outside = Path("/" + "a" * (room - 1)), Path("/" + "a" * room)
        self.assertEqual(cluster._socket_folder(inside), inside / "socket")
        short = cluster._socket_folder(outside)
        self.addCleanup(short.rmdir)
        self.assertEqual(short.parent, Path("/tmp"))

    def test_odd_names(self):
        made = self.cluster("it's a, \"b\" $x %s")
        made.create(INSTALLATION, fsync=False)
        self.assertEqual(made.psql("SELECT 1;"), "1")

    @unittest.skipUnless(places.is_root(), "only root runs the server as another user")
    def test_folder_that_the_server_cannot_enter(self):
        closed = self.place / "closed"
        closed.mkdir(mode=0o700)
        made = self.cluster(parent=closed)
        facts = made.create(INSTALLATION, fsync=False)
        outside = Path(facts.data_dir).parent
        self.assertNotIn(closed, outside.parents)
        self.assertEqual(made.psql("SELECT 1;"), "1")
        made.destroy()
        self.assertFalse(outside.exists())


class CommandLine(ClusterTest):
    def run_program(self, *arguments):
        return subprocess.run([sys.executable, _PROGRAM, *arguments], capture_output=True, text=True)

    def test_verbs_and_exit_statuses(self):
        folder = str(self.cluster().folder)
        self.assertEqual(self.run_program("status", "--dir", folder).returncode, 4)
        missing = self.run_program("url", "--dir", folder)
        self.assertEqual((missing.returncode, missing.stdout), (1, ""))
        self.assertIn("there is no cluster", missing.stderr)
        made = self.run_program("create", "--dir", folder, "--pg-config", str(INSTALLATION.pg_config), "--no-fsync",
                                "--set", "work_mem=5MB")
        self.assertEqual(made.returncode, 0, made.stderr)
        self.assertEqual(self.run_program("status", "--dir", folder).returncode, 0)
        url = self.run_program("url", "--dir", folder).stdout.strip()
        shown = subprocess.run(
            [str(INSTALLATION.bin_dir / "psql"), "-X", "-A", "-t", "-d", url, "-c", "SHOW work_mem"],
            capture_output=True, text=True)
        self.assertEqual(shown.stdout, "5MB\n", shown.stderr)
        self.assertEqual(json.loads(self.run_program("stop", "--dir", folder, "--json").stdout), {"ok": True, "stopped": True})
        self.assertEqual(self.run_program("status", "--dir", folder).returncode, 3)
        self.assertEqual(self.run_program("destroy", "--dir", folder).returncode, 0)
        self.assertEqual(self.run_program("destroy", "--dir", folder).returncode, 0)
        refused = self.run_program("destroy", "--dir", str(self.place), "--json")
        self.assertEqual((refused.returncode, json.loads(refused.stdout)["ok"]), (1, False))


if __name__ == "__main__":
    unittest.main()
