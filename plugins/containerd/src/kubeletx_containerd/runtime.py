"""`ContainerdRuntime`: a CRI runtime that listens to containerd's own events.

containerd's CRI has an event stream since 1.7 only, and its own one tells more (out of memory, pauses).
Behind another CRI server this falls back to the CRI's events, and without those to the host's relist.
"""

from __future__ import annotations

from functools import partial

from kubeletx.api import SupportsEvents
from kubeletx.cri.containerd import ContainerdEvents, server_uuid
from kubeletx.cri.containerd_pulls import follow
from kubeletx.cri.images import CRI_NAMESPACE, FollowPull
from kubeletx.cri.runtime import CriRuntime


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
