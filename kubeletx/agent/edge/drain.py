"""`NodeDrainer`: cordons and drains the Node when the guardian asks for it, and uncordons it when the request is over.

    NOTREQUESTED ─► STARTING ─► CORDONED ─► COMPLETE
                       │           └─► DRAINRETRYING, 4 tries of 300 s ─► FAILEDDRAIN
                       └─► FAILEDCORDON after 10 tries, 5 s apart

COMPLETE too if no other node can take the pods, which includes that all nodes drain at once, or if the API server does not
answer for 300 s. An annotation marks a Node that the drain cordoned: after the reboot it is uncordoned, and a Node that a
user had cordoned stays so. States are those of EVE (pkg/pillar/types, NodeDrainStatus).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

import msgspec
import structlog

from kubeletx.api import Clock, KubeletxError, NotFound, PermissionDenied, TimedOut, Unavailable, first_of
from kubeletx.api.names import DRAINED
from kubeletx.health.drain import DrainRequester, DrainState
from kubeletx.health.topics import NodeDrainStatus
from kubeletx.kube.client import KubeClient, Patch
from kubeletx.kube.client.resources import NODES
from kubeletx.kube.client.statuses import evict_pod
from kubeletx.kube.types.core import Pod
from kubeletx.kube.types.node import Node, NodeList

log = structlog.get_logger(__name__)


class DrainLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of a drain; seconds."""

    cordon_tries: int = 10
    cordon_seconds: float = 5.0
    drain_tries: int = 4
    drain_seconds: float = 300.0
    evict_seconds: float = 5.0
    """Time between two evictions of a pod that a disruption budget protects."""
    unreachable_seconds: float = 300.0


LIMITS: Final = DrainLimits()


class _Skipped(Exception):
    """The node is not drained, and the operation may begin."""


class NodeDrainer:
    """Drains one Node; `run` is its task. `status` is the answer to the guardian."""

    def __init__(
        self,
        client: KubeClient,
        node_name: str,
        *,
        clock: Clock,
        pods: Callable[[], Iterable[Pod]],
        lister: KubeClient | None = None,
        limits: DrainLimits = LIMITS,
    ) -> None:
        """`pods`: returns the node's pods in the API server that have not ended. `lister`: may list all nodes, which
        the node's own identity may not; None: `client` tries it.
        """
        self._client = client
        self._lister = lister or client
        self._path = NODES.path(name=node_name)
        self._name = node_name
        self._clock = clock
        self._pods = pods
        self._limits = limits
        self._requester = DrainRequester.NONE
        self._is_asked = False
        self._changed = asyncio.Event()
        self._lost_at: float | None = None
        self.status = NodeDrainStatus(status=DrainState.NOTREQUESTED, requested_by=DrainRequester.NONE)

    def request(self, requester: int) -> None:
        """Take the guardian's request, see HealthStatus.DrainRequest. The same request again changes nothing."""
        known = requester in set(DrainRequester)
        wanted = DrainRequester(requester) if known else DrainRequester.NONE
        if wanted is not self._requester or not self._is_asked:
            self._requester, self._is_asked = wanted, True
            if wanted is not DrainRequester.NONE:
                self._say(DrainState.REQUESTED)
            self._changed.set()

    async def run(self) -> None:
        """Carry out the requests until cancelled; a new request ends the work for the one before."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            served, _ = await first_of("node-drain", self._serve(), self._changed.wait())
            if served is not None and served.exception() is not None:
                self._changed.set()  # the next run serves this request again
                served.result()

    async def _serve(self) -> None:
        self._lost_at = None
        if self._requester is DrainRequester.NONE:
            await self._uncordon()
            self._say(DrainState.NOTREQUESTED)
            return
        try:
            if not await self._cordon():
                self._say(DrainState.FAILEDCORDON)
                return
            self._say(DrainState.CORDONED)
            has_drained = await self._drain()
        except _Skipped as reason:
            log.warning("Skipped the drain of the node", node=self._name, err=str(reason))
            has_drained = True
        self._say(DrainState.COMPLETE if has_drained else DrainState.FAILEDDRAIN)

    # --- steps ---

    async def _cordon(self) -> bool:
        self._say(DrainState.STARTING)
        failures = 0
        while failures < self._limits.cordon_tries:
            try:
                node = await self._client.get(self._path, Node)
                if not node.spec.unschedulable:
                    marked = {"annotations": {DRAINED: "true"}}
                    await self._patch({"metadata": marked, "spec": {"unschedulable": True}})
            except KubeletxError as error:
                log.warning("Failed to cordon the node", node=self._name, err=str(error))
                if not self._note_loss(error):
                    failures += 1
            else:
                self._lost_at = None
                return True
            await self._clock.sleep(self._limits.cordon_seconds)
        return False

    async def _drain(self) -> bool:
        for number in range(self._limits.drain_tries):
            if number:
                self._say(DrainState.DRAINRETRYING)
            end = self._clock.monotonic() + self._limits.drain_seconds
            while self._clock.monotonic() < end:
                await self._find_other_node()
                left = [pod for pod in self._pods() if must_leave(pod)]
                if not left:
                    return True
                for pod in left:
                    await self._evict(pod)
                await self._clock.sleep(self._limits.evict_seconds)
            log.warning("Pods have not left the node in time", node=self._name, tries=number + 1)
        return False

    async def _find_other_node(self) -> None:
        """Raise _Skipped if no other node can take pods, or if the API server has been away for too long."""
        try:
            nodes = await self._lister.get(NODES.path(), NodeList)
        except PermissionDenied:  # the node's own identity sees its own Node only
            return
        except KubeletxError as error:
            self._note_loss(error)
            return
        self._lost_at = None
        if not any(takes_pods(node) for node in nodes.items if node.metadata.name != self._name):
            raise _Skipped("no other node can take its pods")

    async def _evict(self, pod: Pod) -> None:
        if pod.metadata.deletion_timestamp is not None:
            return
        try:
            await evict_pod(self._client, pod.namespace, pod.name, uid=pod.metadata.uid)
        except NotFound:
            return
        except KubeletxError as error:
            self._note_loss(error)
            log.info("Pod is not evicted yet", pod=f"{pod.namespace}/{pod.name}", err=str(error))

    async def _uncordon(self) -> None:
        """Undo the cordon of an earlier drain; a Node that others cordoned stays as it is."""
        while True:
            try:
                node = await self._client.get(self._path, Node)
                if DRAINED in node.metadata.annotations:
                    unmarked = {"annotations": {DRAINED: None}}
                    await self._patch({"metadata": unmarked, "spec": {"unschedulable": None}})
                    log.info("Uncordoned the node after its drain", node=self._name)
            except NotFound:
                return
            except KubeletxError as error:
                log.warning("Failed to uncordon the node", node=self._name, err=str(error))
            else:
                return
            await self._clock.sleep(self._limits.cordon_seconds)

    async def _patch(self, patch: object) -> None:
        await self._client.patch(self._path, patch, Node, kind=Patch.MERGE)

    def _note_loss(self, error: KubeletxError) -> bool:
        """Return True if the API server does not answer; raise _Skipped if that lasts too long."""
        if not (self._client.problem and isinstance(error, Unavailable | TimedOut)):
            return False
        now = self._clock.monotonic()
        self._lost_at = now if self._lost_at is None else self._lost_at
        if now - self._lost_at >= self._limits.unreachable_seconds:
            raise _Skipped(f"the API server does not answer: {self._client.problem}")
        return True

    def _say(self, state: DrainState) -> None:
        self.status = NodeDrainStatus(status=state, requested_by=self._requester)
        log.info("Changed the drain of the node", node=self._name, state=state.name)


def must_leave(pod: Pod) -> bool:
    """Return True for a pod that a drain evicts: all but pods of a DaemonSet, which ignores cordons."""
    return not any(owner.controller and owner.kind == "DaemonSet" for owner in pod.metadata.owner_references)


def takes_pods(node: Node) -> bool:
    """Return True if the scheduler may place pods on the node: it is Ready and not cordoned."""
    is_ready = any(c.type == "Ready" and c.status == "True" for c in node.status.conditions)
    return is_ready and not node.spec.unschedulable
