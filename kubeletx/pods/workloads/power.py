"""Desired power states of pods, and the choice if several are requested for one pod. Pure."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import Final

from kubeletx.api import UnitState


class Power(enum.Enum):
    """Desired power state of a pod.

    All pods can be running, standby or hibernated; machines also paused, suspended or off.
    """

    RUNNING = "running"
    STANDBY = "standby"
    """Frozen: the processes keep their memory and get no CPU time."""
    HIBERNATED = "hibernated"
    """Frozen, with the memory on the disk."""
    PAUSED = "paused"
    SUSPENDED = "suspended"
    OFF = "off"


STANDING_BY: Final = (Power.STANDBY, Power.HIBERNATED)
"""States of pods on standby."""
RESTING: Final = (UnitState.PAUSED, UnitState.SUSPENDED)
"""States of a frozen (PAUSED) and a hibernated (SUSPENDED) unit; a machine also has them after ``vm pause``."""

_STRENGTH = (Power.RUNNING, Power.PAUSED, Power.STANDBY, Power.SUSPENDED, Power.HIBERNATED, Power.OFF)
"""Power states, strongest first: if one requester needs the pod running, it runs."""


def strongest(wanted: Iterable[Power]) -> Power:
    """Return the requested state that is nearest to running; RUNNING if there are no requests."""
    return min(wanted, key=_STRENGTH.index, default=Power.RUNNING)
