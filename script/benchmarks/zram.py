"""Swap in compressed memory that a benchmark makes and removes: a zram device.

The device has a label, by which the next run finds and removes the one of a run that was killed.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from kubeletx_testing.lab.process import LabError, run

_CONTROL = Path("/sys/class/zram-control")
_BLOCKS = Path("/sys/block")
_SWAPS = Path("/proc/swaps")
LABEL: Final = "kubeletx-bench"
_LABEL_AT: Final = 1052
"""Offset of the label in a swap area. Source: util-linux, include/swapheader.h."""
_HIGHEST_PRIORITY: Final = "32767"
"""Priority of this device over other swap of the machine."""


class Zram:
    """A zram device that is in use as swap."""

    def __init__(self, number: str) -> None:
        self._block = _BLOCKS / f"zram{number}"
        self.device = Path(f"/dev/zram{number}")

    @property
    def algorithm(self) -> str:
        """Name of the compression."""
        text = (self._block / "comp_algorithm").read_text()
        return text.partition("[")[2].partition("]")[0]

    def used_bytes(self) -> int:
        """Memory that the compressed pages occupy, with the allocator's overhead."""
        return int((self._block / "mm_stat").read_text().split()[2])


@contextmanager
def zram_swap(size: str = "1G") -> Iterator[Zram]:
    """Context manager: makes a zram device, uses it as swap, and removes it at the end. Raises LabError if it cannot.

    Devices that earlier runs left are removed first.
    """
    for device in Path("/dev").glob("zram*"):
        if has_label(device):
            _remove(device)
    try:
        number = (_CONTROL / "hot_add").read_text().strip()
    except OSError as err:
        raise LabError(f"this kernel makes no zram devices: {err}") from err
    zram = Zram(number)
    try:
        (_BLOCKS / zram.device.name / "disksize").write_text(size)
        run("mkswap", "-q", "-L", LABEL, zram.device)
        run("swapon", "-p", _HIGHEST_PRIORITY, zram.device)
        yield zram
    finally:
        _remove(zram.device)


def has_label(device: Path) -> bool:
    """True if the device is a swap area that `zram_swap` made."""
    try:
        with device.open("rb") as opened:
            opened.seek(_LABEL_AT)
            return opened.read(len(LABEL) + 1) == LABEL.encode() + b"\0"
    except OSError:
        return False


def _remove(device: Path) -> None:
    if any(line.split()[0] == str(device) for line in _SWAPS.read_text().splitlines()):
        # Its own session: a second Ctrl-C does not end it.
        subprocess.run(["swapoff", device], check=True, stdin=subprocess.DEVNULL, start_new_session=True)
    (_BLOCKS / device.name / "reset").write_text("1")
    (_CONTROL / "hot_remove").write_text(device.name.removeprefix("zram"))
