"""Questions to a guest agent that is a dictionary of answers."""

from __future__ import annotations

import asyncio
import base64
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import libvirt
import pytest
from kubeletx_libvirt.client import Connection, DomainEvent
from kubeletx_libvirt.domain_reader import DomainReader
from kubeletx_libvirt.guest.agent import (
    AgentSilent,
    CannotRun,
    FileRefused,
    GuestAgent,
    agent_error,
    result_of,
)
from kubeletx_libvirt.guest.commands import GuestCommands

from kubeletx.api import Conflict, StreamRequest, TimedOut, UnitId, Unsupported
from kubeletx.testing import FakeClock, FakeHost
from plugins.libvirt.tests.guest.guest_double import UNIT, ToldAgent

OTHER = UnitId("22222222-2222-3333-4444-555555555555")


@pytest.fixture
def host(tmp_path: Path) -> FakeHost:
    return FakeHost(tmp_path, clock=FakeClock(auto_advance=True))


def encoded(text: bytes) -> str:
    return base64.b64encode(text).decode()


def ends_at_the_third_look(output: bytes, exit_code: int) -> Callable[[str, dict[str, Any]], Any]:
    domains = 0

    def answer(command: str, arguments: dict[str, Any]) -> Any:
        nonlocal domains
        if command != "guest-exec-status":
            return {"pid": 42}
        domains += 1
        if domains < 3:
            return {"exited": False}
        return {"exited": True, "exitcode": exit_code, "out-data": encoded(output)}

    return answer


class Processes:
    """The table of processes of qemu-ga: it forgets one when its end has been read. A kill shows at the second look."""

    def __init__(self, *, has_children: bool = False) -> None:
        self.kept: dict[int, int] = {}
        """Looks until the end of each process, by id; a negative number: until it is killed."""
        self._has_children = has_children

    def __call__(self, command: str, arguments: dict[str, Any]) -> Any:
        if command == "guest-exec":
            if arguments["path"] == "kill" and not self._has_children:
                self.kept[int(arguments["arg"][1])] = 2
            number = len(self.kept) + 1
            self.kept[number] = 2 if arguments["path"] == "kill" else -1
            return {"pid": number}
        if command != "guest-exec-status":
            return {}
        number = arguments["pid"]
        self.kept[number] -= 1
        if self.kept[number] != 0:
            return {"exited": False}
        del self.kept[number]
        return {"exited": True, "exitcode": 0}


async def test_a_command_is_asked_for_until_it_has_ended(host: FakeHost) -> None:
    guest = ToldAgent(host, ends_at_the_third_look(b"hello\n", 3))
    result = await GuestCommands(guest).exec_sync(UNIT, ["echo", "hello"], 20)
    assert (result.stdout, result.stderr, result.exit_code) == (b"hello\n", b"", 3)
    assert guest.asked[1] == ("guest-exec", {"path": "echo", "arg": ["hello"], "capture-output": True})


async def test_a_command_that_takes_too_long_is_killed_in_the_guest(host: FakeHost) -> None:
    guest = ToldAgent(host, Processes())
    with pytest.raises(TimedOut):
        await GuestCommands(guest).exec_sync(UNIT, ["sleep", "30"], 0.05)
    assert ("guest-exec", {"path": "kill", "arg": ["-9", "1"]}) in guest.asked


async def test_the_guest_agent_keeps_no_end_that_a_later_process_with_the_same_id_would_get(
    host: FakeHost,
) -> None:
    guest = ToldAgent(host, processes := Processes())
    with pytest.raises(TimedOut):
        await GuestCommands(guest).exec_sync(UNIT, ["sleep", "30"], 0.05)
    assert processes.kept == {}


async def test_a_killed_process_whose_children_keep_its_output_open_is_not_waited_for(host: FakeHost) -> None:
    guest = ToldAgent(host, processes := Processes(has_children=True))
    with pytest.raises(TimedOut):
        await GuestCommands(guest).exec_sync(UNIT, ["sleep", "30"], 0.05)
    assert list(processes.kept) == [1]


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

    guest = ToldAgent(host, answer)
    assert (await GuestCommands(guest).exec_sync(UNIT, ["true"], 20)).stdout == b"up"


async def test_without_an_agent_the_error_says_what_is_missing(host: FakeHost) -> None:
    def answer(command: str, arguments: dict[str, Any]) -> Any:
        raise (
            agent_error(libvirt.VIR_ERR_AGENT_UNRESPONSIVE, "QEMU guest agent is not connected") or Exception
        )

    guest = ToldAgent(host, answer)
    guest.machines.started_at_ns = 0  # long ago: it does not boot any more
    with pytest.raises(AgentSilent, match="qemu-guest-agent running in the guest"):
        await GuestCommands(guest).exec(UNIT, StreamRequest(command=("true",)))
    with pytest.raises(TimedOut, match="qemu-guest-agent running in the guest"):
        await GuestCommands(guest).exec_sync(UNIT, ["true"], 0.05)


async def test_a_program_that_is_not_there_exits_like_in_a_shell(host: FakeHost) -> None:
    def answer(command: str, arguments: dict[str, Any]) -> Any:
        if command == "guest-exec":
            raise CannotRun("Failed to execute child process “nope”")
        return {}

    result = await GuestCommands(ToldAgent(host, answer)).exec_sync(UNIT, ["nope"], 20)
    assert (result.exit_code, b"nope" in result.stderr) == (127, True)


def test_signals_and_cut_output_are_reported() -> None:
    assert result_of({"signal": 9}).exit_code == 137
    assert b"cut the output" in result_of({"exitcode": 0, "out-truncated": True}).stderr


ASKED = "internal error: unable to execute QEMU agent command "


@pytest.mark.parametrize(
    ("code", "text", "kind", "words"),
    [
        (libvirt.VIR_ERR_AGENT_UNRESPONSIVE, "not connected", AgentSilent, "needs? the package"),
        (
            libvirt.VIR_ERR_AGENT_UNRESPONSIVE,
            "QEMU guest agent is not available due to an error",
            AgentSilent,
            "restart qemu-guest-agent",
        ),
        (
            libvirt.VIR_ERR_INTERNAL_ERROR,
            ASKED + "'guest-exec': The command guest-exec has been disabled",
            Unsupported,
            "allow guest-exec",
        ),
        (
            libvirt.VIR_ERR_INTERNAL_ERROR,
            ASKED + "'guest-file-open': failed to open file '/x' (mode: 'rb'): Permission denied",
            FileRefused,
            "^failed to open file '/x'",
        ),
        (libvirt.VIR_ERR_ARGUMENT_UNSUPPORTED, "QEMU guest agent is not configured", Unsupported, "channel"),
        (libvirt.VIR_ERR_RPC, "Unable to encode message payload", Conflict, "its output is lost"),
        (libvirt.VIR_ERR_NO_DOMAIN, "Domain not found", type(None), "None"),
    ],
)
def test_errors_of_the_agent_have_their_own_meaning(code: int, text: str, kind: type, words: str) -> None:
    error = agent_error(code, text)
    assert type(error) is kind
    with pytest.raises(Exception, match=words):
        raise error or Exception("None")


async def test_a_guest_whose_agent_hangs_delays_only_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[str] = []
    may_end = threading.Event()

    def command(_handle: object, uuid: str, *_: object) -> str:
        sent.append(uuid)
        assert uuid != UNIT or may_end.wait(60)
        return "answer"

    monkeypatch.setattr("kubeletx_libvirt.guest.agent._command", command)
    connection = Connection("test:///default", host := FakeHost(tmp_path))
    await connection.open()
    agent = GuestAgent(connection, cast(DomainReader, None), host)
    try:
        for _ in range(9):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1):
                    await agent.ask(UNIT, "guest-ping", {})
        assert await connection.probe(libvirt.virConnect.isAlive)
        assert await agent.ask(OTHER, "guest-ping", {}) == "answer"
        may_end.set()
        assert await agent.ask(UNIT, "guest-ping", {}) == "answer"
        assert sent.count(UNIT) == 2
    finally:
        may_end.set()
        await connection.close()
