"""Slots of OS images by boot loader: one file a backend, and `open_slots`, which chooses one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol

import msgspec

from ..model import SlotState, SlotTable


class SlotsError(Exception):
    """The slots cannot be read or written now. The message is one line for users and says what to do."""


class Abilities(msgspec.Struct, frozen=True, kw_only=True):
    """What a backend can do. `counts_tries`: the loader itself uses up the try, so a hang before user space falls back.

    `is_simulated`: a reboot is only written down. `limits`: what it cannot do, a line each.
    """

    counts_tries: bool
    is_simulated: bool = False
    limits: tuple[str, ...] = ()


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


Opener = Callable[[str], Slots]


def _file(argument: str) -> Slots:
    from .file import FileSlots

    return FileSlots(Path(argument))


BACKENDS: Final[dict[str, Opener]] = {"file": _file}
"""Backends by name; each function gets what follows the colon, and imports its module when it is chosen."""


def open_slots(text: str) -> Slots:
    """Open the slots that ``--slots`` names, such as ``file:/tmp/slots`` or ``grub``. Raises SlotsError."""
    name, _, argument = text.partition(":")
    if name not in BACKENDS:
        raise SlotsError(f"--slots: {name!r} is not a backend; use {', '.join(sorted(BACKENDS))}")
    return BACKENDS[name](argument)
