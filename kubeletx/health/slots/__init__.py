"""Slots of OS images by boot loader: one file a backend, and `open_slots`, which chooses one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from .slots import Abilities as Abilities
from .slots import Slots as Slots
from .slots import SlotsError as SlotsError
from .slots import SlotsPending as SlotsPending

Opener = Callable[[str, Path], Slots]


def _file(argument: str, _: Path) -> Slots:
    from .file import FileSlots

    return FileSlots(Path(argument))


def _systemd_boot(argument: str, _: Path) -> Slots:
    from .systemd_boot import SystemdBootSlots

    return SystemdBootSlots(Path(argument) if argument else None)


def _grub(argument: str, _: Path) -> Slots:
    from .grub import DEFAULT_BLOCK, GrubSlots

    return GrubSlots(Path(argument) if argument else DEFAULT_BLOCK)


def _gpt(argument: str, _: Path) -> Slots:
    from .gpt import GptSlots

    return GptSlots(argument)


def _rauc(argument: str, persist: Path) -> Slots:
    from .rauc import RECORD, RaucSlots

    return RaucSlots(Path(argument) if argument else persist / RECORD)


BACKENDS: Final[dict[str, Opener]] = {
    "file": _file,
    "systemd-boot": _systemd_boot,
    "grub": _grub,
    "gpt": _gpt,
    "rauc": _rauc,
}
"""Backends by name; each function gets what follows the colon and PERSIST, and imports its module when it is chosen."""


def open_slots(text: str, persist: Path) -> Slots:
    """Open the slots that ``--slots`` names, such as ``file:/tmp/slots`` or ``grub``. Raises SlotsError."""
    name, _, argument = text.partition(":")
    if name not in BACKENDS:
        raise SlotsError(f"--slots: {name!r} is not a backend; use {', '.join(sorted(BACKENDS))}")
    return BACKENDS[name](argument, persist)
