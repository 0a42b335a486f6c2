"""`FlexDriver`: one executable driver, and the calls to it.

Every call takes a slot, runs the executable in a process group of its own, and reads its reply. Waiting for a slot
counts against the deadline. A command that the driver answered with "Not supported" is not called again; a changed
executable is another `FlexDriver`, with new counts.
"""

from __future__ import annotations

import asyncio
import enum
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final

import structlog

from kubeletx.api.names import Event
from kubeletx.linux.redaction import Redactor

from ..errors import BadAnswer, CallUnclear, DriverFailed, start_error
from .discovery import FoundDriver
from .processes import Processes
from .reply import BadReply, DriverCapabilities, DriverReply, ReplyStatus, quoted, read_reply
from .status import FlexDriverStatus

log = structlog.get_logger(__name__)


class Command(enum.Enum):
    """Command of a call: the driver's first argument. Source: FlexVolume specification."""

    INIT = "init"
    ATTACH = "attach"
    WAIT_FOR_ATTACH = "waitforattach"
    MOUNT_DEVICE = "mountdevice"
    MOUNT = "mount"
    UNMOUNT = "unmount"
    UNMOUNT_DEVICE = "unmountdevice"
    DETACH = "detach"
    EXPAND_VOLUME = "expandvolume"
    EXPAND_FS = "expandfs"


class DriverState(enum.Enum):
    """State of a driver; the value is shown to users."""

    INITIALISING = "initialising"
    READY = "ready"
    FAILED = "failed"


_NOT_REMEMBERED: Final = Command.INIT
MOST_CALLS: Final = 8
MOST_OF_ONE_DRIVER: Final = 6


class CallSlots:
    """Limits how many calls of all drivers, and of one driver, run at the same time; further calls wait in their order.

    A driver that hangs leaves room for the others.
    """

    def __init__(self) -> None:
        self._all = asyncio.Semaphore(MOST_CALLS)
        self._by_driver: dict[str, asyncio.Semaphore] = defaultdict(
            lambda: asyncio.Semaphore(MOST_OF_ONE_DRIVER)
        )

    @asynccontextmanager
    async def slot(self, driver: str) -> AsyncIterator[None]:
        """Wait for a slot and hold it. `driver`: name of the called driver."""
        async with self._by_driver[driver], self._all:
            yield


class FlexDriver:
    """One executable driver. Calls raise KubeletxErrors; they never show the secrets of the call."""

    def __init__(
        self, found: FoundDriver, processes: Processes, slots: CallSlots, environment: Mapping[str, str]
    ) -> None:
        """`environment`: all environment variables of the driver."""
        self.found = found
        self.state = DriverState.INITIALISING
        self.capabilities = DriverCapabilities()
        self.calls = 0
        self.failures = 0
        self.last_error = ""
        self.tried = asyncio.Event()
        """Set once the first ``init`` has succeeded or failed, or the driver was removed."""
        self.initialising: asyncio.Task[None] | None = None
        """Task that calls ``init`` until it succeeds."""
        self._processes = processes
        self._slots = slots
        self._environment = environment
        self._unsupported: set[Command] = set()
        self._is_talkative = False

    @property
    def status(self) -> FlexDriverStatus:
        return FlexDriverStatus(
            name=self.name,
            path=self.found.path,
            state=self.state.value,
            capabilities=self.capabilities.words,
            calls=self.calls,
            failures=self.failures,
            last_error=self.last_error,
        )

    @property
    def name(self) -> str:
        """Name of the driver, such as ``example.com/ramdisk``."""
        return self.found.name

    async def call(
        self,
        command: Command,
        arguments: Sequence[str] = (),
        *,
        until: float,
        key: str = "",
        secrets: Mapping[str, bytes] | None = None,
    ) -> DriverReply | None:
        """Call the driver; return its reply, or None if it does not support the command.

        `until`: deadline, in the time of the event loop. `key`: names the volume, as in `Processes.run`. `secrets`:
        what the arguments contain, to keep it out of messages. Raises DriverFailed if the driver answered that it
        failed, DriverMissing if it was not started, and CallUnclear if its answer is missing or unclear (BadAnswer if
        it has exited by itself).
        """
        if command in self._unsupported:
            return None
        self.calls += 1
        try:
            reply = await self._run(command, arguments, until, key, Redactor(secrets))
        except BaseException as error:
            self.failures += 1
            self.last_error = str(error) or f"{command.value} was cancelled"
            raise
        if reply.status is ReplyStatus.NOT_SUPPORTED:
            if command is not _NOT_REMEMBERED:
                self._unsupported.add(command)
            return None
        return reply

    async def _run(
        self, command: Command, arguments: Sequence[str], until: float, key: str, redactor: Redactor
    ) -> DriverReply:
        began = asyncio.get_running_loop().time()
        program = (self.found.path, command.value, *arguments)
        try:
            async with asyncio.timeout_at(until), self._slots.slot(self.name):
                result = await self._processes.run(program, key=key, environment=self._environment)
        except TimeoutError as error:
            problem = (
                f"did not answer within {max(0.0, until - began):.1f} s and was killed; it is tried again"
            )
            raise self._unclear(CallUnclear, command, problem) from error
        except OSError as error:
            raise start_error(self.name, self.found.path, error) from None  # its context has the arguments
        try:
            reply = read_reply(result.exit_code, result.stdout, result.stderr, is_cut=result.is_cut)
        except BadReply as error:
            cls = CallUnclear if result.is_cut else BadAnswer  # a driver that floods was killed
            said = quoted(redactor.clean(error.output))
            raise self._unclear(cls, command, f"{error}: {said}") from None
        self._report_chatter(command, reply)
        if reply.status is ReplyStatus.FAILURE:
            said = quoted(redactor.clean(reply.message)) if reply.message else "no message"
            raise DriverFailed(
                f"driver {self.name}: {command.value} failed: {said}", reason=Event.FAILED_MOUNT
            )
        return reply

    def _unclear(self, cls: type[CallUnclear], command: Command, problem: str) -> CallUnclear:
        return cls(f"driver {self.name}: {command.value}: {problem}", reason=Event.FAILED_MOUNT)

    def _report_chatter(self, command: Command, reply: DriverReply) -> None:
        if reply.has_chatter and not self._is_talkative:
            self._is_talkative = True
            log.warning(
                "Ignored output of a driver that is not its JSON object",
                driver=self.name,
                command=command.value,
            )
