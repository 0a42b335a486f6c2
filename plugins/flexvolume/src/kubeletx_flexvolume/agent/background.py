"""`Attachments`: everything around attachment records that an agent runs.

    made = Attachments(config, backends=backends, local=lambda: volumes, blocking=threads.run, clock=clock)
    await made.before_serving()          # reads the journal and the garbage list, and works the list off
    for name, run in made.tasks: ...     # one task each, until the agent ends
    made.book                            # for mount and unmount
    await made.close()

`before_serving` does not fail if the API server does not answer: the agent must unmount without it. The book then
refuses to take volumes until the garbage list was read. A failure of the store is logged once and tried again; other
exceptions are bugs and end the task.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec
import structlog

from kubeletx.api import Blocking, Clock, InvalidConfig, KubeletxError, sleep_or, within

from ..attachments.decision import BreakPolicy
from ..attachments.editing import Draw
from ..attachments.node import LocalVolumes, NodeContext
from ..attachments.nodes import ANNOUNCE_SECONDS, SILENT_SECONDS
from ..attachments.reconcile import Reconciler
from ..attachments.record_book import RecordBook
from ..attachments.stale import Scanner
from ..attachments.stores import Stores, open_stores
from ..backends.backend import Backend
from ..values import StorageVolume
from .config import AgentConfig

if TYPE_CHECKING:
    from kubeletx.kube.client import KubeClient

log = structlog.get_logger(__name__)

JOURNAL: Final = "cleanup.json"
MEMORY: Final = "records-store"
"""Name of the file in the state directory with the identity of the store that has the entries of this node."""
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


async def _no_work() -> None:
    return


class Cleanup(msgspec.Struct, frozen=True, kw_only=True):
    """Clean-up on one node; the defaults are for an agent without a cluster.

    `refuses`: returns why a volume must not be mounted; empty if it may. `load`: call it before anything is mounted.
    `tasks`: of every agent. `leading`: of the agent that scans.
    """

    refuses: Callable[[StorageVolume], str] = lambda _: ""
    load: Work = _no_work
    tasks: tuple[tuple[str, Work], ...] = ()
    leading: tuple[Work, ...] = ()


class Attachments:
    """Attachments of one node.

    `tasks`: name and function of each task. They run until they are cancelled; "returned entries" ends by itself.
    """

    def __init__(
        self,
        config: AgentConfig,
        *,
        backends: Mapping[str, Backend],
        local: Callable[[], LocalVolumes],
        blocking: Blocking,
        clock: Clock,
        draw: Draw = random.random,
        silent_seconds: float = SILENT_SECONDS,
    ) -> None:
        """Make it in the event loop that uses it. Raises InvalidConfig.

        `backends`: by name. `local`: returns the volumes of this node; first called by `before_serving`. `blocking`:
        runs calls of files. `silent_seconds`: see `RecordedNodes`.
        """
        self._stores = stores = open_stores(
            kubeconfig=config.storage_kubeconfig,
            records=config.records,
            node=config.node_name,
            clock=clock,
            draw=draw,
            silent_seconds=silent_seconds,
            sets_aside=True,
        )
        cleanup, scan = Cleanup(), partial(scan_daily, Scanner(stores), clock, draw)
        if stores.client is not None:
            cleanup = _cleanup(stores.client, config, stores, local, blocking)
            scan = partial(lead, stores.client, config.lease_namespace, clock, [scan, *cleanup.leading])
        self.context = NodeContext(
            node=config.node_name,
            boot_id=config.boot_id,
            stores=stores,
            local=local,
            backends=backends,
            policy=BreakPolicy(config.break_policy),
            refuses=cleanup.refuses,
        )
        self.book = RecordBook(self.context)
        self._reconciler = Reconciler(
            self.context, self.book, memory=config.state_dir / MEMORY, blocking=blocking
        )
        self._load = cleanup.load
        self._clock = clock
        self._draw = draw
        self.tasks: tuple[tuple[str, Work], ...] = (
            ("garbage list", self._work_off),
            ("entry check", self._check),
            ("returned entries", self._clean_returned),
            *((("node record", self._refresh),) if stores.own_nodes is not None else ()),
            *cleanup.tasks,
            ("scan", scan),
        )
        self.close = stores.close

    async def before_serving(self) -> None:
        """Write the node's record, and reconcile what is listed or attached, before the agent serves.

        If the store does not answer within `START_SECONDS`, the tasks try again later. Raises InvalidConfig.
        """
        await self._load()
        try:
            async with within(START_SECONDS, "the garbage list was not worked off"):
                await self._announce()
                await self._reconciler.work_off()
                await self._reconciler.check()
        except InvalidConfig:
            raise
        except KubeletxError as error:
            log.warning(
                "Failed to reach the records; no volume is attached before they answer", err=str(error)
            )

    async def _announce(self) -> None:
        if self._stores.own_nodes is not None:
            await self._stores.own_nodes.announce(self.context.node, self.context.boot_id)

    async def _refresh(self) -> None:
        await self._clock.sleep(ANNOUNCE_SECONDS)
        await repeat("node record", self._announce, self._clock, lambda: ANNOUNCE_SECONDS)

    async def _work_off(self) -> None:
        pause = partial(varied, LIST_SECONDS, self._draw)
        await repeat("garbage list", self._reconciler.work_off, self._clock, pause)

    async def _check(self) -> None:
        lost = self.context.guard.lost
        while True:
            await sleep_or(self._clock, varied(CHECK_SECONDS, self._draw), lost)
            lost.clear()
            try:
                await self._reconciler.check()
            except KubeletxError as error:
                log.warning("Failed to check the entries of volumes", err=str(error))

    async def _clean_returned(self) -> None:
        await self._clock.sleep(RETURN_SECONDS * self._draw())
        while True:
            try:
                await self._reconciler.clean_returned()
            except KubeletxError as error:
                log.warning("Failed to look for old entries of this node", err=str(error))
                await self._clock.sleep(LIST_SECONDS)
            else:
                return


def _cleanup(
    client: KubeClient,
    config: AgentConfig,
    stores: Stores,
    local: Callable[[], LocalVolumes],
    blocking: Blocking,
) -> Cleanup:
    """Make the clean-up of a node of a cluster. Raises InvalidConfig."""
    from ..attachments.definitions import cluster_resource
    from ..cleanup.cleaner import CleanupJournal, ClusterCleaner, VolumeObjects
    from ..cleanup.clusters import ClusterWatch
    from ..cleanup.finalizers import FinalizerKeeper

    cleaner = ClusterCleaner(
        config.node_name,
        stores,
        local=local,
        objects=VolumeObjects(client),
        journal=CleanupJournal(config.state_dir / JOURNAL, blocking),
    )
    resources = [cluster_resource(text) for text in config.cluster_resources]
    watch = ClusterWatch(client, resources, stores.clock, cleaner.on_cluster)
    keeper = FinalizerKeeper(client, watch, stores.attachments, stores.events, stores.clock)

    def refuses(volume: StorageVolume) -> str:
        if volume.cluster and not watch.is_synced:
            return f"whether storage cluster {volume.cluster} of volume {volume.name} is being deleted is not known yet"
        return cleaner.refuses(volume)

    return Cleanup(
        refuses=refuses,
        load=cleaner.load,
        tasks=(("storage clusters", watch.run), ("clean-up of storage clusters", cleaner.run)),
        leading=(keeper.run,),
    )


def varied(seconds: float, draw: Draw) -> float:
    """Return a time that differs by at most a tenth, since many nodes may start together."""
    return seconds * (0.9 + 0.2 * draw())


async def scan_daily(scanner: Scanner, clock: Clock, draw: Draw) -> None:
    """Scan once after a pause, then once a day. The times vary by a tenth."""

    async def scan() -> None:
        for problem in (await scanner.scan()).problems:
            log.warning("Skipped a part of a scan", problem=problem)

    await clock.sleep(varied(FIRST_SECONDS, draw))
    await repeat("scan", scan, clock, partial(varied, DAY_SECONDS, draw), retry_seconds=FIRST_SECONDS)


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

    from ..attachments.definitions import LEASE

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
