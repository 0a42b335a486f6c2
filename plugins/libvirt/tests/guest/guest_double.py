"""A guest whose agent is this file, and whose system is the one that runs the tests."""

from __future__ import annotations

import asyncio
import base64
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from kubeletx_libvirt.client import DomainEvent
from kubeletx_libvirt.guest.agent import AgentSilent, CannotRun, FileRefused, GuestAgent
from kubeletx_libvirt.guest.commands import GuestCommands
from kubeletx_libvirt.guest.session import GuestSession

from kubeletx.api import Channel, PodUid, SandboxId, StreamRequest, UnitId, UnitState, UnitStatus, UnitSummary
from kubeletx.testing import FakeHost

UNIT = UnitId("11111111-2222-3333-4444-555555555555")
Answer = Callable[[str, dict[str, Any]], Any]


class ToldAgent(GuestAgent):
    """A `GuestAgent` whose guest is a function."""

    def __init__(self, host: FakeHost, answer: Answer) -> None:
        self.queue: asyncio.Queue[DomainEvent | None] = asyncio.Queue()
        self.machines = Machines(host)
        super().__init__(Wire(self.queue), self.machines, host)  # type: ignore[arg-type]  # fakes of our own
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.answer = answer

    async def ask(self, unit_id: UnitId, command: str, arguments: dict[str, Any], seconds: int = 5) -> Any:
        assert unit_id == UNIT
        self.asked.append((command, arguments))
        return self.answer(command, arguments)


class SystemAgent(ToldAgent):
    """It runs commands and opens files; programs in `missing` are not there."""

    def __init__(self, host: FakeHost, missing: tuple[str, ...] = ()) -> None:
        super().__init__(host, lambda _command, _arguments: None)
        self.missing = missing
        self.silences: list[Exception] = []
        """Raised after the next questions about files were answered."""
        self.lost_seeks = 0
        """So many of the next ones never reach the guest."""
        self.reads: int | None = None
        """Number of reads that succeed; None: all of them."""
        self._ends: dict[int, asyncio.Task[dict[str, Any]]] = {}
        self._files: list[IO[bytes]] = []

    async def ask(self, unit_id: UnitId, command: str, arguments: dict[str, Any], seconds: int = 5) -> Any:
        await super().ask(unit_id, command, arguments, seconds)
        match command:
            case "guest-exec":
                return await self._start(arguments)
            case "guest-exec-status":
                end = self._ends[arguments["pid"]]
                return end.result() if end.done() else {"exited": False}
            case "guest-file-open":
                return self._open(arguments)
            case "guest-ping":
                return {}
        if self.lost_seeks and command == "guest-file-seek":
            self.lost_seeks -= 1
            raise AgentSilent("away")
        if self.reads is not None and command == "guest-file-read":
            self.reads -= 1
            if self.reads < 0:
                raise FileRefused("failed to read file: Input/output error")
        answer = self._use(command, self._files[arguments["handle"]], arguments)
        if self.silences and command in ("guest-file-read", "guest-file-write"):
            raise self.silences.pop()
        return answer

    async def close(self) -> None:
        for end in self._ends.values():
            await end
        for file in self._files:
            assert file.closed

    async def _start(self, arguments: dict[str, Any]) -> dict[str, Any]:
        path = arguments["path"]
        if path in self.missing or shutil.which(path) is None:
            raise CannotRun(f"Failed to execute child process “{path}”")
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            path, *arguments["arg"], stdin=pipe, stdout=pipe, stderr=pipe
        )
        data = base64.b64decode(arguments.get("input-data", ""))
        self._ends[process.pid] = asyncio.create_task(_end(process, data), name="guest-process")
        return {"pid": process.pid}

    def _open(self, arguments: dict[str, Any]) -> int:
        try:
            file = Path(arguments["path"]).open(arguments["mode"], buffering=0)  # noqa: SIM115  # closed by a call
        except OSError as error:
            raise FileRefused(f"failed to open file '{arguments['path']}': {error.strerror}") from error
        self._files.append(file)
        return len(self._files) - 1

    def _use(self, command: str, file: IO[bytes], arguments: dict[str, Any]) -> Any:
        match command:
            case "guest-file-read":
                data = file.read(min(arguments["count"], 50_000))
                return {"buf-b64": base64.b64encode(data).decode(), "count": len(data), "eof": not data}
            case "guest-file-write":
                return {"count": file.write(base64.b64decode(arguments["buf-b64"])[:70_000])}
            case "guest-file-seek":
                return {"position": file.seek(arguments["offset"], {"set": 0, "end": 2}[arguments["whence"]])}
            case "guest-file-close":
                file.close()
        return {}


async def start(guest: SystemAgent, *words: str, stdin: bytes | None = None) -> GuestSession:
    request = StreamRequest(command=words, stdin=stdin is not None)
    session = await GuestCommands(guest).exec(UNIT, request)
    if stdin is not None:
        for at in range(0, len(stdin), 32_000):
            await session.write(stdin[at : at + 32_000])
        await session.close_stdin()
    return session


async def end_of(session: GuestSession) -> tuple[bytes, bytes, int]:
    """Both outputs and the exit code."""
    outputs = {Channel.STDOUT: b"", Channel.STDERR: b""}
    async for channel, data in session.output():
        outputs[channel] += data
    code = await session.wait()
    await session.close()
    return outputs[Channel.STDOUT], outputs[Channel.STDERR], code


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

    def state(self, unit_id: UnitId, domain: None) -> UnitState:
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


async def _end(process: asyncio.subprocess.Process, data: bytes) -> dict[str, Any]:
    with suppress(ConnectionError):
        stdout, stderr = await process.communicate(data)
    code = process.returncode or 0
    end: dict[str, Any] = {"signal": -code} if code < 0 else {"exitcode": code}
    outputs = {"out-data": base64.b64encode(stdout).decode(), "err-data": base64.b64encode(stderr).decode()}
    return {"exited": True, **end, **outputs}
