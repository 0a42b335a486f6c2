"""Daemons by PID file, with real processes: only the process with the expected command line gets a signal."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kubeletx_flexvolume.backends.daemons import daemons_of, end_daemon, is_running, pid_of

WORD = "/state/fuse/pv-1/image"
Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def pid_file(tmp_path: Path) -> Path:
    return tmp_path / "daemon.pid"


@pytest.fixture
def start(pid_file: Path) -> Iterator[Start]:
    """Start a daemon with `WORD` on its command line, and write its PID file."""
    made = []

    def run(*, ignores_term: bool = False, word: str = WORD) -> subprocess.Popen[bytes]:
        source = "import signal\n"
        source += "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" if ignores_term else ""
        source += "print(flush=True)\nsignal.pause()"
        command = [sys.executable, "-IS", "-c", source, word]
        made.append(subprocess.Popen(command, stdout=subprocess.PIPE))
        assert made[-1].stdout is not None
        made[-1].stdout.readline()
        pid_file.write_text(f"{made[-1].pid}\n")
        return made[-1]

    yield run
    for one in made:
        one.kill()
        one.communicate()


@pytest.mark.parametrize("text", ["", "x", "-5", "1.5", "12 13", "99999999999999", "\u0661"])
def test_a_pid_file_without_a_pid_is_not_a_daemon(pid_file: Path, text: str) -> None:
    pid_file.write_text(text)
    assert pid_of(pid_file) == 0
    assert not is_running(pid_file, WORD)
    assert end_daemon(pid_of(pid_file), WORD, grace_seconds=1)


def test_a_missing_pid_file_is_not_a_daemon(pid_file: Path) -> None:
    assert (pid_of(pid_file), is_running(pid_file, WORD)) == (0, False)
    assert end_daemon(pid_of(pid_file), WORD, grace_seconds=1)


def test_a_daemon_runs_until_it_is_ended(pid_file: Path, start: Start) -> None:
    process = start()
    assert is_running(pid_file, WORD)
    assert end_daemon(pid_of(pid_file), WORD, grace_seconds=20)
    assert not is_running(pid_file, WORD)
    assert process.wait() in (-signal.SIGTERM, 0)  # 0: it was reaped already


def test_a_daemon_that_ignores_sigterm_is_killed(pid_file: Path, start: Start) -> None:
    start(ignores_term=True)
    assert end_daemon(pid_of(pid_file), WORD, grace_seconds=0.1, kill_seconds=20)
    assert not is_running(pid_file, WORD)


def test_a_stopped_daemon_is_killed_at_once_without_a_grace(pid_file: Path, start: Start) -> None:
    process = start()
    process.send_signal(signal.SIGSTOP)
    assert end_daemon(pid_of(pid_file), WORD, grace_seconds=0, kill_seconds=20)
    assert not is_running(pid_file, WORD)


def test_another_process_with_the_pid_gets_no_signal(pid_file: Path, start: Start) -> None:
    process = start(word="/state/fuse/pv-2/image")
    assert not is_running(pid_file, WORD)
    assert end_daemon(pid_of(pid_file), WORD, grace_seconds=0)
    assert process.poll() is None


def test_a_process_that_has_ended_is_not_a_daemon(pid_file: Path, start: Start) -> None:
    process = start()
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # it is a zombie, without a command line
    assert not is_running(pid_file, WORD)
    process.wait()
    assert not is_running(pid_file, WORD)
    assert end_daemon(pid_of(pid_file), WORD, grace_seconds=1)


def test_daemons_are_found_without_a_pid_file_by_their_program_and_directory(tmp_path: Path) -> None:
    directory, other = tmp_path / "fuse" / "pv-1", tmp_path / "fuse" / "pv-11"
    for one in (directory, other):
        one.mkdir(parents=True)
    pid_file = str(directory / "daemon.pid")
    made = [
        subprocess.Popen(["sleep", "infinity"]),
        subprocess.Popen(["sh", "-c", "read line", pid_file], stdin=subprocess.PIPE),
        subprocess.Popen(["sh", "-c", "read line", str(other / "daemon.pid")], stdin=subprocess.PIPE),
        subprocess.Popen(["cat", "-", pid_file], stdin=subprocess.PIPE),
    ]
    try:
        assert daemons_of("sh", directory) == {made[1].pid: Path(pid_file)}
        assert daemons_of("sh", tmp_path / "none") == {}
        directory.rename(tmp_path / "moved")  # the path is of no directory, or of another one
        assert daemons_of("sh", directory) == {}
    finally:
        for process in made:
            process.kill()
            process.communicate()
