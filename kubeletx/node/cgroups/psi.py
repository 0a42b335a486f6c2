"""Pressure stall information (PSI): how long tasks waited for a resource.

The files in ``/proc/pressure`` report it for the whole machine, cgroup v2's for each cgroup. In a hybrid layout
the unified tree reports it for the cgroups that runtimes create in that tree too. Source: kernel,
Documentation/accounting/psi.rst.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from .text import text_of

RESOURCES = ("cpu", "memory", "io")


class Stall(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a PSI file.

    `avg10`, `avg60`, `avg300`: percent of the last 10, 60 and 300 seconds in which tasks stalled. `total_us`: total
    stalled time in microseconds.
    """

    avg10: float = 0.0
    avg60: float = 0.0
    avg300: float = 0.0
    total_us: int = 0


class PressureStall(msgspec.Struct, frozen=True, kw_only=True):
    """Stall times of one resource.

    `some`: times in which at least one task waited for it. `full`: times in which all tasks waited, so none could run.
    """

    some: Stall = Stall()
    full: Stall = Stall()


class Pressures(msgspec.Struct, frozen=True, kw_only=True):
    """Stall times of CPU, memory and I/O; None for a resource for which the kernel does not report them."""

    cpu: PressureStall | None = None
    memory: PressureStall | None = None
    io: PressureStall | None = None


def read_pressures(directory: Path, suffix: str = "") -> Pressures:
    """Read the PSI files of CPU, memory and I/O in `directory`; a resource without a file is None in the result.

    `suffix`: end of the file names. It is empty in ``/proc/pressure`` and ``.pressure`` in a cgroup's directory.
    """
    stalls = {name: parse_pressure(text_of(directory / f"{name}{suffix}")) for name in RESOURCES}
    return Pressures(**stalls)


def parse_pressure(text: str) -> PressureStall | None:
    """Parse the content of one PSI file; None if it has neither a line ``some`` nor a line ``full``."""
    lines = {}
    for line in text.split("\n"):
        kind, _, rest = line.partition(" ")
        values = dict(word.partition("=")[::2] for word in rest.split())
        if kind in ("some", "full") and values.keys() >= {"avg10", "avg60", "avg300", "total"}:
            lines[kind] = Stall(
                avg10=float(values["avg10"]),
                avg60=float(values["avg60"]),
                avg300=float(values["avg300"]),
                total_us=int(values["total"]),
            )
    return PressureStall(**lines) if lines else None
