"""Reads the progress of image pulls from containerd's content store, since CRI does not report it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress

from kubeletx.api import KubeletxError, PullProgress

from .client import CriClient
from .containerd import NAMESPACE_HEADER
from .events import Sleep
from .methods import method
from .stubs import containerd_content_pb2 as pb

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

    containerd does not say which download belongs to which pull, so the progress is that of all pulls together.
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
