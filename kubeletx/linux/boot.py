"""Identity of the running kernel: it changes with each boot of the machine. Source: random(4)."""

from __future__ import annotations

from pathlib import Path
from typing import Final

BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


def boot_id(path: Path = BOOT_ID) -> str:
    """Return the kernel's boot ID. Raises OSError."""
    return path.read_text().strip()
