"""A daemon as a child process, with a log file and a pid file.

Everything is synchronous: fixtures and scripts start and end daemons outside any event loop. A daemon runs in
a session of its own, so that Ctrl-C in a terminal reaches only the program that owns it, which then stops its
daemons in order. The pid file also contains the process's start time (field 22 of /proc/PID/stat), since a
pid may be reused later.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path


class LabError(Exception):
    """Raised when a private daemon or tool fails; the message tells what to check."""


class Daemon:
    """A daemon as a child process, which a test starts, pauses, kills and stops."""

    def __init__(
        self, *, name: str, argv: Sequence[str], directory: Path, env: Mapping[str, str] | None = None
    ) -> None:
        """`directory`: for ``NAME.log`` (appended to) and ``NAME.pid``; made if missing.

        `env`: whole environment; None: this process's.
        """
        self.name = name
        self.argv = tuple(argv)
        self.log_path = directory / f"{name}.log"
        self.pid_path = directory / f"{name}.pid"
        self._env = dict(env) if env is not None else None
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Process id of the daemon. Raises LabError if it was not started, or was stopped."""
        if self._process is None:
            raise LabError(f"{self.name} does not run")
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """True while the child has not ended; a paused child is running too."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start the child. Raises LabError if it is running, or its program is missing."""
        if self.is_running:
            raise LabError(f"{self.name} runs already as pid {self.pid}")
        self.log_path.parent.mkdir(parents=True, exist_ok=True)
        with self.log_path.open("ab") as log:
            try:
                self._process = subprocess.Popen(
                    self.argv,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env=self._env,
                    start_new_session=True,
                )
            except FileNotFoundError as err:
                raise LabError(f"program {self.argv[0]} is missing; run script/setup") from err
        write_pid_file(self.pid_path, self._process.pid)

    def wait_until(self, is_ready: Callable[[], bool], *, what: str, timeout_seconds: float = 30) -> None:
        """Wait until `is_ready` returns True.

        Raises LabError with the end of the log if the daemon ends or takes too long.
        """
        deadline = time.monotonic() + timeout_seconds
        while not is_ready():
            if not self.is_running:
                raise LabError(f"{self.name} ended before {what}; its log says:\n{self.log_tail()}")
            if time.monotonic() > deadline:
                raise LabError(f"{self.name}: no {what} in {timeout_seconds} s:\n{self.log_tail()}")
            time.sleep(0.02)

    def stop(self, *, grace_seconds: float = 10) -> None:
        """Send SIGTERM, and SIGKILL after `grace_seconds`, and wait for the end; succeeds if it does not run."""
        process = self._process
        if process is None:
            return
        if process.poll() is None:
            process.send_signal(signal.SIGCONT)
            process.terminate()
            try:
                process.wait(grace_seconds)
            except subprocess.TimeoutExpired:
                process.kill()
        self._reap(process)

    def kill(self) -> None:
        """Send SIGKILL, to simulate a crash, and wait for the end; succeeds if it does not run."""
        if self._process is None:
            return
        self._process.kill()
        self._reap(self._process)

    def pause(self) -> None:
        """Pause the process with SIGSTOP. Returns when the kernel shows it as stopped."""
        os.kill(self.pid, signal.SIGSTOP)
        while (state := process_state(self.pid)) not in "Tt":
            if not state or state in "ZX":
                raise LabError(f"{self.name} ended instead of pausing")
            time.sleep(0.001)

    def resume(self) -> None:
        """Continue the process after `pause`."""
        os.kill(self.pid, signal.SIGCONT)

    def wait(self, timeout_seconds: float) -> int:
        """Wait until the daemon ends by itself; returns its exit status (negative: the signal that ended it).

        Raises LabError if it still runs after `timeout_seconds`.
        """
        if self._process is None:
            raise LabError(f"{self.name} does not run")
        try:
            status = self._process.wait(timeout_seconds)
        except subprocess.TimeoutExpired as err:
            raise LabError(f"{self.name} still runs after {timeout_seconds} s") from err
        self._reap(self._process)
        return status

    def send_signal(self, signum: int) -> None:
        """Send this signal to the daemon."""
        os.kill(self.pid, signum)

    def log_tail(self, lines: int = 40) -> str:
        """Return the last lines of the daemon's log."""
        try:
            text = self.log_path.read_text(errors="replace")
        except FileNotFoundError:
            return "(no log)"
        return "\n".join(text.splitlines()[-lines:])

    def _reap(self, process: subprocess.Popen[bytes]) -> None:
        process.wait()
        self._process = None
        self.pid_path.unlink(missing_ok=True)


def process_start_time(pid: int) -> str:
    """Return the start time of a process in clock ticks since boot, as text; empty if there is no such
    process.
    """
    fields = _stat_fields(pid)
    return fields[19] if len(fields) > 19 else ""


def process_state(pid: int) -> str:
    """Return the state of a process as one letter (R, S, T, Z, ...); empty if there is no such process."""
    fields = _stat_fields(pid)
    return fields[0] if fields else ""


def list_pids() -> list[int]:
    """Return the ids of all processes."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def write_pid_file(path: Path, pid: int) -> None:
    """Write the file with ``PID START-TIME`` of a process, for `read_pid_file`."""
    path.write_text(f"{pid} {process_start_time(pid)}\n")


def read_pid_file(path: Path) -> int | None:
    """Return the pid in the file if that same process is still alive; else None."""
    try:
        pid_text, start_time = path.read_text().split()
        pid = int(pid_text)
    except (FileNotFoundError, ValueError):
        return None
    alive = process_start_time(pid) == start_time and process_state(pid) not in ("Z", "X")
    return pid if alive else None


def _stat_fields(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat from the third (state) on; the second may contain blanks and
    brackets.
    """
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return []
    return text.rpartition(")")[2].split()
