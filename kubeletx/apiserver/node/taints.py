"""`TypeTaints`: sets and removes a taint on the Node for each workload type that has no ready runtime.

NodeRestriction lets a node set taints only at its registration. The kubeconfig of `--taint-kubeconfig` therefore
contains another identity, which may patch nodes (deploy/taints.yaml). The Node is read by the existing watch. Taints of
other owners are kept: the list is replaced as a whole, with the resource version at which it was read, so that no
change is lost. Repeated foreign changes are corrected with growing delays (`ForeignWrites`).

Source: core/v1 NodeSpec.taints (atomic list); NodeRestriction, plugin/pkg/admission/noderestriction.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import structlog

from kubeletx.api import Clock, Conflict
from kubeletx.api.names import WORKLOAD_TAINT_PREFIX
from kubeletx.kube.client import KubeClient, Patch
from kubeletx.kube.client.backoff import run_sync_loop, server_backoff
from kubeletx.kube.client.resources import NODES
from kubeletx.kube.types.meta import is_older
from kubeletx.kube.types.node import Node, Taint

from ..field_managers import tell_foreign_write
from ..foreign_writes import ForeignWrites

log = structlog.get_logger(__name__)


class TypeTaints:
    """Sets and removes a taint on the Node for each workload type (container, vm) that has no ready runtime.

    `run` is its only task.
    """

    def __init__(
        self, client: KubeClient, watch_node: Callable[[], AsyncIterator[Node]], *, clock: Clock
    ) -> None:
        """`watch_node`: yields the Node with the taints that it should have, and again when a condition changes."""
        self._client = client
        self._watch_node = watch_node
        self._clock = clock
        self._due: tuple[Taint, ...] | None = None
        self._reported: tuple[Taint, ...] | None = None
        """Taints of workload types that this agent last confirmed in the API server; None before the first."""
        self._foreign = ForeignWrites(clock)
        self._current: Node | None = None
        self._news = asyncio.Event()

    def node_changed(self, node: Node | None) -> None:
        """Listener of `ApiNode`: store the Node, unless a newer version is known from the answer to the last patch."""
        before = self._current
        if node is not None and before is not None and is_older(node.metadata, before.metadata):
            return
        self._current = node
        self._news.set()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._observe(), name="taints-due")
            await run_sync_loop(
                self._news,
                self._sync,
                self._client,
                self._clock,
                what="Failed to set the taints of workload types",
                backoff=server_backoff(first=0.2, cap=60.0),
            )

    async def _observe(self) -> None:
        async for node in self._watch_node():
            self._due = node.spec.taints
            self._news.set()

    async def _sync(self) -> None:
        node, due = self._current, self._due
        if node is None or due is None:
            return
        wanted = merged(node.spec.taints, due)
        if wanted is None:
            self._reported = due
            self._foreign.settle("taints", is_answer=False)
            return
        is_answer = self._reported == due
        if is_answer and not self._foreign.may_answer("taints", self._news.set):
            return
        patch = {
            "metadata": {"resourceVersion": node.metadata.resource_version},
            "spec": {"taints": wanted or None},
        }
        path = NODES.path(name=node.metadata.name)
        if is_answer:
            name, wait = node.metadata.name, self._foreign.next_wait("taints")
            await tell_foreign_write(self._client, path, f"node {name}", patch, next_wait=wait)
        try:
            self._current = await self._client.patch(path, patch, Node, kind=Patch.MERGE)
        except Conflict:  # the watch delivers the newer Node, which causes the next try
            self._foreign.settle("taints", is_answer=is_answer)
            return
        self._reported = due
        self._foreign.settle("taints", is_answer=is_answer)
        log.info(
            "Changed the taints of workload types", taints=", ".join(taint.key for taint in due) or "none"
        )


def merged(current: tuple[Taint, ...], due: tuple[Taint, ...]) -> tuple[Taint, ...] | None:
    """Return the Node's new list of taints: first the taints of other owners, then `due`. None if nothing changes.

    `current`: the Node's taints. `due`: the taints for workload types without a ready runtime.
    """
    ours = [taint for taint in current if taint.key.startswith(WORKLOAD_TAINT_PREFIX)]
    if {_said(taint) for taint in ours} == {_said(taint) for taint in due}:
        return None
    return (*(taint for taint in current if not taint.key.startswith(WORKLOAD_TAINT_PREFIX)), *due)


def _said(taint: Taint) -> tuple[str, str | None, str]:
    return taint.key, taint.value, taint.effect
