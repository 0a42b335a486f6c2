"""Commands through a guest agent that is a dictionary of answers."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable
from pathlib import Path
from typing import Any

import libvirt
import pytest
from kubeletx_libvirt.client import DomainEvent
from kubeletx_libvirt.guest_agent import (
    STDIN_LIMIT_BYTES,
    AgentSession,
    AgentSilent,
    CannotRun,
    GuestAgent,
    agent_error,
    result_of,
)

from kubeletx.api import (
    Channel,
    Conflict,
    PodUid,
    SandboxId,
    StreamRequest,
    TimedOut,
    UnitId,
    UnitState,
    UnitStatus,
    UnitSummary,
    Unsupported,
)
from kubeletx.testing import FakeClock, FakeHost

UNIT = UnitId("11111111-2222-3333-4444-555555555555")
Asked = list[tuple[str, dict[str, Any]]]


class Guest(GuestAgent):
    """A `GuestAgent` whose guest is a function."""

    def __init__(self, host: FakeHost, answer: Callable[[str, dict[str, Any]], Any]) -> None:
        self.queue: asyncio.Queue[DomainEvent | None] = asyncio.Queue()
        super().__init__(Wire(self.queue), Machines(host), host)  # type: ignore[arg-type]  # fakes of our own
        self.asked: Asked = []
        self.answer = answer

    async def _ask(self, unit_id: UnitId, command: str, arguments: dict[str, Any], seconds: int = 5) -> Any:
        self.asked.append((command, arguments))
        return self.answer(command, arguments)


class Wire:
    def __init__(self, queue: asyncio.Queue[DomainEvent | None]) -> None:
        self.queue = queue

    def subscribe(self) -> asyncio.Queue[DomainEvent | None]:
        return self.queue

    def unsubscribe(self, queue: asyncio.Queue[DomainEvent | None]) -> None:
        assert queue is self.queue


class Machines:
    """One machine that runs since the host's clock began."""

    def __init__(self, host: FakeHost) -> None:
        self.started_at_ns = int(host.clock.now().timestamp() * 1e9)

    async def get(self, unit_id: UnitId) -> None:
        assert unit_id == UNIT

    def state(self, unit_id: UnitId, found: None) -> UnitState:
        return UnitState.RUNNING

    async def status(self, unit_id: UnitId) -> UnitStatus:
        summary = UnitSummary(
            id=UNIT,
            sandbox_id=SandboxId("s"),
            uid=PodUid("u"),
            name="main",
            attempt=0,
            state=UnitState.RUNNING,
            created_at_ns=1,
        )
        return UnitStatus(summary=summary, started_at_ns=self.started_at_ns)


@pytest.fixture
def host(tmp_path: Path) -> FakeHost:
    return FakeHost(tmp_path, clock=FakeClock(auto_advance=True))


def encoded(text: bytes) -> str:
    return base64.b64encode(text).decode()


def ends_at_the_third_look(output: bytes, exit_code: int) -> Callable[[str, dict[str, Any]], Any]:
    looks = 0

    def answer(command: str, arguments: dict[str, Any]) -> Any:
        nonlocal looks
        if command != "guest-exec-status":
            return {"pid": 42}
        looks += 1
        if looks < 3:
            return {"exited": False}
        return {"exited": True, "exitcode": exit_code, "out-data": encoded(output)}

    return answer


async def test_a_command_is_asked_for_until_it_has_ended(host: FakeHost) -> None:
    guest = Guest(host, ends_at_the_third_look(b"hello\n", 3))
    result = await guest.exec_sync(UNIT, ["echo", "hello"], 20)
    assert (result.stdout, result.stderr, result.exit_code) == (b"hello\n", b"", 3)
    assert guest.asked[0] == ("guest-exec", {"path": "echo", "arg": ["hello"], "capture-output": True})


async def test_a_command_that_takes_too_long_is_killed_in_the_guest(host: FakeHost) -> None:
    def answer(command: str, arguments: dict[str, Any]) -> Any:
        return {"exited": False} if command == "guest-exec-status" else {"pid": 42}

    guest = Guest(host, answer)
    with pytest.raises(TimedOut):
        await guest.exec_sync(UNIT, ["sleep", "30"], 0.05)
    assert guest.asked[-2] == ("guest-exec", {"path": "kill", "arg": ["-9", "42"]})


async def test_a_guest_that_still_boots_is_waited_for(host: FakeHost) -> None:
    is_there = False
    run = ends_at_the_third_look(b"up", 0)

    def answer(command: str, arguments: dict[str, Any]) -> Any:
        nonlocal is_there
        if not is_there:
            is_there = True
            guest.queue.put_nowait(DomainEvent(UNIT, "agent", 1))
            raise AgentSilent("not connected")
        return run(command, arguments)

    guest = Guest(host, answer)
    assert (await guest.exec_sync(UNIT, ["true"], 20)).stdout == b"up"


async def test_without_an_agent_the_error_says_what_is_missing(host: FakeHost) -> None:
    def answer(command: str, arguments: dict[str, Any]) -> Any:
        raise (
            agent_error(libvirt.VIR_ERR_AGENT_UNRESPONSIVE, "QEMU guest agent is not connected") or Exception
        )

    guest = Guest(host, answer)
    guest._looks.started_at_ns = 0  # type: ignore[attr-defined]  # long ago: it does not boot any more
    with pytest.raises(AgentSilent, match="qemu-guest-agent running in the guest"):
        await guest.exec(UNIT, StreamRequest(command=("true",)))
    with pytest.raises(TimedOut, match="qemu-guest-agent running in the guest"):
        await guest.exec_sync(UNIT, ["true"], 0.05)


async def test_a_session_sends_its_input_whole(host: FakeHost) -> None:
    guest = Guest(host, ends_at_the_third_look(b"both", 0))
    session = await guest.exec(UNIT, StreamRequest(command=("cat",), stdin=True))
    await session.write(b"first ")
    await session.write(b"second")
    assert [command for command, _ in guest.asked] == ["guest-ping"]
    await session.close_stdin()
    assert [part async for part in session.output()] == [(Channel.STDOUT, b"both")]
    assert await session.wait() == 0
    assert guest.asked[1][1]["input-data"] == encoded(b"first second")
    await session.close()


async def test_too_much_input_ends_the_session_in_words(host: FakeHost) -> None:
    guest = Guest(host, ends_at_the_third_look(b"", 0))
    session: AgentSession = await guest.exec(UNIT, StreamRequest(command=("cat",), stdin=True))
    await session.write(b"x" * (STDIN_LIMIT_BYTES + 1))
    ((channel, words),) = [part async for part in session.output()]
    assert channel is Channel.STDERR
    assert b"limited to 2 MiB" in words
    assert await session.wait() == 126
    await session.close()


async def test_an_abandoned_session_kills_its_command(host: FakeHost) -> None:
    asked_once = asyncio.Event()

    def answer(command: str, arguments: dict[str, Any]) -> Any:
        if command == "guest-exec-status":
            asked_once.set()
            return {"exited": False}
        return {"pid": 42}

    guest = Guest(host, answer)
    session = await guest.exec(UNIT, StreamRequest(command=("sleep", "30")))
    await asked_once.wait()
    await session.close()
    await session.close()
    assert ("guest-exec", {"path": "kill", "arg": ["-9", "42"]}) in guest.asked
    assert await session.wait() == 137


async def test_a_terminal_is_refused_and_points_to_attach(host: FakeHost) -> None:
    guest = Guest(host, ends_at_the_third_look(b"", 0))
    with pytest.raises(Unsupported, match="attach"):
        await guest.exec(UNIT, StreamRequest(command=("sh",), tty=True))


async def test_a_program_that_is_not_there_exits_like_in_a_shell(host: FakeHost) -> None:
    def answer(command: str, arguments: dict[str, Any]) -> Any:
        raise CannotRun("Failed to execute child process “nope”")

    result = await Guest(host, answer).exec_sync(UNIT, ["nope"], 20)
    assert (result.exit_code, b"nope" in result.stderr) == (127, True)


def test_signals_and_cut_output_are_told() -> None:
    assert result_of({"signal": 9}).exit_code == 137
    assert b"cut the output" in result_of({"exitcode": 0, "out-truncated": True}).stderr


@pytest.mark.parametrize(
    ("code", "text", "kind"),
    [
        (libvirt.VIR_ERR_AGENT_UNRESPONSIVE, "not connected", AgentSilent),
        (
            libvirt.VIR_ERR_INTERNAL_ERROR,
            "'guest-exec': The command guest-exec has been disabled",
            Unsupported,
        ),
        (libvirt.VIR_ERR_ARGUMENT_UNSUPPORTED, "QEMU guest agent is not configured", Unsupported),
        (libvirt.VIR_ERR_RPC, "Unable to encode message payload", Conflict),
        (libvirt.VIR_ERR_NO_DOMAIN, "Domain not found", type(None)),
    ],
)
def test_errors_of_the_agent_have_their_own_meaning(code: int, text: str, kind: type) -> None:
    assert type(agent_error(code, text)) is kind
