"""Slots in a thread of their own: a tick takes the last table and leaves changes behind, and never waits for a disk or program.

A backend that hangs, fails or answers nonsense is an error of `read`, with the same words each time; the caller keeps the
last table. Changes are made in the order in which they came. If one fails or does not show, `report` gets a line, from the
thread; the guardian asks for it again at its next tick.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from ..background import Background
from ..model import SlotState, SlotTable
from .slots import LABELS, Slots, SlotsError, SlotsPending

DEADLINE_SECONDS: Final = 90.0
"""Time for the changes and a read; programs of backends have shorter deadlines of their own."""


class PolledSlots(Slots):
    """Implements `Slots` without blocking."""

    def __init__(
        self,
        slots: Slots,
        report: Callable[[str], object],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.abilities = slots.abilities
        self._slots, self._report = slots, report
        self._background: Background[SlotTable | SlotsError] = Background(clock)
        self._reads = 0
        self._changes: dict[str, SlotState] = {}
        self._result: SlotTable | SlotsError = SlotsPending("the slots have not answered yet")

    def _read(self) -> SlotTable:
        """Return the last table and have the next one read. Raises SlotsPending before the first one."""
        self._collect()
        is_due = self._reads % self.abilities.read_every == 0
        self._reads += 1
        if is_due or self._changes or isinstance(self._result, SlotsError):
            self._start()
        if isinstance(self._result, SlotsError):
            raise type(self._result)(str(self._result))  # the same object again would keep each traceback
        return self._result

    def _write(self, label: str, state: SlotState) -> None:
        """Have the state written soon. The newest state of a slot counts."""
        self._changes.pop(label, None)
        self._changes[label] = state
        self._collect()
        self._start()

    def _collect(self) -> None:
        for result in self._background.results().values():
            self._result = result or SlotsError(
                f"the slots have not answered for {DEADLINE_SECONDS:g} s; a disk or the boot loader's program hangs"
            )

    def _start(self) -> None:
        if self._background.start("slots", partial(self._work, self._changes), DEADLINE_SECONDS):
            self._changes = {}

    def _work(self, changes: Mapping[str, SlotState]) -> SlotTable | SlotsError:
        made = {label: state for label, state in changes.items() if self._change(label, state)}
        try:
            table = self._slots.read()
        except Exception as error:  # noqa: BLE001 - the root of a thread
            return _slots_error(error)
        labels = tuple(slot.label for slot in table.slots)
        if labels != LABELS or table.current_label not in LABELS:
            return SlotsError(
                f"the slots are named {', '.join(labels)} and {table.current_label!r} runs; IMGA and IMGB are expected"
            )
        for label, state in made.items():
            shown = table.get(label).state
            if shown is not state:
                self._report(
                    f"{label} was set to {state} and still reads {shown}; is its boot loader configured?"
                )
        return table

    def _change(self, label: str, state: SlotState) -> bool:
        try:
            self._slots.set_state(label, state)
        except Exception as error:  # noqa: BLE001 - the root of a thread
            self._report(str(_slots_error(error)))
            return False
        return True


def _slots_error(error: Exception) -> SlotsError:
    return error if isinstance(error, SlotsError) else SlotsError(f"the slots failed: {error!r}")
