"""Reads and parses the kernel's cgroup files. A file that cannot be read gives None or an empty result."""

from __future__ import annotations

import os
from pathlib import Path

_PIECE_BYTES = 1 << 12
UNLIMITED_BYTES = 1 << 62
"""A limit of at least this number of bytes means "no limit": cgroup v1 then reports 2^63, rounded down to pages."""


def text_of(path: Path) -> str:
    """Return the text of a small file; empty if it cannot be read.

    It is read by system calls: a Python file object would take most of the time, and a scrape reads about thirty
    files for each pod.
    """
    pieces = []
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            while piece := os.read(descriptor, _PIECE_BYTES):
                pieces.append(piece)
        finally:
            os.close(descriptor)
    except OSError:  # ENODEV when the cgroup is removed during the read
        return ""
    return b"".join(pieces).decode(errors="replace")


def number_of(path: Path) -> int | None:
    """Return the number in the file; None for a word such as ``max``, and if the file cannot be read."""
    text = text_of(path).strip()
    return int(text) if text.isdigit() else None


def limit_of(path: Path) -> int | None:
    """Return the limit in the file; 0: there is no limit; None: the file cannot be read or has no number."""
    text = text_of(path).strip()
    if text == "max":
        return 0
    if not text.isdigit():
        return None
    return int(text) if int(text) < UNLIMITED_BYTES else 0


def table_of(path: Path) -> dict[str, int]:
    """Read a file with one ``name number`` pair on each line; returns the numbers by name."""
    pairs = (line.split() for line in text_of(path).split("\n"))
    return {words[0]: int(words[1]) for words in pairs if len(words) == 2 and words[1].isdigit()}


def read_meminfo(path: Path = Path("/proc/meminfo")) -> dict[str, int]:
    """Return the amounts in ``/proc/meminfo`` in bytes, by name, without its counts of pages; empty if it cannot be read."""
    pairs = (line.partition(":") for line in text_of(path).split("\n"))
    return {name: int(rest.split()[0]) * 1024 for name, _, rest in pairs if rest.endswith(" kB")}


def scaled(value: int | None, unit: float) -> float | None:
    """Return `value` multiplied by `unit`; None if `value` is None."""
    return None if value is None else value * unit
