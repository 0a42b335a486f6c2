"""Finds the sandbox or container that an earlier create made, after the server refused its name as taken.

A name is reserved before its object is listed, so an object that is not found is still being created.
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
    """Find the sandbox with the UID and attempt of `spec`, after `refused` said that its name is taken.

    Raises Unavailable while the sandbox is still being created, and AlreadyExists if another agent made it.
    """
    answer = await client.call(
        methods.LIST_POD_SANDBOX, pb.ListPodSandboxRequest(), timeout_seconds=DEADLINE_SECONDS
    )
    for item in answer.items:
        if (item.metadata.uid, item.metadata.attempt) == (spec.uid, spec.attempt):
            _check_owner(spec.labels, item.labels, refused)
            return SandboxId(item.id)
    raise _still_creating(refused) from refused


async def first_unit(
    client: CriClient, sandbox_id: SandboxId, spec: UnitSpec, refused: KubeletxError
) -> UnitId:
    """Find the container with the name and attempt of `spec` in the sandbox. Raises the errors of `first_sandbox`."""
    wanted = pb.ContainerFilter(pod_sandbox_id=sandbox_id)
    answer = await client.call(
        methods.LIST_CONTAINERS, pb.ListContainersRequest(filter=wanted), timeout_seconds=DEADLINE_SECONDS
    )
    for item in answer.containers:
        if (item.metadata.name, item.metadata.attempt) == (spec.name, spec.attempt):
            _check_owner(spec.labels, item.labels, refused)
            return UnitId(item.id)
    raise _still_creating(refused) from refused


def _check_owner(wanted: Mapping[str, str], found: Mapping[str, str], refused: KubeletxError) -> None:
    """Raise AlreadyExists if another agent made the found object, so that it is no earlier result of this one."""
    if wanted.get(names.AGENT_ID, "") != found.get(names.AGENT_ID, ""):
        raise AlreadyExists(f"{refused}; it belongs to another agent") from refused


def _still_creating(refused: KubeletxError) -> Unavailable:
    return Unavailable(f"an earlier call is still creating it: {refused}")
