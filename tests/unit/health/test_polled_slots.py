"""Slots in a thread: what a backend does never holds the caller."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Event
from threading import enumerate as enumerate_threads

import pytest

from kubeletx.health.model import Slot, SlotState, SlotTable
from kubeletx.health.slots import Abilities, Slots, SlotsError, SlotsPending
from kubeletx.health.slots.polled import DEADLINE_SECONDS, PolledSlots
from kubeletx_testing.waiting import block_until

SOUND = SlotTable((Slot("IMGA", SlotState.ACTIVE), Slot("IMGB", SlotState.UNUSED)), "IMGA")


class OddSlots(Slots):
    """A backend that hangs until `goes_on`, fails with `error`, and ignores changes if `ignores`."""

    def __init__(self) -> None:
        self.abilities = Abilities(counts_tries=True, read_every=3)
        self.table = SOUND
        self.goes_on, self.begun = Event(), Event()
        self.goes_on.set()
        self.error: Exception | None = None
        self.ignores = False
        self.calls: list[str] = []

    def read(self) -> SlotTable:
        self._call("read")
        return self.table

    def set_state(self, label: str, state: SlotState) -> None:
        self._call(f"{label}={state}")
        if not self.ignores:
            slots = [Slot(label, state) if slot.label == label else slot for slot in self.table.slots]
            self.table = SlotTable((slots[0], slots[1]), self.table.current_label)

    def _call(self, text: str) -> None:
        self.begun.set()
        self.goes_on.wait()
        self.calls.append(text)
        if self.error is not None:
            raise self.error


class Caller:
    """The guardian's side, with a clock that stands."""

    def __init__(self, backend: OddSlots) -> None:
        self.backend = backend
        self.lines: list[str] = []
        self.now = 0.0
        self.slots = PolledSlots(backend, self.lines.append, clock=lambda: self.now)

    def answer(self) -> str:
        """What a read gives now: the states, or the error."""
        try:
            return " ".join(slot.state for slot in self.slots.read().slots)
        except SlotsError as error:
            return str(error)

    def until(self, text: str) -> None:
        block_until(lambda: text in self.answer())

    def until_told(self, text: str) -> None:
        block_until(lambda: self.answer() and any(text in line for line in self.lines))


@pytest.fixture
def caller() -> Iterator[Caller]:
    backend = OddSlots()
    yield Caller(backend)
    backend.goes_on.set()
    block_until(lambda: all(thread.name != "slots" for thread in enumerate_threads()))


def test_the_table_comes_later_and_a_change_shows(caller: Caller) -> None:
    with pytest.raises(SlotsPending, match="have not answered yet"):
        caller.slots.read()
    caller.until("active unused")
    caller.slots.set_state("IMGB", SlotState.UPDATING)
    caller.until("active updating")
    assert caller.lines == []
    with pytest.raises(SlotsError, match="only the boot loader"):
        caller.slots.set_state("IMGB", SlotState.INPROGRESS)


def test_a_backend_that_hangs_is_one_error_and_changes_wait_in_order(caller: Caller) -> None:
    caller.until("active unused")
    caller.backend.goes_on.clear()
    caller.backend.begun.clear()
    caller.slots.set_state("IMGA", SlotState.ACTIVE)
    block_until(lambda: caller.answer() and caller.backend.begun.is_set())
    caller.backend.calls.clear()
    caller.slots.set_state("IMGA", SlotState.UNUSED)
    caller.slots.set_state("IMGB", SlotState.UPDATING)
    caller.slots.set_state("IMGA", SlotState.ACTIVE)
    caller.now += DEADLINE_SECONDS - 1
    assert caller.answer() == "active unused"
    caller.now += 1
    line = caller.answer()
    assert "have not answered for 90 s" in line
    caller.now += 1000
    assert caller.answer() == line
    caller.backend.goes_on.set()
    caller.until("active updating")
    changes = [call for call in caller.backend.calls if call != "read"]
    assert (changes[-2:], "IMGA=unused" in changes) == (["IMGB=updating", "IMGA=active"], False)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (SlotsError("rauc is not installed"), "rauc is not installed"),
        (KeyError("slots"), "the slots failed: KeyError('slots')"),
    ],
)
def test_a_backend_that_fails_is_an_error_until_it_works_again(
    caller: Caller, error: Exception, text: str
) -> None:
    caller.backend.error = error
    caller.until(text)
    caller.slots.set_state("IMGB", SlotState.UPDATING)
    caller.until_told(text)
    caller.backend.error = None
    caller.until("active unused")


@pytest.mark.parametrize(
    "table",
    [SlotTable(SOUND.slots, "IMGC"), SlotTable((SOUND.slots[0], SOUND.slots[0]), "IMGA")],
)
def test_a_table_with_other_slots_is_an_error(caller: Caller, table: SlotTable) -> None:
    caller.backend.table = table
    caller.until("IMGA and IMGB are expected")


def test_a_change_that_does_not_show_is_told(caller: Caller) -> None:
    caller.until("active unused")
    caller.backend.ignores = True
    caller.slots.set_state("IMGB", SlotState.UPDATING)
    caller.until_told("IMGB was set to updating and still reads unused")


def test_a_backend_of_programs_is_not_read_at_each_tick(caller: Caller) -> None:
    caller.until("active unused")
    for _ in range(30):
        assert caller.answer() == "active unused"
    assert caller.backend.calls.count("read") < 20
