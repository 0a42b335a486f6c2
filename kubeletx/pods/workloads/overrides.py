"""Overrides of a pod: operators' requests that differ from its spec, granted resources, and machine operations.

They are stored in a file in the pod's directory. So they are deleted with the pod, and survive the loss of the agent
process and its database. The file contains:

    power       power state requested by a command (pause, standby, ...); valid until the next such command or, for a
                machine, a change of the spec's powerSpec
    off_unit    ID of the unit that was switched off: its end is not a failure, and the same unit is started again
    resources   limits requested with ``vm resize``; valid until the spec's limits change
    granted     resources granted to running containers after their creation
    granted_pod pod-level resources granted after the pod's creation
    restarts    IDs of containers that ``kubeletx restart`` restarts
    nics        interfaces that ``vm nic`` added or removed; valid until the spec's interfaces change
    operations  reboots, snapshots, restores: begun, then done, failed, cancelled or unknown (after a crash)

This file has only pure values and functions. The pod's worker keeps the newest overrides in its facts, and
`pods.overrides` reads and writes the file.
"""

from __future__ import annotations

import enum
from collections.abc import Collection
from datetime import datetime
from typing import Final

import msgspec
from msgspec.structs import replace

from kubeletx.kube.types.core import Nic

from ..model.facts import Grants, PodFacts

KEPT_OPERATIONS: Final = 20


class Outcome(enum.Enum):
    """State of a machine operation, such as a reboot or a snapshot."""

    BEGUN = "begun"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"
    """An operator cancelled the operation before it started."""
    UNKNOWN = "unknown"
    """The agent crashed, the runtime's answer was lost, or the outcome could not be stored.

    The operation may have happened; it is not repeated.
    """


class Operation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Record of one machine operation that must not be repeated after a crash. `id`: its number within the pod.

    `verb`: the operation, such as a reboot. `detail`: the name of the snapshot, or the delay; may be empty.
    """

    id: int
    verb: str
    detail: str = ""
    begun_at: datetime
    ended_at: datetime | None = None
    outcome: Outcome = Outcome.BEGUN
    message: str = ""


class PodOverrides(Grants, frozen=True, kw_only=True, omit_defaults=True):
    """Overrides of one pod: requests of operators, granted resources and machine operations.

    Each request is stored with the value of the spec that it overrides (`..._spec`). The request is ignored once the
    spec has another value.
    """

    power: str = ""
    """Requested power state, a value of `power.Power`; empty: the spec's power state applies."""
    power_spec: str = ""
    off_unit: str = ""
    resources: dict[str, str] = {}
    resources_spec: dict[str, str] = {}
    size_asked: str = ""
    """Machine size last requested from the runtime for unit `size_unit`; the unit's status has the granted size."""
    size_unit: str = ""
    nics_added: tuple[Nic, ...] = ()
    nics_removed: tuple[str, ...] = ()
    nics_spec: str = ""
    operations: tuple[Operation, ...] = ()

    @property
    def is_empty(self) -> bool:
        return self == _NOTHING


_NOTHING = PodOverrides()

_decoder = msgspec.json.Decoder(PodOverrides)


def overrides_of(facts: PodFacts) -> PodOverrides | None:
    """Return the pod's overrides from its facts; None if its overrides file was not read yet."""
    return facts.overrides if isinstance(facts.overrides, PodOverrides) else None


def encode(overrides: PodOverrides) -> bytes:
    """Encode the overrides as JSON for the pod's overrides file."""
    return msgspec.json.encode(overrides)


def decode(data: bytes) -> PodOverrides:
    """Decode the content of an overrides file. Raises ValueError if this version cannot read it."""
    try:
        return _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ValueError(str(error)) from error


def without_begun(
    overrides: PodOverrides, now: datetime, running: Collection[str] = ()
) -> tuple[PodOverrides, tuple[Operation, ...]]:
    """Set operations that do not run any more, but are stored as begun, to UNKNOWN.

    Return the new overrides and the operations that were changed. `running`: verbs of the operations that still run.
    """
    lost = tuple(
        replace(
            operation,
            outcome=Outcome.UNKNOWN,
            ended_at=now,
            message="the agent ended, or could not store the outcome; look at the machine, it is not done again",
        )
        for operation in overrides.operations
        if operation.outcome is Outcome.BEGUN and operation.verb not in running
    )
    by_id = {operation.id: operation for operation in lost}
    operations = tuple(by_id.get(operation.id, operation) for operation in overrides.operations)
    return replace(overrides, operations=operations), lost


def begun(overrides: PodOverrides, verb: str, detail: str, now: datetime) -> tuple[PodOverrides, Operation]:
    """Add an operation that begins at `now`. Return the new overrides and the operation."""
    number = max((operation.id for operation in overrides.operations), default=0) + 1
    made = Operation(id=number, verb=verb, detail=detail, begun_at=now)
    return replace(overrides, operations=(*overrides.operations, made)[-KEPT_OPERATIONS:]), made


def ended(
    overrides: PodOverrides, number: int, outcome: Outcome, now: datetime, message: str = ""
) -> PodOverrides:
    """Return the overrides with operation `number` ended at `now`, with this outcome and message."""
    return replace(
        overrides,
        operations=tuple(
            replace(operation, outcome=outcome, ended_at=now, message=message)
            if operation.id == number
            else operation
            for operation in overrides.operations
        ),
    )


def with_power(overrides: PodOverrides, power: str, spec_power: str, power_spec: str) -> PodOverrides:
    """Return the overrides after an operator's command of ``kubeletx vm`` or ``kubeletx pod``.

    `power`: requested state. `spec_power`: state that the pod's spec and annotations request. Each is a value of
    `power.Power`; if both are equal, the override is removed. `power_spec`: the spec's field, such as ``Running``,
    stored with the override.
    """
    if power == spec_power:
        return replace(overrides, power="", power_spec="")
    return replace(overrides, power=power, power_spec=power_spec)
