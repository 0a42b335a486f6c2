"""Commands in the guest (exec).

A command is not interactive: it starts when its input is complete. Its outputs go to two files in the guest
and are read from there while it runs. So inputs and outputs may be larger than one message of the guest
agent; they are limited only by the free space below `DIRECTORIES`. Input that fits into one message is sent
with the start. There is no terminal; `attach` gives one.

In a guest without a shell, the guest agent itself collects the outputs until the end, and the limits of
messages apply (see `agent`). ``tar``, as kubectl's ``cp`` calls it, works also in a guest without tar (see
`copies`).
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Sequence

from kubeletx.api import (
    Channel,
    Conflict,
    ExecResult,
    KubeletxError,
    StreamRequest,
    TimedOut,
    UnitId,
    Unsupported,
)

from .agent import INPUT_BYTES, AgentSilent, CannotRun, FileRefused, GuestAgent
from .copies import copy_in, copy_out, tar_call_of
from .files import Guest, GuestFile
from .session import GuestSession

CANNOT_RUN = 127
"""Exit code of a command that the guest could not start; a shell uses the same."""
DIRECTORIES = ("/var/tmp", "/tmp")
"""Directories in the guest for inputs and outputs of commands; the first writable one is used."""
_TIDY_SECONDS = 5.0
_FIND = f"""\
name=$1
shift
for directory in {" ".join(DIRECTORIES)}; do
    directory=$directory/$name
    [ -d "$directory" ] || (umask 077 && mkdir "$directory") 2>/dev/null || continue
"""
_MAKE = f"""{_FIND}
    echo "$directory"
    exit
done
exit 1
"""
_START = f"""{_FIND}
    [ ! -e "$directory/in" ] || exec <"$directory/in"
    exec "$@" >"$directory/out" 2>"$directory/err"
done
exec "$@"
"""


class GuestCommands:
    """Runs commands in one runtime's guests (`SupportsExec`)."""

    def __init__(self, agent: GuestAgent) -> None:
        self._agent = agent

    async def exec_sync(self, unit_id: UnitId, command: Sequence[str], timeout_seconds: float) -> ExecResult:
        """Run a command to its end. `timeout_seconds` 0: no limit.

        The timeout includes the wait for a guest that is booting. Raises TimedOut at the timeout, also if the
        guest agent never answers; AgentSilent if it does not answer and there is no timeout.
        """
        wait_seconds = await self._agent.boot_seconds(unit_id)
        if timeout_seconds > 0:
            wait_seconds = timeout_seconds
        silences: list[AgentSilent] = []
        try:
            async with asyncio.timeout(timeout_seconds or None):
                await self._agent.wait(unit_id, wait_seconds, silences)
                return await Guest(self._agent, unit_id).run(command)
        except CannotRun as error:
            return ExecResult(stdout=b"", stderr=f"{error}\n".encode(), exit_code=CANNOT_RUN)
        except (TimeoutError, AgentSilent) as error:
            if timeout_seconds <= 0:
                raise
            words = f": {silences[-1]}" if silences else ""
            raise TimedOut(f"the command did not end within {timeout_seconds:g} s{words}") from error

    async def exec(self, unit_id: UnitId, request: StreamRequest) -> GuestSession:
        """Return a session that runs the command once its input is complete.

        Raises Unsupported if a terminal is requested, AgentSilent if the guest agent does not answer and the
        guest is not booting.
        """
        if request.tty:
            raise Unsupported(
                "commands in a machine have no terminal: leave -t out, or attach to the console"
            )
        wait_seconds = await self._agent.boot_seconds(unit_id)
        try:
            await self._agent.ask(unit_id, "guest-ping", {}, 1)
        except AgentSilent:
            if wait_seconds <= 0:
                raise

        async def work(session: GuestSession) -> None:
            await self._agent.wait(unit_id, wait_seconds)
            guest = Guest(self._agent, unit_id)
            call = tar_call_of(request)
            if call is not None and not await guest.has("tar"):
                await (copy_in if request.stdin else copy_out)(guest, call, session)
            else:
                await run_command(guest, session)

        return GuestSession(f"guest-exec-{unit_id}", request, work)


async def run_command(guest: Guest, session: GuestSession) -> None:
    """Run the command of the session's request to its end and send its outputs."""
    stdin, is_whole = await _first_input(session)
    directory = _Directory(guest)
    try:
        try:
            if not is_whole:
                await directory.keep_input(stdin, session)
                stdin = b""
            result = await directory.run(stdin, session)
        except CannotRun as error:
            if not is_whole:
                limit = f"the input of commands is limited to {INPUT_BYTES >> 10} KiB there"
                raise Conflict(f"the guest has no shell, and {limit}") from error
            result = await _run_without_shell(guest, session.request.command, stdin)
        await session.send(Channel.STDOUT, result.stdout)
        await session.send(Channel.STDERR, result.stderr)
        await session.end(result.exit_code)
    finally:
        await directory.remove()


async def _first_input(session: GuestSession) -> tuple[bytes, bool]:
    """Read as much input as one message can carry. Returns it, and True if that is the whole input."""
    data = bytearray()
    while len(data) <= INPUT_BYTES:
        more = await session.read()
        if not more:
            return bytes(data), True
        data += more
    return bytes(data), False


async def _run_without_shell(guest: Guest, command: Sequence[str], stdin: bytes) -> ExecResult:
    try:
        return await guest.run(command, stdin)
    except CannotRun as error:
        return ExecResult(stdout=b"", stderr=f"{error}\n".encode(), exit_code=CANNOT_RUN)


class _Directory:
    """Directory in the guest for the input and the outputs of one command."""

    def __init__(self, guest: Guest) -> None:
        self._guest = guest
        self._name = f"kubeletx-{secrets.token_hex(8)}"
        self._is_there = False
        self._files = contextlib.AsyncExitStack()
        self._outputs: dict[Channel, GuestFile] = {}

    async def keep_input(self, first: bytes, session: GuestSession) -> None:
        """Write the session's whole input to a file in the guest. Raises CannotRun if the guest has no shell.

        `first`: the input that is already read.
        """
        made = await self._guest.run(("sh", "-c", _MAKE, "sh", self._name))
        self._is_there = True
        if made.exit_code != 0:
            places = " or ".join(DIRECTORIES)
            raise Conflict(f"the guest has no place for the command's input: it cannot write below {places}")
        path = f"{made.stdout.decode().strip()}/in"
        async with self._guest.opened(path, "wb") as file:
            while first:
                await file.write(first)
                first = await session.read()

    async def run(self, stdin: bytes, session: GuestSession) -> ExecResult:
        """Run the command and send its outputs while it runs. Raises CannotRun if the guest has no shell.

        `stdin`: the input if it is not in a file. Returns the exit code, and the outputs if the guest has no
        writable directory for files.
        """
        pause = 0.0
        command = ("sh", "-c", _START, "sh", self._name, *session.request.command)
        async with self._guest.process(command, stdin) as process, self._files:
            self._is_there = True
            while (result := await process.look()) is None:
                if pause:
                    await self._forward(session)
                pause = await self._guest.pause(pause)
            await self._forward(session)
        return result

    async def _forward(self, session: GuestSession) -> None:
        # Errors first: kubectl's cp disconnects at the end of the archive and would not show them.
        for channel, name in ((Channel.STDERR, "err"), (Channel.STDOUT, "out")):
            if channel not in self._outputs:
                await self._open(channel, name)
            if channel in self._outputs:
                while data := await self._outputs[channel].read():
                    await session.send(channel, data)

    async def _open(self, channel: Channel, name: str) -> None:
        for directory in DIRECTORIES:
            with contextlib.suppress(FileRefused):  # in the other directory, not made yet, or nowhere
                opened = self._guest.opened(f"{directory}/{self._name}/{name}", "rb")
                self._outputs[channel] = await self._files.enter_async_context(opened)
                return

    async def remove(self) -> None:
        """Try to remove the directory; failures are ignored, since guests clean up temporary directories."""
        if self._is_there:
            command = ("rm", "-rf", *(f"{directory}/{self._name}" for directory in DIRECTORIES))
            with contextlib.suppress(KubeletxError, TimeoutError):
                async with asyncio.timeout(_TIDY_SECONDS):
                    await self._guest.run(command)
