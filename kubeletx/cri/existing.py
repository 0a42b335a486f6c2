"""Finds the sandbox or container that an earlier call has created, after a create failed because its name is taken.

CRI servers reserve the name before they list the object. If the name is reserved and the list does not have the
object, an earlier call is still creating it. If another thing exists already, such as a network interface, the error of
the create is the answer.
"""

from __future__ import annotations

from collections.abc import Mapping

from kubeletx.api import (
    AlreadyExists,
    KubeletxError,
    SandboxId,
    SandboxSpec,
    Unavailable,
    UnitId,
    UnitSpec,
    names,
)

from . import methods
from .client import DEADLINE_SECONDS, CriClient
from .stubs import runtime_v1_pb2 as pb


async def first_sandbox(client: CriClient, spec: SandboxSpec, refused: KubeletxError) -> SandboxId:
    """Return the id of the existing sandbox with the UID and attempt of `spec`.

    `refused`: the error of RunPodSandbox, which says that the name is taken. Raises Unavailable while the sandbox
    is still being created, AlreadyExists if another agent has created it, and `refused` if it does not exist.
    """
    answer = await client.call(
        methods.LIST_POD_SANDBOX, pb.ListPodSandboxRequest(), timeout_seconds=DEADLINE_SECONDS
    )
    for item in answer.items:
        if (item.metadata.uid, item.metadata.attempt) == (spec.uid, spec.attempt):
            _check_owner(spec.labels, item.labels, refused)
            return SandboxId(item.id)
    raise _not_listed(refused)


async def first_unit(
    client: CriClient, sandbox_id: SandboxId, spec: UnitSpec, refused: KubeletxError
) -> UnitId:
    """Return the id of the existing container with the name and attempt of `spec` in the sandbox.

    `refused`: the error of CreateContainer, which says that the name is taken. Raises Unavailable while the
    container is still being created, AlreadyExists if another agent has created it, and `refused` if it does not exist.
    """
    wanted = pb.ContainerFilter(pod_sandbox_id=sandbox_id)
    answer = await client.call(
        methods.LIST_CONTAINERS, pb.ListContainersRequest(filter=wanted), timeout_seconds=DEADLINE_SECONDS
    )
    for item in answer.containers:
        if (item.metadata.name, item.metadata.attempt) == (spec.name, spec.attempt):
            _check_owner(spec.labels, item.labels, refused)
            return UnitId(item.id)
    raise _not_listed(refused)


def _check_owner(wanted: Mapping[str, str], labels: Mapping[str, str], refused: KubeletxError) -> None:
    """Raise AlreadyExists if the `labels` of the existing object have the id of another agent.

    `wanted`: labels of the object that this agent tried to create. `refused`: the error of that call.
    """
    if wanted.get(names.AGENT_ID, "") != labels.get(names.AGENT_ID, ""):
        raise AlreadyExists(f"{refused}; it belongs to another agent") from refused


def _not_listed(refused: KubeletxError) -> KubeletxError:
    if "is reserved" not in refused.message:
        return refused
    error = Unavailable(f"an earlier call is still creating it: {refused}")
    error.__cause__ = refused
    return error
