"""`ContainerdRuntime`: a CRI runtime that also uses containerd's own gRPC services.

Events come from containerd's own event stream: it has more topics (out of memory, pauses) than the stream of
containerd's CRI, which exists only since 1.7. With another CRI server, CRI's event stream is used. If the server has
neither, the agent relists periodically.
"""

from __future__ import annotations

from functools import partial

import structlog

from kubeletx.api import KubeletxError, SupportsEvents, UnitId

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
        """Return a function that reports progress from containerd's content store.

        None: the image endpoint is not containerd, so that pulls have no progress.
        """
        if not await server_uuid(self.image_client):
            return None
        return partial(
            follow_pulls, client=self.image_client, namespace=CRI_NAMESPACE, sleep=self.host.clock.sleep
        )

    async def end_task(self, task_id: str) -> bool:
        """Kill and delete a containerd task that an interrupted start left behind. Returns True on success.

        Returns False if the server is not containerd, or the task could not be deleted.
        """
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

    async def restore_record(self, unit_id: UnitId) -> bool:
        """Create containerd's record of a container again if another client has deleted it. Returns True then."""
        from .containerd_tasks import restore_record  # rarely needed, and its messages take memory

        if not await server_uuid(self.client) or not await restore_record(self.client, unit_id):
            return False
        log.warning(
            "Restored the record of a container that another client deleted from containerd",
            runtime=self.endpoint.name,
            container_id=unit_id,
        )
        return True
