"""The interface of slots: two places for OS images, whatever the boot loader is, and what backends share."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import ClassVar, Final

import msgspec

from ..model import SlotState, SlotTable

LABELS: Final = ("IMGA", "IMGB")
"""Labels of the reference (EVE)."""
COMMAND_LINE: Final = Path("/proc/cmdline")
BACKENDS: Final = {
    "file": "FileSlots",
    "systemd-boot": "SystemdBootSlots",
    "grub": "GrubSlots",
    "gpt": "GptSlots",
    "rauc": "RaucSlots",
}
"""Classes by the names of backends; each is in the module of that name and takes a path, which is optional."""


class SlotsError(Exception):
    """The slots cannot be read or written now. The message is one line for users and says what to do."""


class SlotsPending(SlotsError):
    """The slots have not answered yet since the start; it is no fault."""


class Abilities(msgspec.Struct, frozen=True, kw_only=True):
    """Abilities of a backend. `counts_tries`: the loader itself uses up the try, so a hang before user space falls back.

    `proof`: how tests have met the loader; empty: they have not, and the backend is not supported yet. `is_simulated`: a
    reboot is only written down. `limits`: what it cannot do, a line each. `read_every`: ticks from one read to the next;
    above 1 if it runs a program. After a change the slots are always read.
    """

    counts_tries: bool
    proof: str = ""
    is_simulated: bool = False
    limits: tuple[str, ...] = ()
    read_every: int = 1


class Slots:
    """The two slots of one boot loader. All methods block, for up to 30 s if they run a program, and raise SlotsError.

    A backend implements `_read` and `_write`, which may raise OSError as well. `place`: named in errors about no file.
    `record`: its default path, below PERSIST.
    """

    abilities: Abilities
    place: object = "slots"
    record: ClassVar[Path | None] = None

    def read(self) -> SlotTable:
        """Read both slots."""
        with self._translated():
            return self._read()

    def set_state(self, label: str, state: SlotState) -> None:
        """Write the state of a slot so that it survives a power cut. The same again changes nothing."""
        if state is SlotState.INPROGRESS:
            raise SlotsError(f"{label}: only the boot loader sets a slot to inprogress")
        with self._translated():
            self._write(label, state)

    # Not abstract, since `PolledSlots` is not a backend and replaces `read` and `set_state` themselves.
    def _read(self) -> SlotTable:
        raise NotImplementedError

    def _write(self, label: str, state: SlotState) -> None:
        raise NotImplementedError

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise SlotsError(f"{error.filename or self.place}: {error.strerror or error}") from error


def open_slots(text: str, persist: Path) -> Slots:
    """Open the slots that ``--slots`` names, such as ``file:/tmp/slots`` or ``grub``. Raises SlotsError."""
    name, _, argument = text.partition(":")
    if name not in BACKENDS:
        raise SlotsError(f"--slots: {name!r} is not a backend; use {', '.join(sorted(BACKENDS))}")
    backend = getattr(import_module(f".{name.replace('-', '_')}", __package__), BACKENDS[name])
    path = Path(argument) if argument else backend.record and persist / backend.record
    slots: Slots = backend(path) if path else backend()
    return slots


def state_of(word: str, place: str) -> SlotState:
    """Return the state that a loader's file has at `place`. Raises SlotsError."""
    if word not in set(SlotState):
        raise SlotsError(f"{place}: {word[:40]!r} is not one of {', '.join(SlotState)}")
    return SlotState(word)


def running_label(command_line: Path, labels: Mapping[str, str]) -> str:
    """Return the label that the kernel's command line names last. `labels`: by parameter, in lower case."""
    words = [word.lower() for word in command_line.read_text().split()]
    found = [labels[word] for word in words if word in labels]
    if not found:
        raise SlotsError(f"{command_line}: names no slot; boot with one of {', '.join(labels)}")
    return found[-1]


def write_through(path: Path, data: bytes, flags: int) -> None:
    """Write to a file, opened with these flags; it is on disk when the function returns."""
    descriptor = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC | flags, 0o644)
    try:
        os.write(descriptor, data)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
