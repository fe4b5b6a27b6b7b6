"""Named steps with their time: lines for people, or one JSON object a line for programs.

For people a step prints its name, keeps one status line up to date on a terminal (elapsed time and the last
line of what it runs), and ends in one line with its result. Output of commands goes to `.cortex/log/`.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import Iterator, Mapping, Optional, Sequence

from places import LOGS, SetupError

_NAME_WIDTH = 18
# Without a terminal a long step says every so often that it is alive, so that no watcher takes it for hung.
_QUIET_SECONDS = 30.0


class Step:
    """A running step. `detail` ends up in its result line; `say` shows what it is doing now."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.detail = ""
        self.status = ""
        self.started = time.monotonic()

    def say(self, text: str) -> None:
        """Replaces the status text of the step."""
        self.status = " ".join(text.split())

    def elapsed_ms(self) -> int:
        """Milliseconds since the step began."""
        return int((time.monotonic() - self.started) * 1000)


class Progress:
    """Runs steps and reports each. As JSON every step is one line {"step","ok","ms","detail"}."""

    def __init__(self, as_json: bool = False, out=None) -> None:
        self._json = as_json
        self._out = out or sys.stdout
        self._live = not as_json and self._out.isatty()
        self._lock = threading.Lock()

    def note(self, text: str) -> None:
        """A line that belongs to no step's result, such as what is about to be installed. JSON goes to stderr."""
        with self._lock:
            target = sys.stderr if self._json else self._out
            self._clear_status()
            print(f"    {text}", file=target, flush=True)

    @contextmanager
    def step(self, name: str, doing: str = "") -> Iterator[Step]:
        """One step. A SetupError or a failed command inside ends it as failed and is raised again as SetupError."""
        step = Step(name)
        step.say(doing)
        finished = threading.Event()
        ticker = threading.Thread(target=self._tick, args=(step, finished), daemon=True)
        ticker.start()
        failure: Optional[BaseException] = None
        try:
            yield step
        except KeyboardInterrupt:
            failure = SetupError("interrupted")
            raise
        except SetupError as error:
            failure = error
            raise
        except (OSError, subprocess.SubprocessError) as error:
            failure = SetupError(_describe(error))
            raise failure from error
        except BaseException as error:
            failure = error
            raise
        finally:
            finished.set()
            ticker.join()
            self._finish(step, failure)

    def _tick(self, step: Step, finished: threading.Event) -> None:
        if self._json:
            return
        quiet_since = time.monotonic()
        if not self._live and step.status:
            self._print(f"... {step.name:<{_NAME_WIDTH}} {step.status}")
        while not finished.wait(0.2 if self._live else 1.0):
            seconds = step.elapsed_ms() / 1000
            if self._live:
                width = shutil.get_terminal_size().columns - 1
                line = f"... {step.name:<{_NAME_WIDTH}} {seconds:6.1f} s  {step.status}"
                with self._lock:
                    self._out.write("\r\x1b[K" + line[:width])
                    self._out.flush()
            elif time.monotonic() - quiet_since >= _QUIET_SECONDS:
                quiet_since = time.monotonic()
                self._print(f"... {step.name:<{_NAME_WIDTH}} {seconds:6.1f} s  {step.status}")

    def _finish(self, step: Step, failure: Optional[BaseException]) -> None:
        detail = step.detail if failure is None else str(failure) or type(failure).__name__
        if self._json:
            record = {"step": step.name, "ok": failure is None, "ms": step.elapsed_ms(), "detail": detail}
            self._print(json.dumps(record))
            return
        verdict = "ok " if failure is None else "FAILED"
        self._print(f"{verdict} {step.name:<{_NAME_WIDTH}} {step.elapsed_ms() / 1000:6.1f} s  {detail}")

    def _print(self, line: str) -> None:
        with self._lock:
            self._clear_status()
            print(line, file=self._out, flush=True)

    def _clear_status(self) -> None:
        if self._live:
            self._out.write("\r\x1b[K")


def run_logged(
    step: Step,
    command: Sequence[str],
    *,
    log: str,
    cwd: Optional[Path] = None,
    env: Optional[Mapping[str, str]] = None,
) -> str:
    """Runs a command without input, shows its last line as the step's status, and returns its output.

    Standard output and error go to `.cortex/log/<log>.log` together. Raises SetupError with the last lines
    and the log's place when the command fails or does not exist.
    """
    LOGS.mkdir(parents=True, exist_ok=True)
    path = LOGS / f"{log}.log"
    lines = []
    # By lines, so that a build can be followed in its log.
    with open(path, "a", encoding="utf-8", buffering=1) as record:
        record.write(f"$ {' '.join(command)}\n")
        try:
            process = subprocess.Popen(
                list(command), cwd=cwd, env=dict(os.environ if env is None else env),
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                text=True, encoding="utf-8", errors="replace",
            )
        except FileNotFoundError:
            raise SetupError(f"the program {command[0]} is not installed or not on PATH") from None
        assert process.stdout is not None
        with process:
            try:
                for line in process.stdout:
                    record.write(line)
                    lines.append(line)
                    if line.strip():
                        step.say(line)
            except BaseException:
                process.terminate()
                raise
        code = process.returncode
        record.write(f"exit status {code}\n")
    if code != 0:
        tail = "".join(lines[-25:]).strip() or "(it printed nothing)"
        raise SetupError(f"`{' '.join(command)}` ended with status {code}. Log: {path}. Its last lines:\n{tail}")
    return "".join(lines)


def _describe(error: BaseException) -> str:
    if isinstance(error, subprocess.CalledProcessError):
        said = error.stderr or error.stdout or b""
        text = said.decode("utf-8", "replace") if isinstance(said, bytes) else said
        return f"`{' '.join(map(str, error.cmd))}` ended with status {error.returncode}: {text.strip()}"
    return str(error)
