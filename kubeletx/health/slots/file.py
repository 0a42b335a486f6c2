"""Simulated slots in a directory, for trying out and for tests: nothing is ever booted.

DIR/IMGA.state, DIR/IMGB.state   one word: active, updating, inprogress or unused
DIR/IMGA.version                 version of the image; optional: without it, the label counts as the version
DIR/current                      label of the running image
DIR/reboots                      a JSON line for each simulated reboot: {reason, bootReason, label}
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from kubeletx.linux.files import read_regular, remove_file, replace_file

from ..model import BootReason, Slot, SlotState, SlotTable
from .slots import LABELS, Abilities, Slots, SlotsError, state_of, write_through


class FileSlots(Slots):
    """Slots in a directory. A missing directory is made, with an active IMGA that runs and an unused IMGB."""

    abilities = Abilities(
        counts_tries=True,
        proof="simulated",
        is_simulated=True,
        limits=("nothing is booted; reboots are written down",),
    )

    def __init__(self, directory: Path = Path()) -> None:
        """Raises SlotsError for an empty name; the directory is looked at by the first call that needs it."""
        if str(directory) == ".":
            raise SlotsError("--slots file: needs a directory, such as file:/tmp/slots")
        self._directory = directory
        self._is_prepared = False

    def _read(self) -> SlotTable:
        self._prepare()
        current = self._word("current", absent="IMGA")
        if current not in LABELS:
            path = self._directory / "current"
            raise SlotsError(f"{path}: {current[:40]!r} is not a label; write IMGA or IMGB")
        first, second = (self._slot(label) for label in LABELS)
        return SlotTable((first, second), current)

    def _write(self, label: str, state: SlotState) -> None:
        self._replace(f"{label}.state", state)

    def boots(self) -> int:
        """Return how many simulated reboots there were; it stands for the kernel's boot ID. Raises SlotsError and OSError."""
        self._prepare()
        return self._count()

    def _count(self) -> int:
        try:
            return (self._directory / "reboots").read_bytes().count(b"\n")
        except FileNotFoundError:
            return 0

    def reboot(self, reason: str, boot_reason: BootReason) -> None:
        """Simulate a reboot: apply the loader's rule and write the line. An interrupted one is finished at the next start."""
        table = self.read()
        chosen = next((s for s in table.slots if s.state is SlotState.UPDATING), None)
        if chosen is None:
            # On a tie the first entry wins, as with GRUB's gptprio. Without any image the loader keeps what it has.
            chosen = next((s for s in table.slots if s.state is SlotState.ACTIVE), table.current)
        line = json.dumps({"reason": reason, "bootReason": boot_reason.text, "label": chosen.label})
        self._replace(".booting", f"{self.boots()} {line}")
        self._finish_boot()

    def _prepare(self) -> None:
        if self._is_prepared:
            return
        if not self._directory.exists():
            self._replace("IMGA.state", "active")
            self._replace("IMGB.state", "unused")
            self._replace("current", "IMGA")
        self._finish_boot()
        self._is_prepared = True

    def _finish_boot(self) -> None:
        path = self._directory / ".booting"
        if not path.exists():
            return
        boots, _, line = self._word(".booting").partition(" ")
        label = json.loads(line)["label"]
        if self._word(f"{label}.state") == SlotState.UPDATING:
            self._replace(f"{label}.state", SlotState.INPROGRESS)  # the try is used up
        self._replace("current", label)
        if self._count() == int(boots):
            write_through(self._directory / "reboots", line.encode() + b"\n", os.O_APPEND | os.O_CREAT)
        remove_file(path)

    def _slot(self, label: str) -> Slot:
        place = str(self._directory / f"{label}.state")
        state = state_of(self._word(f"{label}.state", absent=SlotState.UNUSED), place)
        return Slot(label, state, self._word(f"{label}.version", absent=label), place)

    def _word(self, name: str, *, absent: str | None = None) -> str:
        path = self._directory / name
        if absent is not None and not path.exists():
            return absent
        return read_regular(path, 4096).decode(errors="replace").strip()

    def _replace(self, name: str, text: str) -> None:
        replace_file(self._directory / name, text.encode() + b"\n", 0o644)
