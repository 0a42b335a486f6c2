"""Desired power states of pods, and the choice if several are requested for one pod. Pure."""

from __future__ import annotations

import enum
from collections.abc import Iterable


class Power(enum.Enum):
    """Desired power state of a pod.

    Machines can be running, paused, suspended or off; containers running, standby or hibernated.
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
"""Power states, strongest first: if one requester needs the pod running, it runs."""


def strongest(wanted: Iterable[Power]) -> Power:
    """Return the requested state that is nearest to running; RUNNING if there are no requests."""
    return min(wanted, key=_STRENGTH.index, default=Power.RUNNING)
