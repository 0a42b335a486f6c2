"""Writes NodeFence records: the flow and its step in one request, then the copy of the status.

Source: apiextensions.k8s.io/v1; the fields are of the proposal's NodeFence (ha.k8s.io/v1).
"""

from __future__ import annotations

import contextlib
from importlib.resources import files
from typing import Any, Final

import structlog
from msgspec.structs import replace

from kubeletx.api import AlreadyExists, Clock, Conflict, NotFound, PermissionDenied, TimedOut, Unavailable
from kubeletx.kube.client import KubeClient, Patch
from kubeletx.kube.client.definitions import install_definition
from kubeletx.kube.text.yaml import parse_documents
from kubeletx.kube.types.meta import ObjectMeta

from .decisions import Change
from .model import (
    FENCE_PREFIX,
    MOST_HISTORY,
    NODE_FENCES,
    FlowChange,
    NodeFence,
    NodeFenceList,
)

MOST_STARTS: Final = 50
INSTALL_SECONDS: Final = 2.0
"""Time between two attempts to install the definition."""

log = structlog.get_logger(__name__)


def fence_name(node: str) -> str:
    """Return the name of a node's NodeFence."""
    return f"{FENCE_PREFIX}{node}"


def crd() -> dict[str, Any]:
    """Return the definition of NodeFence."""
    (document,) = parse_documents(files(__package__).joinpath("crd.yaml").read_text())
    made: dict[str, Any] = document
    return made


class FenceRecords:
    """Writes records. Every write checks the version, so that two controllers never both go on from one record."""

    def __init__(self, client: KubeClient, clock: Clock) -> None:
        self._client = client
        self._clock = clock

    async def install(self) -> None:
        """Install the definition, once the API server answers.

        Raises PermissionDenied if the identity may not, and the definition is missing.
        """
        while True:
            try:
                await self._install()
            except (TimedOut, Unavailable) as error:
                log.warning("Cannot install the definition of NodeFence yet", err=str(error))
                await self._clock.sleep(INSTALL_SECONDS)
            else:
                return

    async def _install(self) -> None:
        try:
            await install_definition(self._client, crd(), clock=self._clock)
        except PermissionDenied:
            try:
                await self._client.get(NODE_FENCES.path(), NodeFenceList, params={"limit": "1"})
            except NotFound as error:
                raise PermissionDenied(
                    "this identity may not install the missing definition nodefences.ha.k8s.io: apply deploy/remedy.yaml, or "
                    "kubeletx/remedy/crd.yaml as an administrator"
                ) from error

    async def write(self, change: Change, *, is_new_flow: bool = False) -> NodeFence:
        """Write the changed record and return it as stored. Raises Conflict if it has been changed meanwhile.

        `is_new_flow`: the problem counters go up.
        """
        fence, now = change.fence, self._clock.now()
        if fence.flow.since is None:
            fence = replace(fence, flow=replace(fence.flow, since=now.replace(microsecond=0)))
        if change.message:
            line = FlowChange(time=now, step=fence.step, status=fence.flow.status, message=change.message)
            fence = replace(fence, history=(*fence.history, line)[-MOST_HISTORY:])
        if is_new_flow:
            problems = dict(fence.problems)
            for reason in fence.flow.reasons:
                problems[reason] = problems.get(reason, 0) + 1
            fence = replace(fence, problems=problems, starts=(*fence.starts, now)[-MOST_STARTS:])
        return await self.mirror(await self._put(fence))

    async def read(self, node: str) -> NodeFence:
        """Return a node's record as it is on the server. Raises NotFound."""
        return await self._client.get(NODE_FENCES.path(name=fence_name(node)), NodeFence)

    async def delete(self, fence: NodeFence) -> None:
        """Delete the record of a node that no longer exists."""
        with contextlib.suppress(NotFound, Conflict):
            await self._client.delete(
                NODE_FENCES.path(name=fence.metadata.name), resource_version=fence.metadata.resource_version
            )

    async def _put(self, fence: NodeFence) -> NodeFence:
        if fence.metadata.resource_version:
            return await self._client.replace(NODE_FENCES.path(name=fence.metadata.name), fence, NodeFence)
        meta = ObjectMeta(name=fence_name(fence.node))
        try:
            return await self._client.create(NODE_FENCES.path(), replace(fence, metadata=meta), NodeFence)
        except AlreadyExists as error:
            raise Conflict(str(error)) from error

    async def mirror(self, fence: NodeFence) -> NodeFence:
        """Copy the flow's status to the status subresource, and return the record as stored."""
        if fence.status == fence.flow.status:
            return fence
        path = NODE_FENCES.path(name=fence.metadata.name, subresource="status")
        body = {
            "metadata": {"resourceVersion": fence.metadata.resource_version},
            "status": fence.flow.status,
        }
        return await self._client.patch(path, body, NodeFence, kind=Patch.MERGE)
