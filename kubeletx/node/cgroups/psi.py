"""Pressure stall information (PSI): how long tasks waited for a resource.

Source: kernel, Documentation/accounting/psi.rst. ``/proc/pressure`` has it for the machine, cgroup v2 for
each cgroup. In a hybrid layout the unified tree has it for the cgroups that runtimes also create there.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from .text import text_of

RESOURCES = ("cpu", "memory", "io")


class Stall(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a PSI file: percent of time stalled in the last 10, 60 and 300 seconds, and the total
    stalled time in microseconds.
    """

    avg10: float = 0.0
    avg60: float = 0.0
    avg300: float = 0.0
    total_us: int = 0


class PressureStall(msgspec.Struct, frozen=True, kw_only=True):
    """Stall times of one resource. `some`: at least one task waited.

    `full`: all tasks waited, so that none could run.
    """

    some: Stall = Stall()
    full: Stall = Stall()


class Pressures(msgspec.Struct, frozen=True, kw_only=True):
    """Pressure stall of CPU, memory and I/O; None if the kernel does not report it."""

    cpu: PressureStall | None = None
    memory: PressureStall | None = None
    io: PressureStall | None = None


def read_pressures(directory: Path, suffix: str = "") -> Pressures:
    """Read the PSI files in `directory`.

    `suffix` of their names: empty in ``/proc/pressure``, ``.pressure`` in a cgroup.
    """
    found = {name: parse_pressure(text_of(directory / f"{name}{suffix}")) for name in RESOURCES}
    return Pressures(**found)


def parse_pressure(text: str) -> PressureStall | None:
    """Parse the content of one PSI file; None if it has no known line."""
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
