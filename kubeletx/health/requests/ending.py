"""Ends of the boot: begun, held by a test or a drain, and carried out step by step."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from .. import drain, operations
from ..drain import DrainHold, DrainPhase, DrainRequester
from ..inbox import Inbox
from ..machine import MachineEffects, sync_within
from ..model import Begin
from ..operations import Deed
from ..reasons import BootRecord, ReasonFiles
from ..statuses import held_operation
from ..validation import Phase
from .guardian_state import GuardianState


class Exit(Exception):
    """The guardian ends without a word to the watchdog, so that the hardware resets the machine."""


class BootEnding:
    """The operation under way and the drain before it.

    `report` logs a line, `record` keeps it in the history as well; their first argument is a CamelCase reason.
    """

    def __init__(
        self,
        state: GuardianState,
        persist: Path,
        inbox: Inbox,
        machine: MachineEffects,
        report: Callable[[str, str], object],
        record: Callable[[str, str], object],
    ) -> None:
        self._state, self._reasons = state, ReasonFiles(persist)
        self._inbox, self._machine, self._report, self._record = inbox, machine, report, record
        self._is_drain_needed = False

    def begin(self, request: Begin, *, must_wait: bool) -> str:
        """Begin an operation; returns why it is refused: empty if it is not."""
        before = self._state.run.operation
        operation, refusal = operations.begin(before, request, self._state.run.now, must_wait=must_wait)
        if refusal:
            self._report("OperationRefused", f"{request.kind}: {refusal}")
        elif operation is not before and operation is not None:
            replaces = f"; it replaces a {before.kind} that has not begun" if operations.waits(before) else ""
            self._record(
                "OperationBegins",
                f"{operation.kind} ({operation.boot_reason.text}): {operation.reason}{replaces}",
            )
        self._state.update_run(operation=operation)
        return refusal

    def withdraw_update(self) -> None:
        """Withdraw a reboot into a new image that is announced, because the image was cancelled."""
        before = self._state.run.operation
        operation = operations.withdraw_update(before)
        if operation is not before:
            self._record("OperationWithdrawn", "the new image was cancelled")
        self._state.update_run(operation=operation)

    def hold(self, *, is_new_order: bool = False) -> str:
        """Return why an operation of a user does not begin yet; asks for a drain if no test holds it."""
        if not self._state.is_testing and operations.waits(self._state.run.operation):
            self.drain(DrainRequester.DEVICEOP, is_new_order=is_new_order)
        return held_operation(self._state.run)

    def drain(self, requester: DrainRequester, *, is_new_order: bool) -> str:
        """Wait for a drain; returns why it holds `requester`: empty if it does not. A new order asks again."""
        state, seen = self._state, self._inbox.drain
        before, now = state.run.drain, state.run.now
        hold = drain.wait(before, requester, seen, now, state.settings, is_new_order=is_new_order)
        self._is_drain_needed = True
        if hold.phase is not before.phase and (seen is not None or before.phase is not DrainPhase.NONE):
            self._record("NodeDrain", hold.reason)
        state.update_run(drain=hold)
        return hold.held_by

    def advance(self) -> tuple[Deed, ...]:
        """Take the commands of the controller and go one step on; returns what is to be done once it is stored."""
        for request in self._inbox.take_requests():
            self.begin(request, must_wait=True)
        is_new, self._inbox.has_new_command = self._inbox.has_new_command, False
        held_by = self.hold(is_new_order=is_new)
        deeds: tuple[Deed, ...] = ()
        run = self._state.run
        if run.operation is not None:
            operation, deeds = operations.advance(
                run.operation, run.now, is_held=bool(held_by), all_halted=self._inbox.is_halted
            )
            self._state.update_run(operation=operation)
        elif not self._is_drain_needed and run.validation.phase is not Phase.INSTALLED:
            self._state.update_run(drain=DrainHold())
        self._is_drain_needed = False
        return deeds

    def do(self, deed: Deed) -> None:
        """Carry out a deed. Raises Exit, and what `MachineEffects.act` raises."""
        operation, table = self._state.run.operation, self._state.table
        assert operation is not None
        match deed:
            case Deed.WRITE_REASON:
                record = BootRecord(
                    boot_reason=operation.boot_reason,
                    reason=operation.reason,
                    image=table.current_label if table else "",
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
