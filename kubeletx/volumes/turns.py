"""`PodTurns`: runs blocking work on the files of pods, one call at a time for each pod.

A call that hangs, for instance on a dead file system, occupies only its thread: once it is past its deadline, further
calls for this pod fail at once, and other pods are not affected.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

import structlog

from kubeletx.api import Blocking, PodUid, TimedOut, Unavailable
from kubeletx.api.names import Event

from .mounting import mount_error

log = structlog.get_logger(__name__)

T = TypeVar("T")


class PodTurns:
    """Runs functions on threads, one at a time for each pod."""

    def __init__(self, blocking: Blocking) -> None:
        self._blocking = blocking
        self._running: dict[PodUid, asyncio.Future[Any]] = {}
        self._overdue: set[PodUid] = set()

    async def run(self, uid: PodUid, deadline_seconds: float, function: Callable[..., T], *args: Any) -> T:
        """Run `function` on a thread once earlier calls for this pod have ended, and return its result.

        Raises TimedOut after the deadline; the thread still runs then, and until it ends, later calls for this pod
        raise Unavailable at once. Calls wait for each other, since several containers of a pod may be created at the
        same time and a release may follow an abandoned preparation.
        """
        running: asyncio.Future[T] | None = None
        try:
            async with asyncio.timeout(deadline_seconds) as limit:
                await self._wait_turn(uid)
                running = self._begin(uid, function, *args)
                return await asyncio.shield(running)
        except OSError as err:
            if (
                not limit.expired()
            ):  # a file server's time-out (ETIMEDOUT) is one of its errors, not of this wait
                raise mount_error("cannot prepare or release volumes", err) from err
            if running is None:
                raise _still_busy() from err
            if not running.done():
                self._overdue.add(uid)
            raise TimedOut(
                f"the pod's volumes took longer than {deadline_seconds:.0f} s; a file system may hang",
                reason=Event.FAILED_MOUNT,
            ) from err

    async def _wait_turn(self, uid: PodUid) -> None:
        while (earlier := self._running.get(uid)) is not None and not earlier.done():
            if uid in self._overdue:
                raise _still_busy()
            await asyncio.wait([earlier])

    def _begin(self, uid: PodUid, function: Callable[..., T], *args: Any) -> asyncio.Future[T]:
        running = asyncio.ensure_future(self._blocking(function, *args))
        if isinstance(running, asyncio.Task):
            running.set_name(f"volumes-{uid}")
        self._running[uid] = running
        running.add_done_callback(lambda done: self._forget(uid, done))
        return running

    def _forget(self, uid: PodUid, done: asyncio.Future[Any]) -> None:
        if self._running.get(uid) is done:
            del self._running[uid]
            self._overdue.discard(uid)
        if not done.cancelled() and (err := done.exception()) is not None:
            log.debug("Volume work failed", pod_uid=uid, err=str(err))


def _still_busy() -> Unavailable:
    return Unavailable(
        "earlier work on the pod's volumes has not returned yet; look for a hanging file system with "
        "'findmnt' or in the kernel's log",
        reason=Event.FAILED_MOUNT,
    )
