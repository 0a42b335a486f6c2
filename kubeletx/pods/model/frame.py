"""`Frame`, the values from which a pod's container statuses are built, and functions that read statuses."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

import msgspec

from kubeletx.api import RuntimeName, UnitId
from kubeletx.kube.types.core import ContainerStatus, PodCondition, PodStatus

from .facts import DesiredPod, Now, PodFacts
from .roles import ephemeral_units, init_units, regular_units

CONTAINER_CREATING = "ContainerCreating"
POD_INITIALIZING = "PodInitializing"
TERMINATION_MESSAGES_BYTES = 12 * 1024
"""Limit of all termination messages of a pod together.

Each container gets an equal part (docs/kubelet-parity.md, row ST9).
"""


class Frame(msgspec.Struct, frozen=True, kw_only=True):
    """Values from which the statuses of all containers of one pod are built.

    `will_run`: the pod should run, so ended containers may run again. `backend`: the part of container IDs before
    ``://``, such as ``containerd``; None while unknown. `default_reason`: Waiting reason if no other applies.
    `message_bytes`: size limit of each container's termination message.
    """

    desired: DesiredPod
    facts: PodFacts
    now: Now
    backend: str | None
    will_run: bool
    default_reason: str
    message_bytes: int


def frame_of(
    desired: DesiredPod, facts: PodFacts, now: Now, backends: Mapping[RuntimeName, str], *, will_run: bool
) -> Frame:
    """Build the `Frame` of one pod.

    `backends`: runtime → the part of its container IDs before ``://``; a runtime that has not reported it yet is
    missing. `will_run`: the pod should run.
    """
    pod = desired.pod
    number = len(init_units(pod)) + len(regular_units(pod)) + len(ephemeral_units(pod))
    return Frame(
        desired=desired,
        facts=facts,
        now=now,
        backend=backends.get(facts.runtime) if facts.runtime is not None else None,
        will_run=will_run,
        default_reason=POD_INITIALIZING if init_units(pod) else CONTAINER_CREATING,
        message_bytes=TERMINATION_MESSAGES_BYTES // max(number, 1),
    )


def find_condition(status: PodStatus | None, type_: str) -> PodCondition | None:
    """Return the condition of this type; None if the status, or the condition in it, is missing."""
    if status is not None:
        for condition in status.conditions:
            if condition.type == type_:
                return condition
    return None


def previous_of(previous: PodStatus | None, name: str) -> ContainerStatus | None:
    """Return the container's entry in a pod status, whether init, regular or ephemeral; None if it has none."""
    if previous is None:
        return None
    for statuses in (
        previous.container_statuses,
        previous.init_container_statuses,
        previous.ephemeral_container_statuses,
    ):
        for status in statuses:
            if status.name == name:
                return status
    return None


def is_of_unit(status: ContainerStatus | None, unit_id: UnitId) -> bool:
    """Return True if the container status is of the run with this ID on the runtime, not of an earlier run."""
    return status is not None and bare_id(status.container_id) == unit_id


def bare_id(container_id: str | None) -> str:
    """Return the part of a containerID after ``://``, which is the runtime's own ID; empty if there is none."""
    return (container_id or "").partition("://")[2]


def at_ns(nanoseconds: int) -> datetime | None:
    """Convert nanoseconds since the epoch to UTC, in whole seconds; None for 0, which means never."""
    return datetime.fromtimestamp(nanoseconds // 1_000_000_000, UTC) if nanoseconds > 0 else None
