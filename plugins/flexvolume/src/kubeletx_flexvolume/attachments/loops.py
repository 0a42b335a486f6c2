"""Bodies of the background tasks of one node, its start, and the work of the leader. Each task runs until it is cancelled.

A failure of the store is logged once and tried again; other exceptions are bugs and end the task.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final

import structlog

from kubeletx.api import Clock, InvalidConfig, KubeletxError, sleep_or, within

from .editing import Draw
from .node import NodeContext
from .nodes import ANNOUNCE_SECONDS
from .reconcile import Reconciler
from .stale import Scanner

if TYPE_CHECKING:
    from kubeletx.kube.client import KubeClient

log = structlog.get_logger(__name__)

LIST_SECONDS: Final = 600.0
CHECK_SECONDS: Final = 60.0
RETURN_SECONDS: Final = 60.0
"""Longest pause before the look for old entries after a start; it is random, since many nodes may start together."""
START_SECONDS: Final = 60.0
RETRY_SECONDS: Final = 10.0
DAY_SECONDS: Final = 24 * 3600.0
FIRST_SECONDS: Final = 300.0
"""Pause before the first scan, in which agents that start with this one register their nodes."""

_LEASE_SECONDS: Final = 180
_RENEW_SECONDS: Final = 120.0
_LEASE_RETRY_SECONDS: Final = 45.0

Work = Callable[[], Coroutine[Any, Any, None]]


async def start_node(context: NodeContext, reconciler: Reconciler) -> None:
    """Write the node's record, and reconcile what is listed or attached, before the agent serves.

    If the store does not answer within `START_SECONDS`, the tasks try again later. Raises InvalidConfig.
    """
    try:
        async with within(START_SECONDS, "the garbage list was not worked off"):
            if (nodes := context.stores.own_nodes) is not None:
                await nodes.announce(context.node, context.boot_id)
            await reconciler.work_off()
            await reconciler.check()
    except InvalidConfig:
        raise
    except KubeletxError as error:
        log.warning("Failed to reach the records; no volume is attached before they answer", err=str(error))


def node_tasks(context: NodeContext, reconciler: Reconciler, draw: Draw) -> list[tuple[str, Work]]:
    """Return the tasks of one node, by name. "returned entries" ends by itself."""
    clock, nodes, lost = context.stores.clock, context.stores.own_nodes, context.guard.lost

    async def work_off() -> None:
        await repeat("garbage list", reconciler.work_off, clock, lambda: LIST_SECONDS * (0.9 + 0.2 * draw()))

    async def check() -> None:
        while True:
            await sleep_or(clock, CHECK_SECONDS * (0.9 + 0.2 * draw()), lost)
            lost.clear()
            try:
                await reconciler.check()
            except KubeletxError as error:
                log.warning("Failed to check the entries of volumes", err=str(error))

    async def clean_returned() -> None:
        await clock.sleep(RETURN_SECONDS * draw())
        while True:
            try:
                await reconciler.clean_returned()
            except KubeletxError as error:
                log.warning("Failed to look for old entries of this node", err=str(error))
                await clock.sleep(LIST_SECONDS)
            else:
                return

    tasks: list[tuple[str, Work]] = [
        ("garbage list", work_off),
        ("entry check", check),
        ("returned entries", clean_returned),
    ]
    if nodes is not None:

        async def announce() -> None:
            await clock.sleep(ANNOUNCE_SECONDS)
            await repeat(
                "node record",
                lambda: nodes.announce(context.node, context.boot_id),
                clock,
                lambda: ANNOUNCE_SECONDS,
            )

        tasks.append(("node record", announce))
    return tasks


async def scan_daily(scanner: Scanner, clock: Clock, draw: Draw) -> None:
    """Scan once after a pause, then once a day. The times vary by a tenth."""

    async def scan() -> None:
        for problem in (await scanner.scan()).problems:
            log.warning("Skipped a part of a scan", problem=problem)

    await clock.sleep(FIRST_SECONDS * (0.9 + 0.2 * draw()))
    await repeat("scan", scan, clock, lambda: DAY_SECONDS * (0.9 + 0.2 * draw()), retry_seconds=FIRST_SECONDS)


async def repeat(
    what: str,
    work: Work,
    clock: Clock,
    pause: Callable[[], float],
    *,
    retry_seconds: float = RETRY_SECONDS,
) -> None:
    """Do `work` repeatedly. `pause`: returns the seconds to the next time; after a failure they are `retry_seconds`."""
    is_failed = False
    while True:
        try:
            await work()
            is_failed, seconds = False, pause()
        except KubeletxError as error:
            if not is_failed:
                log.warning("Failed a task of the attachments", task=what, err=str(error))
            is_failed, seconds = True, retry_seconds
        await clock.sleep(seconds)


async def lead(client: KubeClient, namespace: str, clock: Clock, works: list[Work]) -> None:
    """Do `works` at the same time whenever this agent is the leader, until it is cancelled.

    The agents compete for a Lease in their namespace. Its times are long, since there may be a thousand agents: a leader
    that dies is replaced within three to four minutes. Without a cluster, each agent of the machine scans for itself.
    """
    from kubeletx.kube.client.lease_lock import LeaseLock, LockLost, LockTimes, new_identity

    from .definitions import LEASE

    async def work() -> None:
        async with asyncio.TaskGroup() as group:
            for number, one in enumerate(works):
                group.create_task(one(), name=f"work of the leader {number}")

    times = LockTimes(
        duration_seconds=_LEASE_SECONDS, renew_seconds=_RENEW_SECONDS, retry_seconds=_LEASE_RETRY_SECONDS
    )
    lock = LeaseLock(
        client, namespace=namespace, name=LEASE, identity=new_identity(), clock=clock, times=times
    )
    while True:
        try:
            await lock.run(work)
        except LockLost:
            log.info("Lost the Lease; another agent scans now")
