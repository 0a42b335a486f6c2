"""Desired power states of pods of every workload, and the choice among several requests for one pod. Pure."""

from __future__ import annotations

import enum
from collections.abc import Iterable


class Power(enum.Enum):
    """Desired power states.

    Machines have running, paused, suspended and off; containers running, standby, hibernated.
    """

    RUNNING = "running"
    STANDBY = "standby"
    """Frozen: the processes keep their memory and get no CPU time."""
    HIBERNATED = "hibernated"
    """Frozen, with the memory on the disk."""
    PAUSED = "paused"
    SUSPENDED = "suspended"
    OFF = "off"


_STRENGTH = (Power.RUNNING, Power.PAUSED, Power.STANDBY, Power.SUSPENDED, Power.HIBERNATED, Power.OFF)
"""Strongest first: a pod that one of its owners needs running is running."""


def strongest(wanted: Iterable[Power]) -> Power:
    """The requested state that is nearest to running; running if there is none."""
    return min(wanted, key=_STRENGTH.index, default=Power.RUNNING)
