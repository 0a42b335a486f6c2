"""`Frame`: inputs of the container statuses of one pod, and shared look-ups."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

import msgspec

from kubeletx.api import RuntimeName, UnitId
from kubeletx.kube.types.core import ContainerStatus, PodStatus

from .facts import DesiredPod, Now, PodFacts
from .roles import ephemeral_units, init_units, regular_units

CONTAINER_CREATING = "ContainerCreating"
POD_INITIALIZING = "PodInitializing"
TERMINATION_MESSAGES_BYTES = 12 * 1024
"""All termination messages of a pod together.

Each container gets an equal part (ST9 in docs/kubelet-parity.md).
"""


class Frame(msgspec.Struct, frozen=True, kw_only=True):
    """Inputs of every container status of one pod.

    `will_run`: the pod's goal is to run, so ended containers may run again. `backend`: the part before
    ``://`` in container ids; None while unknown. `default_reason`: Waiting reason if no
    other applies. `message_bytes`: limit of a stored termination message.
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
    """Build the frame of one pod.

    `backends`: the name before ``://`` by runtime; those not known yet are missing.
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


def previous_of(previous: PodStatus | None, name: str) -> ContainerStatus | None:
    """Last reported status of the container, in any role; None if there is none."""
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
    """Return True if the status is of this unit, not of an earlier run."""
    return status is not None and bare_id(status.container_id) == unit_id


def bare_id(container_id: str | None) -> str:
    """The runtime's own id: the part of a containerID after ``://``."""
    return (container_id or "").partition("://")[2]


def at_ns(nanoseconds: int) -> datetime | None:
    """Nanoseconds since the epoch as UTC; None for 0 (it has not happened)."""
    return datetime.fromtimestamp(nanoseconds // 1_000_000_000, UTC) if nanoseconds > 0 else None
