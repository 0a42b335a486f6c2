"""One way to run a program: its result, its deadline, its children, and its output have the same rules everywhere."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubeletx.api import TimedOut
from kubeletx.linux.locks import LockHeld, hold_lock, take_lock
from kubeletx.linux.programs import (
    MOST_OUTPUT_BYTES,
    STDIN_FILE,
    Ending,
    ProgramHangs,
    ProgramResult,
    run_blocking,
    run_program,
    shell_text,
    tool_environment,
)
from kubeletx_testing.waiting import until

Run = Callable[..., Awaitable[ProgramResult]]
GENTLE = Ending(steps=((signal.SIGTERM, 10.0), (signal.SIGKILL, 10.0)))
SURVIVES = Ending(leaves_daemon=True, survives_cancellation=True)
ECHO = "import sys; a = sys.argv; sys.stdout.write(sys.stdin.read() + a[1]); sys.stderr.write(a[2]); sys.exit(int(a[3]))"
TEXTS = st.text(st.characters(exclude_characters="\0\r", exclude_categories=("Cs",)), max_size=20)


async def blocking(*args: Any, **options: Any) -> ProgramResult:
    return await asyncio.to_thread(run_blocking, *args, **options)


@pytest.fixture(params=[run_program, blocking])
def run(request: pytest.FixtureRequest) -> Run:
    return request.param  # type: ignore[no-any-return]


def lives(pid: int) -> bool:
    """A zombie has ended: another process waits for it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


async def ends(pid: int) -> None:
    async with asyncio.timeout(60):
        while lives(pid):
            await asyncio.sleep(0)


@settings(max_examples=12)
@given(TEXTS, TEXTS, TEXTS, st.integers(0, 255))
def test_a_result_is_what_the_program_printed_and_its_exit_code(
    given: str, out: str, err: str, code: int
) -> None:
    argv = [sys.executable, "-SIc", ECHO, out, err, str(code)]
    options: dict[str, Any] = {"stdin": given.encode(), "seconds": 60, "environment": {"PYTHONUTF8": "1"}}
    result = run_blocking(argv, **options)
    assert (result.stdout, result.stderr) == ((given + out).encode(), err.encode())
    assert (result.exit_code, result.is_cut) == (code, False)
    for ending in (Ending(), SURVIVES):
        assert asyncio.run(run_program(argv, **options, ending=ending)) == result


async def test_arguments_are_not_a_shell_line_and_the_environment_is_the_given_one(run: Run) -> None:
    result = await run(["printf", "%s", "$HOME; `id` 'a"], seconds=60)
    assert result.stdout == b"$HOME; `id` 'a"
    result = await run(["/usr/bin/env"], seconds=60, environment={"A": "b c"})
    assert result.stdout == b"A=b c\n"
    assert (await run(["pwd"], seconds=60)).stdout == b"/\n"
    assert (await run(["cat"], seconds=60)).stdout == b""  # nothing is asked of a terminal
    assert (await run(["cat", STDIN_FILE], seconds=60, stdin=b"secret")).stdout == b"secret"
    assert shell_text(["printf", "a b"]) == "printf 'a b'"
    assert tool_environment({"PATH": "/opt/bin"})["PATH"].startswith("/opt/bin:/usr/local/sbin:")


async def test_a_program_that_cannot_be_started_is_an_error_of_the_system(run: Run) -> None:
    with pytest.raises(FileNotFoundError):
        await run(["/no/such/program"], seconds=60)
    with pytest.raises(PermissionError):
        await run(["/etc/passwd"], seconds=60)


async def test_a_program_that_cannot_be_watched_does_not_run_on(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its caller takes the error for a program that was not started, and may start another one."""
    pids: list[int] = []

    def fails(pid: int) -> int:
        pids.append(pid)
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(os, "pidfd_open", fails)
    descriptors = len(os.listdir("/proc/self/fd"))
    with pytest.raises(OSError, match="Too many open files"):
        await run(["sleep", "1000"], seconds=60, stdin=b"secret")
    (pid,) = pids
    await ends(pid)
    assert len(os.listdir("/proc/self/fd")) == descriptors


async def test_errors_are_one_line_with_what_was_printed(run: Run) -> None:
    result = await run(["sh", "-c", "echo out; echo 'went\n  wrong' >/dev/stderr; exit 3"], seconds=60)
    assert str(result.problem("volume pv-1")) == "volume pv-1: sh failed with exit status 3: went wrong"
    result = await run(["sh", "-c", "kill -9 $$"], seconds=60)
    assert (result.exit_code, result.text) == (-9, "")


@pytest.mark.parametrize("ending", [GENTLE, Ending()])
async def test_at_its_deadline_a_program_ends_with_its_children(
    run: Run, ending: Ending, tmp_path: Path
) -> None:
    pids = tmp_path / "pids"
    script = f"sleep 1000 & echo $! $$ > {pids}; wait"
    name = r"sleeper did not end within 0\.5 s, and was stopped with SIG(TERM|KILL)"
    with pytest.raises(TimedOut, match=name):
        await run(["sh", "-c", script], seconds=0.5, ending=ending, name="sleeper")
    for pid in pids.read_text().split():
        await ends(int(pid))


async def test_a_child_that_keeps_the_output_open_is_killed_at_the_deadline(run: Run, tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    with pytest.raises(TimedOut):
        await run(["sh", "-c", f"sleep 1000 & echo $! > {pid}"], seconds=0.5)
    await ends(int(pid.read_text()))


async def test_a_daemon_that_a_program_leaves_runs_on_and_delays_nothing(run: Run, tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    script = f"sleep 1000 & echo $! > {pid}; echo done"
    result = await run(["sh", "-c", script], seconds=60, ending=Ending(leaves_daemon=True))
    assert (result.stdout, result.exit_code) == (b"done\n", 0)
    assert lives(int(pid.read_text()))
    os.kill(int(pid.read_text()), signal.SIGKILL)


async def test_too_much_output_ends_the_program(run: Run) -> None:
    result = await run(["yes"], seconds=60, ending=GENTLE)
    assert (len(result.stdout), result.is_cut, result.exit_code) == (MOST_OUTPUT_BYTES, True, -15)
    assert "printed too much" in str(result.problem("x"))


async def started(tmp_path: Path, ending: Ending) -> tuple[asyncio.Task[ProgramResult], int]:
    pid = tmp_path / "pid"
    script = f"trap '' TERM; echo $$ > {pid}.new; mv {pid}.new {pid}; sleep 1000 & wait; wait"
    task = asyncio.create_task(run_program(["sh", "-c", script], seconds=60, ending=ending), name="program")
    async with asyncio.timeout(60):
        while not pid.exists():
            await asyncio.sleep(0)
    return task, int(pid.read_text())


async def test_cancellation_stops_a_program_before_the_caller_goes_on(tmp_path: Path) -> None:
    task, pid = await started(tmp_path, Ending(steps=((signal.SIGTERM, 0.1), (signal.SIGKILL, 60.0))))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not lives(pid)


async def test_a_second_cancellation_kills_at_once(tmp_path: Path) -> None:
    task, pid = await started(tmp_path, Ending(steps=((signal.SIGTERM, 1000.0),)))
    task.cancel()
    for _ in range(100):
        await asyncio.sleep(0)
    assert not task.done()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await ends(pid)


async def test_a_program_may_survive_the_cancellation_of_its_caller(tmp_path: Path) -> None:
    task, pid = await started(tmp_path, Ending(survives_cancellation=True))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert lives(pid)
    os.killpg(pid, signal.SIGKILL)
    await ends(pid)


async def test_a_program_without_its_caller_prints_until_its_end(tmp_path: Path) -> None:
    """A write to a pipe without a reader would kill it, in the middle of a repair."""
    begun, done = tmp_path / "begun", tmp_path / "done"
    script = (
        f"touch {begun}; while [ ! -e {tmp_path}/go ]; do sleep 0.02; done; echo 1; echo 2 >&2; touch {done}"
    )
    task = asyncio.create_task(run_program(["sh", "-c", script], seconds=60, ending=SURVIVES), name="program")
    await until(begun.exists)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    (tmp_path / "go").touch()
    await until(done.exists)


async def test_a_program_that_must_not_be_stopped_loses_what_it_prints_too_much(tmp_path: Path) -> None:
    script = f"echo first; yes 2>/dev/null | head -c 3000000; touch {tmp_path}/done; echo last >&2; exit 1"
    result = await run_program(["sh", "-c", script], seconds=60, ending=SURVIVES)
    assert (tmp_path / "done").exists()
    assert result.stdout.startswith(b"first\ny\ny\n")
    assert len(result.stdout) <= MOST_OUTPUT_BYTES
    assert (result.exit_code, result.text.rpartition("last")[1:], result.is_cut) == (1, ("last", ""), False)


async def test_a_program_that_outlives_its_last_signal_keeps_the_lock(tmp_path: Path) -> None:
    """SIGTERM, which it ignores, stands for a SIGKILL that a system call delays."""
    path, pid = tmp_path / "lock", tmp_path / "pid"
    script = f"trap '' TERM; echo $$ > {pid}; while :; do sleep 0.05; done"
    ending = Ending(steps=((signal.SIGTERM, 0.1),), survives_cancellation=True)
    lock = take_lock(path)
    with pytest.raises(ProgramHangs, match="hangs in the kernel") as failure:
        await run_program(["sh", "-c", script], seconds=0.5, inherited=(lock,), ending=ending)
    os.close(lock)
    number = int(pid.read_text())
    assert failure.value.pid == number
    with pytest.raises(LockHeld, match=f"is locked by PID {number} \\(sh -c trap") as held, hold_lock(path):
        pass
    assert f"PID {number} (" in held.value.owner
    with suppress(ProcessLookupError):
        os.killpg(number, signal.SIGKILL)
    with hold_lock(path, waits=True):
        pass
    await ends(number)
