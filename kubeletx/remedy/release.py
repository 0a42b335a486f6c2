"""Release of a fenced node's pods: their objects are deleted, so that controllers start them elsewhere.

Only called with a proof: after a storage fence the pods that use that storage are released, after a power fence all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from kubeletx.api import Clock, Conflict, NotFound, Unavailable
from kubeletx.kube.client import KubeClient
from kubeletx.kube.client.lists import list_pages
from kubeletx.kube.client.resources import PODS
from kubeletx.kube.client.statuses import evict_pod
from kubeletx.kube.types.core import Pod, PodList

from .model import FenceProof, RemedySettings

EXCLUDED: Final = "remedy.kubeletx.io/exclude"
"""Label or annotation of a pod that the controller leaves alone."""
MIRROR: Final = "kubernetes.io/config.mirror"


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
        self._clock = clock
        self._settings = settings
        self._may_act = may_act
        self._next = 0.0
        self._turn = asyncio.Lock()

    async def release(self, node: str, proofs: Sequence[FenceProof]) -> str:
        """Release the pods and return one line for people. Raises the errors of the API server; may be called again."""
        settings, count = self._settings(), 0
        async for page in list_pages(
            self._client, PODS.path(), PodList, field_selector=f"spec.nodeName={node}"
        ):
            for pod in page.items:
                if kept(pod, proofs, settings):
                    continue
                await self._wait(settings)
                if not self._may_act():
                    raise Unavailable("this controller is not the leader any more")
                count += await self._remove(pod, proofs, settings)
        return f"{count} pods released"

    async def _remove(self, pod: Pod, proofs: Sequence[FenceProof], settings: RemedySettings) -> int:
        meta = pod.metadata
        try:
            if settings.respect_budgets and FenceProof.POWER not in proofs:
                await evict_pod(self._client, meta.namespace, meta.name, uid=meta.uid, grace_seconds=0)
            else:
                await self._client.delete(PODS.path(meta.namespace, meta.name), grace_seconds=0, uid=meta.uid)
        except (NotFound, Conflict):  # gone, or another pod of that name
            return 0
        return 1

    async def _wait(self, settings: RemedySettings) -> None:
        if settings.pods_per_minute <= 0:
            return
        async with self._turn:
            wait = self._next - self._clock.monotonic()
            if wait > 0:
                await self._clock.sleep(wait)
            self._next = self._clock.monotonic() + 60.0 / settings.pods_per_minute


def kept(pod: Pod, proofs: Sequence[FenceProof], settings: RemedySettings) -> str:
    """Return why the pod stays; empty: it is released."""
    meta = pod.metadata
    if MIRROR in meta.annotations:
        return "it is the mirror of a static pod"
    if EXCLUDED in meta.labels or EXCLUDED in meta.annotations:
        return "it is excluded"
    owners = [owner.kind for owner in meta.owner_references if owner.controller]
    if "DaemonSet" in owners and settings.keeps_daemon_sets:
        return "its DaemonSet would start it on the same node"
    if FenceProof.POWER not in proofs and not _uses_storage(pod):
        return "it does not use the fenced storage"
    return ""


def _uses_storage(pod: Pod) -> bool:
    return any(volume.persistent_volume_claim is not None for volume in pod.spec.volumes)
