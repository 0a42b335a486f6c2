"""Release of a fenced node's pods: their objects are deleted, so that controllers start them elsewhere.

Only called with a proof: after a storage fence the pods that write to that storage only are released, after a power fence all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import msgspec

from kubeletx.api import Clock, Conflict, NotFound, Unavailable
from kubeletx.kube.client import KubeClient
from kubeletx.kube.client.errors import BudgetExceeded
from kubeletx.kube.client.lists import list_pages
from kubeletx.kube.client.resources import NODES, PODS
from kubeletx.kube.client.statuses import evict_pod
from kubeletx.kube.types.core import Pod, PodList

from .model import FenceProof, NodeFence, NodeView, RemedySettings
from .safety.storage import FencedStorage

EXCLUDED: Final = "remedy.kubeletx.io/exclude"
"""Label or annotation of a pod that the controller leaves alone."""
MIRROR: Final = "kubernetes.io/config.mirror"


class ReleaseResult(msgspec.Struct):
    """Pods released, and pods that wait until their disruption budgets allow it. `is_back`: the node has booted meanwhile."""

    count: int = 0
    left: int = 0
    is_back: bool = False

    def __str__(self) -> str:
        text = f"{self.count} pods released"
        if self.left:
            text += f", {self.left} wait for their disruption budgets"
        return f"{text}; the node has booted, so its other pods stay" if self.is_back else text


class PodRelease:
    """Deletes the pods of fenced nodes, at most `RemedySettings.pods_per_minute`."""

    def __init__(
        self,
        client: KubeClient,
        clock: Clock,
        settings: Callable[[], RemedySettings],
        may_act: Callable[[], bool],
    ) -> None:
        """`may_act`: asked before each pod; False: this controller is not the leader any more."""
        self._client = client
        self.clock = clock
        self.settings = settings
        self._may_act = may_act
        self._next = 0.0
        self._turn = asyncio.Lock()

    async def release(self, fence: NodeFence) -> ReleaseResult:
        """Release the pods that the record's proofs reach. Raises the errors of the API server; may be called again."""
        settings, result = self.settings(), ReleaseResult()
        is_cut_off = FenceProof.STORAGE.value in fence.flow.proofs
        storage = FencedStorage(self._client, fence.flow.fenced if is_cut_off else ())
        is_off = FenceProof.POWER.value in fence.flow.proofs
        result.is_back = is_off and await self._has_booted(fence)
        selector = f"spec.nodeName={fence.node}"
        pages = list_pages(self._client, PODS.path(), PodList, field_selector=selector)
        for page in [page async for page in pages]:
            for pod in page.items:
                if kept(pod, settings):
                    continue
                if not (is_off and not result.is_back) and not await storage.covers(pod):
                    continue
                if await self._wait(settings) and is_off and await self._has_booted(fence):
                    result.is_back = True
                    return result  # what is left is looked at again
                if not self._may_act():
                    raise Unavailable("this controller is not the leader any more")
                await self._remove(pod, result, is_forced=is_off and settings.force_after_power)
        return result

    async def _remove(self, pod: Pod, result: ReleaseResult, *, is_forced: bool) -> None:
        meta = pod.metadata
        is_ending = meta.deletion_timestamp is not None
        try:
            if self.settings().respect_budgets and not is_forced and not is_ending:
                await evict_pod(self._client, meta.namespace, meta.name, uid=meta.uid, grace_seconds=0)
            else:
                await self._client.delete(PODS.path(meta.namespace, meta.name), grace_seconds=0, uid=meta.uid)
            result.count += 1
        except (NotFound, Conflict):  # gone, or another pod of that name
            pass
        except BudgetExceeded:
            result.left += 1

    async def _has_booted(self, fence: NodeFence) -> bool:
        """Return True if the node's kernel is another one than when it was switched off: its pods may run again."""
        if not fence.flow.fenced_boot:
            return False
        try:
            node = await self._client.get(NODES.path(name=fence.node), NodeView)
        except NotFound:
            return False
        return node.status.node_info.boot_id != fence.flow.fenced_boot

    async def _wait(self, settings: RemedySettings) -> bool:
        """Wait until one more pod may be released. Return True if time has passed."""
        if settings.pods_per_minute <= 0:
            return False
        async with self._turn:
            wait = self._next - self.clock.monotonic()
            if wait > 0:
                await self.clock.sleep(wait)
            self._next = self.clock.monotonic() + 60.0 / settings.pods_per_minute
        return wait > 0


def kept(pod: Pod, settings: RemedySettings) -> str:
    """Return why the pod stays whatever is proven; empty: it may be released."""
    meta = pod.metadata
    if MIRROR in meta.annotations:
        return "it is the mirror of a static pod"
    if EXCLUDED in meta.labels or EXCLUDED in meta.annotations:
        return "it is excluded"
    if pod.status.phase in ("Succeeded", "Failed"):
        return "it has ended"
    owners = [owner.kind for owner in meta.owner_references if owner.controller]
    if "DaemonSet" in owners and settings.keeps_daemon_sets:
        return "its DaemonSet would start it on the same node"
    return ""
