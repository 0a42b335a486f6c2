"""`lead`: work that one agent of a cluster does for all: the daily scan, and the finalizers of storage clusters.

The agents compete for a Lease in their namespace. Its times are long, since there may be a thousand agents: a leader
that dies is replaced within three to four minutes. Without a cluster, each agent of the machine scans for itself.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

import structlog

from kubeletx.api import Clock, KubeletxError

from .editing import Draw
from .stale import Scanner

if TYPE_CHECKING:
    from kubeletx.kube.client import KubeClient

log = structlog.get_logger(__name__)

DAY_SECONDS: Final = 24 * 3600.0
FIRST_SECONDS: Final = 300.0
"""Pause before the first scan, in which agents that start with this one register their nodes."""
_LEASE_SECONDS: Final = 180
_RENEW_SECONDS: Final = 120.0
_RETRY_SECONDS: Final = 45.0

Work = Callable[[], Awaitable[None]]


async def scan_daily(scanner: Scanner, clock: Clock, *, draw: Draw = random.random) -> None:
    """Scan once after a pause, then once a day, until it is cancelled. The times vary by a tenth."""
    seconds = FIRST_SECONDS
    while True:
        await clock.sleep(seconds * (0.9 + 0.2 * draw()))
        try:
            report = await scanner.scan()
            for problem in report.problems:
                log.warning("Skipped a part of a scan", problem=problem)
            seconds = DAY_SECONDS
        except KubeletxError as error:
            log.warning("Failed to scan attachment records", err=str(error))
            seconds = FIRST_SECONDS


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
