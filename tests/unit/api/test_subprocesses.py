"""Sessions over child processes: streams, exit codes, terminals, and what `close` leaves behind."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from kubeletx.api import (
    Channel,
    ExecResult,
    Session,
    StreamRequest,
    SubprocessSession,
    TimedOut,
    run_session,
)
from kubeletx.testing.contract.streams import collect

ENVIRONMENT = {"PATH": os.defpath, "GREETING": "good day"}


@asynccontextmanager
async def session(
    *command: str, stdin: bool = False, tty: bool = False, stderr: bool = True, directory: str = "/"
) -> AsyncIterator[SubprocessSession]:
    request = StreamRequest(command=command, stdin=stdin, tty=tty, stderr=stderr)
    made = await SubprocessSession.start(request, environment=ENVIRONMENT, directory=directory)
    try:
        async with asyncio.timeout(20):
            yield made
    finally:
        await made.close()


async def ran(*command: str, tty: bool = False, directory: str = "/") -> ExecResult:
    async with session(*command, tty=tty, directory=directory) as made:
        return await run_session(made, 20)


async def is_so(look: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not look():
            await asyncio.sleep(0)


async def test_it_is_a_session() -> None:
    async with session("true") as made:
        assert isinstance(made, Session)


async def test_output_errors_and_exit_code_are_kept_apart() -> None:
    assert await ran("sh", "-c", "echo out; echo oops >&2; exit 3") == ExecResult(
        stdout=b"out\n", stderr=b"oops\n", exit_code=3
    )


async def test_only_the_given_variables_and_the_directory_reach_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET", "of the agent")
    result = await ran("sh", "-c", "pwd; env", directory=str(tmp_path))
    assert result.stdout.startswith(f"{tmp_path}\n".encode())
    assert b"GREETING=good day\n" in result.stdout
    assert b"SECRET" not in result.stdout


@pytest.mark.parametrize("tty", [False, True])
async def test_a_program_that_does_not_exist_is_exit_code_127_and_a_message(tty: bool) -> None:
    result = await ran("/no/such/program", tty=tty)
    assert result.exit_code == 127
    assert b"/no/such/program" in result.stdout + result.stderr


async def test_a_directory_that_does_not_exist_is_an_exit_code_and_a_message() -> None:
    result = await ran("true", directory="/no/such/directory")
    assert result.exit_code != 0
    assert b"/no/such/directory" in result.stderr


async def test_arguments_arrive_as_they_are() -> None:
    words = ("$HOME", "a b", "-n", "'", "--", "")
    assert (await ran("printf", "%s|", *words)).stdout == "".join(f"{word}|" for word in words).encode()


async def test_a_command_that_a_signal_ends_has_the_exit_code_of_a_shell() -> None:
    assert (await ran("sh", "-c", "kill -s TERM $$")).exit_code == 143


async def test_stdin_reaches_the_command_until_it_is_closed() -> None:
    async with session("cat", stdin=True) as made:
        await made.write(b"first\n")
        await made.write(b"second\n")
        await made.close_stdin()
        await made.close_stdin()
        await made.write(b"ignored")
        assert (await collect(made))[Channel.STDOUT] == b"first\nsecond\n"
        assert await made.wait() == 0


async def test_more_than_fits_into_any_buffer_goes_through_both_ways() -> None:
    data = os.urandom(3_000_000)
    async with session("cat", stdin=True) as made:

        async def send() -> None:
            await made.write(data)
            await made.close_stdin()

        sending = asyncio.create_task(send(), name="send")
        assert (await collect(made))[Channel.STDOUT] == data
        await sending


async def test_output_that_is_not_read_stops_the_command(tmp_path: Path) -> None:
    script = f"head -c 2000000 /dev/zero; touch {tmp_path}/done"
    async with session("sh", "-c", script) as made:
        chunks = made.output()
        first = len((await anext(chunks))[1])
        assert not (tmp_path / "done").exists()
        assert first + sum([len(data) async for _, data in chunks]) == 2_000_000
        assert await made.wait() == 0
        assert (tmp_path / "done").exists()


async def test_a_command_without_stdin_reads_end_of_file() -> None:
    assert await ran("cat") == ExecResult(stdout=b"", stderr=b"", exit_code=0)


async def test_an_output_that_was_not_requested_is_dropped() -> None:
    async with session("sh", "-c", "echo out; echo oops >&2", stderr=False) as made:
        assert await collect(made) == {Channel.STDOUT: b"out\n", Channel.STDERR: b""}


async def test_a_terminal_is_the_controlling_terminal_and_has_a_size() -> None:
    async with session(
        "sh", "-c", "read line; stty size </dev/tty; test -t 0 && echo $TERM", tty=True, stdin=True
    ) as made:
        await made.resize(120, 40)
        await made.resize(0, 0)
        await made.resize(1_000_000, 1)
        await made.write(b"go\n")
        output = await collect(made)
        assert output[Channel.STDOUT].replace(b"\r", b"").endswith(b"40 120\nxterm\n")
        assert output[Channel.STDERR] == b""
        assert await made.wait() == 0


async def test_the_half_close_of_a_terminal_is_its_end_of_file() -> None:
    async with session("cat", tty=True, stdin=True) as made:
        await made.write(b"line\n")
        await made.close_stdin()
        await collect(made)
        assert await made.wait() == 0


@pytest.fixture
def handled_interrupts() -> Iterator[None]:
    """A handler of SIGINT, as an agent has: a background job of a shell ignores it, and its children would inherit that."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("handled_interrupts")
async def test_the_interrupt_character_ends_a_command_on_a_terminal() -> None:
    async with session("sh", "-c", "echo ready; exec sleep 100", tty=True, stdin=True) as made:
        await anext(made.output())
        await made.write(b"\x03")
        assert await made.wait() == 130


async def test_a_resize_without_a_terminal_is_ignored() -> None:
    async with session("true") as made:
        await made.resize(80, 24)


@pytest.mark.parametrize("tty", [False, True])
async def test_close_kills_the_command_with_its_children_and_ends_the_output(
    tmp_path: Path, tty: bool
) -> None:
    script = f"sleep 100 & echo $! > {tmp_path}/child; echo $$; wait"
    async with session("sh", "-c", script, tty=tty) as made:
        _, data = await anext(made.output())
        await made.close()
        await made.close()
        assert [chunk async for chunk in made.output()] == []
        assert await made.wait() == 137
        child = (tmp_path / "child").read_text().strip()
        await is_so(lambda: is_gone(data.decode().strip()) and is_gone(child))


async def test_close_ends_children_that_hold_the_output_of_a_command_that_has_exited(tmp_path: Path) -> None:
    async with session("sh", "-c", f"sleep 100 & echo $! > {tmp_path}/child") as made:
        assert await made.wait() == 0
    child = (tmp_path / "child").read_text().strip()
    await is_so(lambda: is_gone(child))


async def test_a_command_that_takes_too_long_is_killed_and_timed_out(tmp_path: Path) -> None:
    script = f"echo $$ > {tmp_path}/pid; exec sleep 100"
    request = StreamRequest(command=("sh", "-c", script))
    made = await SubprocessSession.start(request, environment=ENVIRONMENT)
    await is_so((tmp_path / "pid").exists)
    with pytest.raises(TimedOut, match=r"did not exit within 0\.1 s"):
        await run_session(made, 0.1)
    pid = (tmp_path / "pid").read_text().strip()
    await is_so(lambda: is_gone(pid))


async def test_a_cancelled_read_kills_the_command() -> None:
    made = await SubprocessSession.start(StreamRequest(command=("sleep", "100")), environment=ENVIRONMENT)
    task = asyncio.create_task(as_coroutine(run_session(made)), name="read")
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    assert await made.wait() == 137


async def as_coroutine(awaitable: Awaitable[ExecResult]) -> ExecResult:
    return await awaitable


def is_gone(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True
