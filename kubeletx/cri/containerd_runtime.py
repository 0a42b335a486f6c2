"""`ContainerdRuntime`: a CRI runtime that uses containerd's own services.

containerd's CRI has an event stream since 1.7 only, and containerd's own one has more topics (out of memory, pauses).
With another CRI server the CRI's event stream is used, and without one the host's relist.
"""

from __future__ import annotations

from functools import partial

import structlog

from kubeletx.api import KubeletxError, SupportsEvents

from .containerd import ContainerdEvents, server_uuid
from .containerd_pulls import follow_pulls
from .images import CRI_NAMESPACE, FollowPull
from .runtime import CriRuntime

log = structlog.get_logger(__name__)


class ContainerdRuntime(CriRuntime):
    """Runtime over any CRI v1 server; if that is containerd, it uses containerd's other services as well."""

    async def find_events(self) -> SupportsEvents | None:
        """Return containerd's own event stream, or CRI's if the runtime endpoint is not containerd.

        None if the server has neither.
        """
        if await server_uuid(self.client):
            return ContainerdEvents(
                self.client, self.known, namespace=CRI_NAMESPACE, sleep=self.host.clock.sleep
            )
        return await super().find_events()

    async def find_pull_progress(self) -> FollowPull | None:
        """Return a follower that reads containerd's content store; None if the image endpoint is not containerd."""
        if not await server_uuid(self.image_client):
            return None
        return partial(
            follow_pulls, client=self.image_client, namespace=CRI_NAMESPACE, sleep=self.host.clock.sleep
        )

    async def end_task(self, task_id: str) -> bool:
        """Kill and delete the task through containerd's tasks service. Returns True on success."""
        from .containerd_tasks import ContainerdTasks  # rarely needed, and its messages take memory

        if not await server_uuid(self.client):
            return False
        try:
            await ContainerdTasks(self.client).delete(task_id)
        except KubeletxError as error:
            log.warning("Failed to end a task", runtime=self.endpoint.name, task=task_id, err=str(error))
            return False
        log.info("Ended a task that a cut-off start had left", runtime=self.endpoint.name, task=task_id)
        return True
