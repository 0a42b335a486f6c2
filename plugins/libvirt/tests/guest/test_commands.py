"""Sessions of commands in a guest that is this machine."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from kubeletx_libvirt.guest.agent import INPUT_BYTES
from kubeletx_libvirt.guest.commands import DIRECTORIES, GuestCommands
from kubeletx_libvirt.guest.session import GuestSession

from kubeletx.api import Channel, StreamRequest, Unsupported
from kubeletx.testing import FakeClock, FakeHost
from plugins.libvirt.tests.guest.guest_double import UNIT, SystemAgent, end_of, start


@pytest.fixture
async def guest(tmp_path: Path) -> AsyncIterator[SystemAgent]:
    agent = SystemAgent(FakeHost(tmp_path, clock=FakeClock(auto_advance=True)))
    yield agent
    await agent.close()


def left_of(guest: SystemAgent) -> list[Path]:
    """What the commands' directories left behind."""
    names = {
        arguments["arg"][3]
        for command, arguments in guest.asked
        if command == "guest-exec" and arguments["path"] == "sh"
    }
    assert names or "sh" in guest.missing
    return [path for name in names for place in DIRECTORIES if (path := Path(place, name)).exists()]


async def test_outputs_exit_code_and_a_small_input(guest: SystemAgent) -> None:
    session = await start(guest, "sh", "-c", "cat; echo problem >&2; exit 3", stdin=b"hello")
    assert await end_of(session) == (b"hello", b"problem\n", 3)
    assert not left_of(guest)


async def test_input_and_output_may_be_larger_than_any_message(guest: SystemAgent) -> None:
    data = random.Random(7).randbytes(5 * INPUT_BYTES)
    assert await end_of(await start(guest, "cat", stdin=data)) == (data, b"", 0)
    assert not left_of(guest)
    sent = [arguments["buf-b64"] for command, arguments in guest.asked if command == "guest-file-write"]
    assert max(map(len, sent)) == INPUT_BYTES * 4 / 3


async def test_output_comes_while_the_command_runs(guest: SystemAgent, tmp_path: Path) -> None:
    flag = tmp_path / "go"
    session = await start(
        guest, "sh", "-c", f"echo first; until [ -e {flag} ]; do sleep 0.02; done; echo last"
    )
    parts = session.output()
    assert await anext(parts) == (Channel.STDOUT, b"first\n")
    flag.touch()
    assert await end_of(session) == (b"last\n", b"", 0)


async def test_a_command_starts_when_its_input_is_complete(guest: SystemAgent) -> None:
    session = await GuestCommands(guest).exec(UNIT, StreamRequest(command=("cat",), stdin=True))
    await session.write(b"first ")
    await session.write(b"second")
    assert {command for command, _ in guest.asked} == {"guest-ping"}
    await session.close_stdin()
    assert await end_of(session) == (b"first second", b"", 0)


async def test_an_abandoned_command_is_killed_and_leaves_nothing(guest: SystemAgent) -> None:
    session = await start(guest, "sh", "-c", "echo here; exec sleep 1000")
    assert await anext(session.output()) == (Channel.STDOUT, b"here\n")
    await session.close()
    await session.close()
    assert await session.wait() == 137
    assert [part async for part in session.output()] == []
    assert not left_of(guest)


async def test_a_program_that_is_not_there_exits_like_in_a_shell(guest: SystemAgent) -> None:
    _, words, code = await end_of(await start(guest, "no-such-program"))
    assert (code, b"no-such-program" in words) == (127, True)


async def test_a_guest_without_a_shell_takes_what_fits_into_one_message(guest: SystemAgent) -> None:
    guest.missing = ("sh", "nope")
    assert await end_of(await start(guest, "cat", stdin=b"hello")) == (b"hello", b"", 0)
    out, words, code = await end_of(await start(guest, "nope"))
    assert (out, code) == (b"", 127)
    assert b"nope" in words
    _, words, code = await end_of(await start(guest, "cat", stdin=bytes(INPUT_BYTES + 1)))
    assert (code, b"limited to 96 KiB" in words) == (126, True)


async def test_who_writes_more_than_is_read_is_not_kept_waiting_at_the_end(guest: SystemAgent) -> None:
    guest.missing = ("sh",)
    session = await start(guest, "cat", stdin=bytes(20 * INPUT_BYTES))
    assert (await end_of(session))[2] == 126


async def test_a_terminal_is_refused_and_points_to_attach(guest: SystemAgent) -> None:
    with pytest.raises(Unsupported, match="attach"):
        await GuestCommands(guest).exec(UNIT, StreamRequest(command=("sh",), tty=True))


async def test_work_that_fails_ends_its_session(tmp_path: Path) -> None:
    async def work(session: GuestSession) -> None:
        raise ZeroDivisionError

    session = GuestSession("work", StreamRequest(command=("true",)), work)
    out, words, code = await end_of(session)
    assert (out, code) == (b"", 126)
    assert b"internal error" in words
