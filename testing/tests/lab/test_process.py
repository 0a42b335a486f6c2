"""Daemons as child processes: started, asked, killed, paused, and found again by pid file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kubeletx_testing.lab.process import (
    Daemon,
    LabError,
    process_state,
    read_pid_file,
    run,
    write_pid_file,
)
from kubeletx_testing.waiting import block_until

_OBEYS = "echo started; exec sleep 600"
_STUBBORN = "trap '' TERM; echo started; while :; do sleep 600; done"


def _daemon(directory: Path, script: str = _OBEYS) -> Daemon:
    daemon = Daemon(name="child", argv=["/bin/sh", "-c", script], directory=directory)
    daemon.start()
    daemon.wait_until(lambda: "started" in daemon.log_tail(), what="its first line")
    return daemon


def test_a_daemon_writes_its_pid_and_its_log_and_stops_when_asked(tmp_path: Path) -> None:
    daemon = _daemon(tmp_path)
    pid = daemon.pid
    assert read_pid_file(daemon.pid_path) == pid
    daemon.stop()
    assert not daemon.is_running
    assert process_state(pid) == ""
    assert not daemon.pid_path.exists()
    daemon.stop()


def test_a_daemon_that_ignores_the_request_is_killed(tmp_path: Path) -> None:
    daemon = _daemon(tmp_path, _STUBBORN)
    daemon.stop(grace_seconds=0.05)
    assert not daemon.is_running


def test_a_paused_daemon_is_stopped_by_the_kernel_and_can_still_be_ended(tmp_path: Path) -> None:
    daemon = _daemon(tmp_path)
    daemon.pause()
    assert process_state(daemon.pid) == "T"
    assert daemon.is_running
    daemon.stop()
    assert not daemon.is_running


def test_a_daemon_that_ends_early_is_reported_with_its_last_words(tmp_path: Path) -> None:
    daemon = Daemon(name="child", argv=["/bin/sh", "-c", "echo cannot bind; exit 3"], directory=tmp_path)
    daemon.start()
    with pytest.raises(LabError, match="cannot bind"):
        daemon.wait_until(lambda: False, what="anything")
    daemon.stop()


def test_a_missing_program_is_named(tmp_path: Path) -> None:
    daemon = Daemon(name="child", argv=["/no/such/program"], directory=tmp_path)
    with pytest.raises(LabError, match="/no/such/program is missing"):
        daemon.start()


def test_a_pid_file_of_another_process_with_the_same_pid_does_not_count(tmp_path: Path) -> None:
    path = tmp_path / "pid"
    write_pid_file(path, os.getpid())
    assert read_pid_file(path) == os.getpid()
    path.write_text(f"{os.getpid()} 1\n")
    assert read_pid_file(path) is None
    path.write_text("rubbish")
    assert read_pid_file(path) is None


def test_a_program_has_no_terminal_and_an_empty_standard_input() -> None:
    session, pid = run("sh", "-c", "cut -d' ' -f6 /proc/$$/stat; echo $$; cat").split()
    assert session == pid


def test_a_program_that_takes_too_long_is_killed_with_its_children(tmp_path: Path) -> None:
    script = f"sleep 600 & echo $! > {tmp_path}/pid; wait"
    with pytest.raises(LabError, match=r"sh -c .* did not end in 0.5 s"):
        run("sh", "-c", script, timeout_seconds=0.5)
    child = int((tmp_path / "pid").read_text())
    block_until(
        lambda: process_state(child) in ("", "Z", "X")
    )  # a busy machine ends it a moment after the signal


def test_a_program_that_is_missing_is_named() -> None:
    with pytest.raises(LabError, match=r"program /no/such/program is missing; run script/setup"):
        run("/no/such/program")
