"""A daemon as a child process, with a log file and a pid file.

Everything is synchronous: fixtures and scripts start and end daemons outside any event loop. A daemon runs in
its own session, so that Ctrl-C in a terminal reaches only the program that started it; this program then
stops its daemons in order. The pid file also contains the process's start time (field 22 of /proc/PID/stat),
since a process id may be reused later.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from kubeletx.linux.processes import read_stat


class LabError(Exception):
    """Raised when a private daemon or tool fails; the message says what to check."""


def run_to_end(
    *command: str | Path,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    timeout_seconds: float = 300,
) -> subprocess.CompletedProcess[str]:
    """Run a program and return its exit status and output.

    It cannot ask: its standard input is empty, and its session has no terminal. Ctrl-C does not reach it, so it is killed
    with its children when this call is interrupted. Raises LabError if it is missing or takes too long.
    """
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=env,
            cwd=cwd,
            start_new_session=True,
        )
    except FileNotFoundError as err:
        raise LabError(f"program {command[0]} is missing; run script/setup") from err
    with process:
        try:
            out, err_text = process.communicate(timeout=timeout_seconds)
        except BaseException as err:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            if isinstance(err, subprocess.TimeoutExpired):
                raise LabError(f"{_text(command)} did not end in {timeout_seconds:g} s") from err
            raise
    return subprocess.CompletedProcess(command, process.returncode, out, err_text)


def run(
    *command: str | Path,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    timeout_seconds: float = 300,
) -> str:
    """Run a program like `run_to_end` and return its standard output. Raises LabError if it fails."""
    done = run_to_end(*command, env=env, cwd=cwd, timeout_seconds=timeout_seconds)
    if done.returncode != 0:
        raise LabError(f"{_text(command)} failed: {(done.stderr or done.stdout).strip()}")
    return done.stdout


class Daemon:
    """A daemon as a child process, which a test starts, pauses, kills and stops."""

    def __init__(
        self, *, name: str, argv: Sequence[str], directory: Path, env: Mapping[str, str] | None = None
    ) -> None:
        """`directory`: for ``NAME.log`` (which is appended to) and ``NAME.pid``; made if missing.

        `argv`: the command line. `env`: the whole environment; None: that of this process.
        """
        self.name = name
        self.argv = tuple(argv)
        self.log_path = directory / f"{name}.log"
        self.pid_path = directory / f"{name}.pid"
        self._env = dict(env) if env is not None else None
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Process id of the daemon. Raises LabError if it does not run."""
        if self._process is None:
            raise LabError(f"{self.name} is not running; start it first")
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """True while the daemon has not ended. A paused daemon counts as running."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start the daemon. Raises LabError if it is running already, or its program is missing."""
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

    def wait_until(self, is_ready: Callable[[], bool], *, what: str, timeout_seconds: float = 60) -> None:
        """Wait until `is_ready` returns True.

        `what`: what is awaited, for the error message. Raises LabError with the end of the log if the daemon
        ends, or after `timeout_seconds`.
        """
        deadline = time.monotonic() + timeout_seconds
        while not is_ready():
            if not self.is_running:
                raise LabError(f"{self.name} ended before {what}; its log says:\n{self.log_tail()}")
            if time.monotonic() > deadline:
                raise LabError(f"{self.name}: no {what} in {timeout_seconds} s:\n{self.log_tail()}")
            time.sleep(0.02)

    def stop(self, *, grace_seconds: float = 10) -> None:
        """Send SIGTERM, then SIGKILL after `grace_seconds`, and wait for the end.

        Succeeds if the daemon does not run.
        """
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
        """Send SIGKILL, to simulate a crash, and wait for the end; succeeds if the daemon does not run."""
        if self._process is None:
            return
        self._process.kill()
        self._reap(self._process)

    def pause(self) -> None:
        """Pause the process with SIGSTOP. Returns when the kernel reports it as stopped."""
        os.kill(self.pid, signal.SIGSTOP)
        while (state := process_state(self.pid)) not in "Tt":
            if not state or state in "ZX":
                raise LabError(f"{self.name} ended instead of pausing")
            time.sleep(0.001)

    def resume(self) -> None:
        """Let the process continue after `pause`."""
        os.kill(self.pid, signal.SIGCONT)

    def wait(self, timeout_seconds: float) -> int:
        """Wait until the daemon ends by itself; returns its exit status, or for a signal the negative signal number.

        Raises LabError if it still runs after `timeout_seconds`.
        """
        if self._process is None:
            raise LabError(f"{self.name} is not running; start it first")
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
    """Return the start time of a process in clock ticks since boot, as text; empty if the process does not exist."""
    stat = read_stat(pid)
    return str(stat.started_ticks) if stat is not None else ""


def process_state(pid: int) -> str:
    """Return the state of a process as one letter (R, S, T, Z, ...); empty if the process does not exist."""
    stat = read_stat(pid)
    return stat.state if stat is not None else ""


def list_pids() -> list[int]:
    """Return the ids of all processes."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def write_pid_file(path: Path, pid: int) -> None:
    """Write ``PID START-TIME`` of a process to a file, for `read_pid_file`."""
    path.write_text(f"{pid} {process_start_time(pid)}\n")


def read_pid_file(path: Path) -> int | None:
    """Return the process id in the file if exactly that process is still alive; else None."""
    try:
        pid_text, start_time = path.read_text().split()
        pid = int(pid_text)
    except (FileNotFoundError, ValueError):
        return None
    alive = process_start_time(pid) == start_time and process_state(pid) not in ("Z", "X")
    return pid if alive else None


def _text(command: Sequence[str | Path]) -> str:
    return " ".join(map(str, command))
