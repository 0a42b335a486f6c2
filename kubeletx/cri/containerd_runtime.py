"""`ContainerdRuntime`: a CRI runtime that also uses containerd's own gRPC services.

Events come from containerd's own event stream: it has more topics (out of memory, pauses) than the stream of
containerd's CRI, which exists only since 1.7. With another CRI server, CRI's event stream is used. If the server has
neither, the agent relists periodically. The progress of image pulls comes from containerd's content store, since CRI
does not report it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial

import structlog

from kubeletx.api import KubeletxError, PullProgress, SupportsEvents, UnitId

from .client import CriClient
from .containerd import NAMESPACE_HEADER, ContainerdEvents, server_uuid
from .events import Sleep
from .images import CRI_NAMESPACE, FollowPull
from .methods import method
from .runtime import CriRuntime
from .stubs import containerd_content_pb2 as pb

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


LIST_STATUSES = method(
    pb.DESCRIPTOR.services_by_name["Content"], pb.ListStatusesRequest, pb.ListStatusesResponse
)
EVERY_SECONDS = 0.5
DEADLINE_SECONDS = 5.0


class Fetched:
    """Adds up the bytes that running pulls have fetched, from containerd's lists of active downloads.

    A download that containerd no longer lists is taken as complete.
    """

    def __init__(self) -> None:
        self._seen: dict[str, tuple[int, int]] = {}

    def see(self, statuses: Iterable[pb.Status]) -> PullProgress | None:
        """Add a new list of active downloads, and return the progress; None if no download was ever listed.

        `total_bytes` of the result is None while the size of a download is unknown.
        """
        now = {status.ref: (status.offset, status.total) for status in statuses}
        # containerd drops a download from the list when it is complete; its bytes still count, or the sum would fall.
        arrived = {ref: (total or done, total or done) for ref, (done, total) in self._seen.items()}
        self._seen = {**arrived, **now}
        if not self._seen:
            return None
        done = sum(offset for offset, _ in self._seen.values())
        totals = [total for _, total in self._seen.values()]
        return PullProgress(done_bytes=done, total_bytes=sum(totals) if all(totals) else None)


async def follow_pulls(
    report: Callable[[PullProgress], None], *, client: CriClient, namespace: str, sleep: Sleep
) -> None:
    """Call `report` with the progress of all running pulls every half second, until cancelled.

    containerd does not say which download belongs to which pull, so the progress is the sum of all pulls.
    Returns early if the server does not answer; the pull itself continues without progress reports.
    """
    fetched = Fetched()
    header = ((NAMESPACE_HEADER, namespace),)
    with suppress(KubeletxError):
        while True:
            await sleep(EVERY_SECONDS)
            answer = await client.call(
                LIST_STATUSES, pb.ListStatusesRequest(), timeout_seconds=DEADLINE_SECONDS, metadata=header
            )
            progress = fetched.see(answer.statuses)
            if progress is not None:
                report(progress)
