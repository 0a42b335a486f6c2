"""Swap in compressed memory that a benchmark makes and removes: a zram device."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from kubeletx_testing.lab.process import LabError

_CONTROL = Path("/sys/class/zram-control")
_HIGHEST_PRIORITY: Final = "32767"
"""Priority of this device over other swap of the machine."""


class Zram:
    """A zram device that is in use as swap."""

    def __init__(self, number: str) -> None:
        self._block = Path(f"/sys/block/zram{number}")
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
    """Context manager: makes a zram device, uses it as swap, and removes it at the end. Raises LabError if it cannot."""
    try:
        number = (_CONTROL / "hot_add").read_text().strip()
    except OSError as err:
        raise LabError(f"this kernel makes no zram devices: {err}") from err
    zram = Zram(number)
    try:
        Path(f"/sys/block/zram{number}/disksize").write_text(size)
        subprocess.run(["mkswap", "-q", zram.device], check=True)
        subprocess.run(["swapon", "-p", _HIGHEST_PRIORITY, zram.device], check=True)
        try:
            yield zram
        finally:
            subprocess.run(["swapoff", zram.device], check=True)
    finally:
        Path(f"/sys/block/zram{number}/reset").write_text("1")
        (_CONTROL / "hot_remove").write_text(number)
