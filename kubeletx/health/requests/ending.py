"""Ends of the boot: begun, held by a test or a drain, and carried out step by step."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from msgspec.structs import replace

from .. import drain, operations
from ..config import HealthSettings
from ..drain import DrainHold, DrainPhase, DrainRequester
from ..inbox import Inbox
from ..machine import MachineEffects, sync_within
from ..model import Begin
from ..operations import Deed
from ..reasons import BootRecord, ReasonFiles
from ..state import RunState
from ..statuses import held_operation
from ..validation import Phase


class Exit(Exception):
    """The guardian ends without a word to the watchdog, so that the hardware resets the machine."""


class BootEnding:
    """The operation under way and the drain before it; both are values of the `RunState` that comes in and goes out.

    `report` logs a line, `record` keeps it in the history as well; their first argument is a CamelCase reason.
    """

    def __init__(
        self,
        persist: Path,
        inbox: Inbox,
        machine: MachineEffects,
        report: Callable[[str, str], object],
        record: Callable[[str, str], object],
    ) -> None:
        self._reasons = ReasonFiles(persist)
        self._inbox, self._machine, self._report, self._record = inbox, machine, report, record
        self._is_drain_needed = False

    def begin(self, run: RunState, request: Begin, *, must_wait: bool) -> tuple[RunState, str]:
        """Begin an operation; returns why it is refused, too: empty if it is not."""
        before = run.operation
        operation, refusal = operations.begin(before, request, run.now, must_wait=must_wait)
        if refusal:
            self._report("OperationRefused", f"{request.kind}: {refusal}")
        elif operation is not before and operation is not None:
            replaces = f"; it replaces a {before.kind} that has not begun" if operations.waits(before) else ""
            self._record(
                "OperationBegins",
                f"{operation.kind} ({operation.boot_reason.text}): {operation.reason}{replaces}",
            )
        return replace(run, operation=operation), refusal

    def withdraw_update(self, run: RunState) -> RunState:
        """Withdraw a reboot into a new image that is announced, because the image was cancelled."""
        operation = operations.withdraw_update(run.operation)
        if operation is not run.operation:
            self._record("OperationWithdrawn", "the new image was cancelled")
        return replace(run, operation=operation)

    def hold(
        self, run: RunState, settings: HealthSettings, *, is_new_order: bool = False
    ) -> tuple[RunState, str]:
        """Return why an operation of a user does not begin yet; asks for a drain if no test holds it."""
        if run.validation.phase is not Phase.TESTING and operations.waits(run.operation):
            run, _ = self.drain(run, DrainRequester.DEVICEOP, settings, is_new_order=is_new_order)
        return run, held_operation(run)

    def drain(
        self, run: RunState, requester: DrainRequester, settings: HealthSettings, *, is_new_order: bool
    ) -> tuple[RunState, str]:
        """Wait for a drain; returns why it holds `requester`, too: empty if it does not. A new order asks again."""
        before, seen = run.drain, self._inbox.drain
        hold = drain.wait(before, requester, seen, run.now, settings, is_new_order=is_new_order)
        self._is_drain_needed = True
        if hold.phase is not before.phase and (seen is not None or before.phase is not DrainPhase.NONE):
            self._record("NodeDrain", hold.reason)
        return replace(run, drain=hold), hold.held_by

    def advance(self, run: RunState, settings: HealthSettings) -> tuple[RunState, tuple[Deed, ...]]:
        """Take the commands of the controller and go one step on; returns what is to be done once it is stored."""
        for request in self._inbox.take_requests():
            run, _ = self.begin(run, request, must_wait=True)
        is_new, self._inbox.has_new_command = self._inbox.has_new_command, False
        run, held_by = self.hold(run, settings, is_new_order=is_new)
        deeds: tuple[Deed, ...] = ()
        if run.operation is not None:
            operation, deeds = operations.advance(
                run.operation, run.now, is_held=bool(held_by), all_halted=self._inbox.is_halted
            )
            run = replace(run, operation=operation)
        elif not self._is_drain_needed and run.validation.phase is not Phase.INSTALLED:
            run = replace(run, drain=DrainHold())
        self._is_drain_needed = False
        return run, deeds

    def do(self, run: RunState, deed: Deed, image: str) -> None:
        """Carry out a deed. `image`: label of the running one. Raises Exit, and what `MachineEffects.act` raises."""
        operation = run.operation
        assert operation is not None
        match deed:
            case Deed.WRITE_REASON:
                record = BootRecord(
                    boot_reason=operation.boot_reason,
                    reason=operation.reason,
                    image=image,
                    stack=operation.stack,
                )
                try:
                    self._reasons.write(record)
                except OSError as error:
                    self._report("BadState", f"the reason of the reboot cannot be written: {error.strerror}")
            case Deed.SYNC:
                if not sync_within(1.0):
                    self._report("SlowSync", "the file systems have not written their buffers; it goes on")
            case Deed.ACT:
                try:
                    self._machine.act(operation.kind, operation.boot_reason, operation.reason)
                except OSError as error:
                    self._report("CannotAct", f"{operation.kind}: {error}")
            case Deed.EXIT:
                seconds = operations.BACKSTOP_SECONDS
                raise Exit(f"the machine is still there {seconds} s after {operation.kind}")
