"""`ContainerdRuntime`: a CRI runtime that listens to containerd's own events.

containerd's CRI has an event stream since 1.7 only, and its own one tells more (out of memory, pauses).
Behind another CRI server this falls back to the CRI's events, and without those to the host's relist.
"""

from __future__ import annotations

from functools import partial

import structlog

from kubeletx.api import KubeletxError, SupportsEvents
from kubeletx.cri.containerd import ContainerdEvents, server_uuid
from kubeletx.cri.containerd_pulls import follow
from kubeletx.cri.images import CRI_NAMESPACE, FollowPull
from kubeletx.cri.runtime import CriRuntime

log = structlog.get_logger(__name__)


class ContainerdRuntime(CriRuntime):
    """Any CRI v1 server; more comfortable with containerd."""

    async def find_events(self) -> SupportsEvents | None:
        """containerd's own stream if the runtime endpoint is one; else what the CRI offers."""
        if await server_uuid(self.client):
            return ContainerdEvents(
                self.client, self.known, namespace=CRI_NAMESPACE, sleep=self.host.clock.sleep
            )
        return await super().find_events()

    async def find_pull_progress(self) -> FollowPull | None:
        """From containerd's content store, if the image endpoint is one."""
        if not await server_uuid(self.image_client):
            return None
        return partial(follow, client=self.image_client, namespace=CRI_NAMESPACE, sleep=self.host.clock.sleep)

    async def end_task(self, task_id: str) -> bool:
        """By containerd's tasks service."""
        from kubeletx.cri.containerd_tasks import delete_task  # rarely needed, and its messages take memory

        if not await server_uuid(self.client):
            return False
        try:
            await delete_task(self.client, task_id, CRI_NAMESPACE)
        except KubeletxError as error:
            log.warning("Failed to end a task", runtime=self.endpoint.name, task=task_id, err=str(error))
            return False
        log.info("Ended a task that a cut-off start had left", runtime=self.endpoint.name, task=task_id)
        return True
