"""Slots in a thread of their own: a tick takes the last table and leaves changes behind, and never waits for a disk or program.

A backend that hangs, fails or answers nonsense is an error of `read`, with the same words each time; the caller keeps the
last table. Changes are made in the order in which they came. If one fails or does not show, `report` gets a line, from the
thread; the guardian asks for it again at its next tick.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Lock, Thread
from typing import Final

from ..model import SlotState, SlotTable
from .slots import LABELS, Slots, SlotsError, SlotsPending

DEADLINE_SECONDS: Final = 90.0
"""Time for one call; programs of backends have shorter deadlines of their own."""


class PolledSlots:
    """Implements `Slots` without blocking."""

    def __init__(
        self,
        slots: Slots,
        report: Callable[[str], object],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.abilities = slots.abilities
        self._slots, self._report, self._clock = slots, report, clock
        self._lock = Lock()
        self._reads = 0
        self._is_asked = False
        self._changes: dict[str, SlotState] = {}
        self._busy_since: float | None = None
        self._result: SlotTable | SlotsError = SlotsPending("the slots have not answered yet")

    def read(self) -> SlotTable:
        """Return the last table and have the next one read. Raises SlotsPending before the first one."""
        with self._lock:
            if self._reads % self.abilities.read_every == 0 or isinstance(self._result, SlotsError):
                self._ask()
            self._reads += 1
            since = self._busy_since
            if since is not None and self._clock() - since > DEADLINE_SECONDS:
                raise SlotsError(
                    f"the slots have not answered for {DEADLINE_SECONDS:g} s; a disk or the boot loader's program hangs"
                )
            if isinstance(self._result, SlotsError):
                raise type(self._result)(str(self._result))  # the same object again would keep each traceback
            return self._result

    def set_state(self, label: str, state: SlotState) -> None:
        """Have the state written soon. The newest state of a slot counts."""
        if state is SlotState.INPROGRESS:
            raise SlotsError(f"{label}: only the boot loader sets a slot to inprogress")
        with self._lock:
            self._changes.pop(label, None)
            self._changes[label] = state
            self._ask()

    def _ask(self) -> None:
        """Start a thread if none works. The caller holds the lock."""
        self._is_asked = True
        if self._busy_since is None:
            try:
                Thread(target=self._run, name="slots", daemon=True).start()
            except RuntimeError as error:
                raise SlotsError(f"the slots are not read: {error}") from error
            self._busy_since = self._clock()

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._is_asked:
                    self._busy_since = None
                    return
                self._is_asked, changes, self._changes = False, self._changes, {}
                self._busy_since = self._clock()
            failed = {label for label, state in changes.items() if not self._write(label, state)}
            result = self._read()
            if isinstance(result, SlotTable):
                for label in changes.keys() - failed:
                    shown = result.get(label).state
                    if shown is not changes[label]:
                        self._report(
                            f"{label} was set to {changes[label]} and still reads {shown}; is its boot loader configured?"
                        )
            with self._lock:
                self._result = result

    def _write(self, label: str, state: SlotState) -> bool:
        try:
            self._slots.set_state(label, state)
        except Exception as error:  # noqa: BLE001 - the root of a thread
            self._report(_words(error))
            return False
        return True

    def _read(self) -> SlotTable | SlotsError:
        try:
            table = self._slots.read()
        except Exception as error:  # noqa: BLE001 - the root of a thread
            return SlotsError(_words(error))
        labels = tuple(slot.label for slot in table.slots)
        if labels != LABELS or table.current_label not in LABELS:
            return SlotsError(
                f"the slots are named {', '.join(labels)} and {table.current_label!r} runs; IMGA and IMGB are expected"
            )
        return table


def _words(error: Exception) -> str:
    return str(error) if isinstance(error, SlotsError) else f"the slots failed: {error!r}"
