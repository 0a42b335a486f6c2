"""Power that pods of every workload may be wanted in, and which of several requests for a pod wins. Pure."""

from __future__ import annotations

import enum
from collections.abc import Iterable


class Power(enum.Enum):
    """Desired power states. A machine knows running, paused, suspended and off; containers running and the other two."""

    RUNNING = "running"
    STANDBY = "standby"
    """Frozen: the processes keep their memory and get no CPU time."""
    HIBERNATED = "hibernated"
    """Frozen, with the memory on the disk."""
    PAUSED = "paused"
    SUSPENDED = "suspended"
    OFF = "off"


_STRENGTH = (Power.RUNNING, Power.PAUSED, Power.STANDBY, Power.SUSPENDED, Power.HIBERNATED, Power.OFF)
"""The first wins: a pod that one of its owners needs awake is awake."""


def strongest(wanted: Iterable[Power]) -> Power:
    """The power that is nearest to running; running if none is wanted."""
    return min(wanted, key=_STRENGTH.index, default=Power.RUNNING)
