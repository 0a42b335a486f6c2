"""The interface of slots: two places for OS images, whatever the boot loader is."""

from __future__ import annotations

from typing import Final, Protocol

import msgspec

from ..model import SlotState, SlotTable

LABELS: Final = ("IMGA", "IMGB")
"""Labels of the reference (EVE)."""


class SlotsError(Exception):
    """The slots cannot be read or written now. The message is one line for users and names the remedy."""


class SlotsPending(SlotsError):
    """The slots have not answered yet since the start; it is no fault."""


class Abilities(msgspec.Struct, frozen=True, kw_only=True):
    """Abilities of a backend. `counts_tries`: the loader itself uses up the try, so a hang before user space falls back.

    `proof`: how tests have met the loader; empty: they have not, and the backend is not supported yet. `is_simulated`: a reboot is only written down. `limits`: what it cannot do, a line each. `read_every`: ticks from one
    read to the next; above 1 if it runs a program. After a change the slots are always read.
    """

    counts_tries: bool
    proof: str = ""
    is_simulated: bool = False
    limits: tuple[str, ...] = ()
    read_every: int = 1


class Slots(Protocol):
    """The two slots of one boot loader. All methods block, for up to 30 s if they run a program, and raise SlotsError."""

    abilities: Abilities

    def read(self) -> SlotTable:
        """Read both slots."""
        ...

    def set_state(self, label: str, state: SlotState) -> None:
        """Write the state of a slot so that it survives a power cut. The same again changes nothing.

        INPROGRESS is refused: only the loader sets it, by using up the try.
        """
        ...
