"""Requests for a pod outside its spec, granted resources, and operations that must not be repeated.

They are in a file in the pod's own directory, so that they end with the pod and survive the agent and its
database:

    power       state requested by a command (pause, stop, ...) until the opposite or a change of powerSpec
    off_unit    the unit that was switched off: its end is not a failure, and the same unit is started again
    resources   limits requested with ``vm resize``, until the spec's own change
    granted     resources that running containers were given since they were made
    granted_pod the same of the pod as a whole
    nics        interfaces that ``vm nic`` added or took away, until the spec's own list changes
    operations  reboots, snapshots, restores: begun, then done, failed, cancelled or unknown (crash)

Pure values and functions; the worker keeps the newest in its facts, `pods.overrides` reads and writes the
file.
"""

from __future__ import annotations

import enum
from datetime import datetime
from typing import Final

import msgspec
from msgspec.structs import replace

from kubeletx.kube.types.core import Nic

from ..model.facts import PodFacts
from ..model.grants import Grants

KEPT_OPERATIONS: Final = 20


class Outcome(enum.Enum):
    """State of an operation."""

    BEGUN = "begun"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"
    """An operator cancelled it before its start."""
    UNKNOWN = "unknown"
    """The agent or its answer was lost during the operation: it may have happened, and is not repeated."""


class Operation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One operation that must not be repeated. `id`: its number in the pod.

    `detail`: the snapshot's name, or the delay.
    """

    id: int
    verb: str
    detail: str = ""
    begun_at: datetime
    ended_at: datetime | None = None
    outcome: Outcome = Outcome.BEGUN
    message: str = ""


class PodOverrides(Grants, frozen=True, kw_only=True, omit_defaults=True):
    """Requests, grants and operations of one pod. Each request is stored with the part of the spec that it overrides."""

    power: str = ""
    """A word of `power.Power`; empty: the spec decides."""
    power_spec: str = ""
    off_unit: str = ""
    resources: dict[str, str] = {}
    resources_spec: dict[str, str] = {}
    size_asked: str = ""
    """The size last requested for unit `size_unit`; the granted one is in the unit's status."""
    size_unit: str = ""
    nics_added: tuple[Nic, ...] = ()
    nics_removed: tuple[str, ...] = ()
    nics_spec: str = ""
    operations: tuple[Operation, ...] = ()

    @property
    def is_empty(self) -> bool:
        """True if there is no request, grant or operation."""
        return self == _NOTHING


_NOTHING = PodOverrides()

_decoder = msgspec.json.Decoder(PodOverrides)


def overrides_of(facts: PodFacts) -> PodOverrides | None:
    """The pod's overrides; None if they are not read yet."""
    return facts.overrides if isinstance(facts.overrides, PodOverrides) else None


def encode(overrides: PodOverrides) -> bytes:
    """Encode for the pod's overrides file."""
    return msgspec.json.encode(overrides)


def decode(data: bytes) -> PodOverrides:
    """Decode the overrides file. Raises ValueError for what this version cannot read."""
    try:
        return _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ValueError(str(error)) from error


def after_restart(overrides: PodOverrides, now: datetime) -> tuple[PodOverrides, tuple[Operation, ...]]:
    """Set operations that an earlier process left unfinished to UNKNOWN.

    Return the new overrides and these operations.
    """
    lost = tuple(
        replace(
            one,
            outcome=Outcome.UNKNOWN,
            ended_at=now,
            message="the agent ended before it did; look at the machine, it is not done again",
        )
        for one in overrides.operations
        if one.outcome is Outcome.BEGUN
    )
    by_id = {one.id: one for one in lost}
    operations = tuple(by_id.get(one.id, one) for one in overrides.operations)
    return replace(overrides, operations=operations), lost


def begun(overrides: PodOverrides, verb: str, detail: str, now: datetime) -> tuple[PodOverrides, Operation]:
    """Add an operation that begins now; returns the overrides and the operation."""
    number = max((one.id for one in overrides.operations), default=0) + 1
    made = Operation(id=number, verb=verb, detail=detail, begun_at=now)
    return replace(overrides, operations=(*overrides.operations, made)[-KEPT_OPERATIONS:]), made


def ended(
    overrides: PodOverrides, number: int, outcome: Outcome, now: datetime, message: str = ""
) -> PodOverrides:
    """Set the outcome of operation `number`."""
    return replace(
        overrides,
        operations=tuple(
            replace(one, outcome=outcome, ended_at=now, message=message) if one.id == number else one
            for one in overrides.operations
        ),
    )


def with_power(overrides: PodOverrides, power: str, spec_power: str, power_spec: str) -> PodOverrides:
    """Return the overrides after a power command; one equal to the spec's power removes the override.

    `power`, `spec_power`: running, paused, suspended or off. `power_spec`: the field as the spec has it.
    """
    if power == spec_power:
        return replace(overrides, power="", power_spec="")
    return replace(overrides, power=power, power_spec=power_spec)
