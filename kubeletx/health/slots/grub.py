"""Slots of GRUB: variables of its environment block, which ``deploy/grub/kubeletx.cfg`` reads and writes at boot.

    kubeletx_IMGA=active            the same words as `SlotState`; a missing variable means unused
    kubeletx_IMGB=updating          GRUB writes inprogress before it boots it
    kubeletx_first=IMGB             the slot that was updated last; of two active images it boots
    kubeletx_IMGB_version=2         version of the image; its installer sets it, with grub-editenv

The block is written in place and not replaced: GRUB writes the blocks that it finds on the disk, without the journal of a
file system, and a replaced file would undo that after a power cut. All variables have to fit in the first sector, so that
a write is cut before or after, and never inside. The parameter ``kubeletx.slot=IMGA`` of the kernel names the running slot.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from kubeletx.linux.files import read_regular

from ..model import Slot, SlotState, SlotTable
from .slots import (
    COMMAND_LINE,
    LABELS,
    Abilities,
    Slots,
    SlotsError,
    running_label,
    state_of,
    write_through,
)

DEFAULT_BLOCK: Final = Path("/boot/grub/grubenv")
_SIGNATURE: Final = b"# GRUB Environment Block\n"
_SECTOR: Final = 512
_MOST_BYTES: Final = 65536
_FIRST: Final = "kubeletx_first"


class GrubSlots(Slots):
    """Slots in an environment block. `command_line`: of the running kernel."""

    abilities = Abilities(
        counts_tries=True,
        proof="an emulated machine boots with it",
        limits=(
            "GRUB writes its block on plain partitions with FAT or ext4, not on LVM, RAID or Btrfs",
            "an image that hangs before its kernel starts the hardware watchdog needs a power cycle",
        ),
    )

    def __init__(self, block: Path = DEFAULT_BLOCK, command_line: Path = COMMAND_LINE) -> None:
        self._block, self._command_line = block, command_line
        self.place = block

    def _read(self) -> SlotTable:
        _, _, variables = self._variables()
        first, second = (self._slot(label, variables) for label in LABELS)
        labels = {f"kubeletx.slot={label.lower()}": label for label in LABELS}
        return SlotTable((first, second), running_label(self._command_line, labels))

    def _write(self, label: str, state: SlotState) -> None:
        size, head, variables = self._variables()
        wanted = {f"kubeletx_{label}": str(state)}
        if state is SlotState.UPDATING:
            wanted[_FIRST] = label
        if all(variables.get(name) == value for name, value in wanted.items()):
            return
        lines = [f"{name}={value}\n" for name, value in {**variables, **wanted}.items()]
        data = head + "".join(lines).encode(errors="surrogateescape")
        if len(data) > min(_SECTOR, size):
            raise SlotsError(
                f"{self._block}: its variables need {len(data)} of {min(_SECTOR, size)} bytes; "
                "remove some with grub-editenv"
            )
        write_through(self._block, data.ljust(size, b"#"), 0)

    def _variables(self) -> tuple[int, bytes, dict[str, str]]:
        """Return the size of the block, its leading comments and its variables; values stay escaped."""
        data = read_regular(self._block, _MOST_BYTES)
        if not data.startswith(_SIGNATURE):
            raise SlotsError(
                f"{self._block}: is not GRUB's environment block; make one with grub-editenv FILE create"
            )
        # A line ends at a line feed without a backslash before it; the padding has none.
        lines = [match[0] for match in re.finditer(rb"(?:[^\\\n]|\\.)*\n", data, re.DOTALL)]
        head = b"".join(line for line in lines if line.startswith(b"#"))
        pairs = (
            line[:-1].decode(errors="surrogateescape").partition("=")
            for line in lines
            if not line.startswith(b"#")
        )
        return len(data), head, {name: value for name, is_set, value in pairs if is_set}

    def _slot(self, label: str, variables: dict[str, str]) -> Slot:
        name = f"kubeletx_{label}"
        state = state_of(variables.get(name) or SlotState.UNUSED, f"{self._block}: {name}")
        return Slot(label, state, variables.get(f"{name}_version", ""), f"kubeletx-{label}")
