"""`lead`: work that one agent of a cluster does for all: the daily scan, and the finalizers of storage clusters.

The agents compete for a Lease in their namespace. Its times are long, since there may be a thousand agents: a leader
that dies is replaced within three to four minutes. Without a cluster, each agent of the machine scans for itself.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import structlog

from kubeletx.api import Clock

from .loops import Work

if TYPE_CHECKING:
    from kubeletx.kube.client import KubeClient

log = structlog.get_logger(__name__)

_LEASE_SECONDS: Final = 180
_RENEW_SECONDS: Final = 120.0
_RETRY_SECONDS: Final = 45.0


async def lead(client: KubeClient, namespace: str, clock: Clock, works: list[Work]) -> None:
    """Do `works` at the same time whenever this agent is the leader, until it is cancelled."""
    from kubeletx.kube.client.lease_lock import LeaseLock, LockLost, LockTimes, new_identity

    from .definitions import LEASE

    async def work() -> None:
        async with asyncio.TaskGroup() as group:
            for number, one in enumerate(works):
                group.create_task(_run(one), name=f"work of the leader {number}")

    times = LockTimes(
        duration_seconds=_LEASE_SECONDS, renew_seconds=_RENEW_SECONDS, retry_seconds=_RETRY_SECONDS
    )
    lock = LeaseLock(
        client, namespace=namespace, name=LEASE, identity=new_identity(), clock=clock, times=times
    )
    while True:
        try:
            await lock.run(work)
        except LockLost:
            log.info("Lost the Lease; another agent scans now")


async def _run(work: Work) -> None:
    await work()
