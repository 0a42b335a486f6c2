"""`make_attachments`: everything around attachment records that an agent runs.

    made = make_attachments(config, backends=backends, local=lambda: volumes, blocking=threads.run, clock=clock)
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
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from pathlib import Path
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


class Attachments(msgspec.Struct, frozen=True, kw_only=True):
    """Attachments of one node.

    `tasks`: name and function of each task. They run until they are cancelled; "returned entries" ends by itself.
    """

    book: RecordBook
    context: NodeContext
    before_serving: Work
    tasks: tuple[tuple[str, Work], ...]
    close: Work


def make_attachments(
    config: AgentConfig,
    *,
    backends: Mapping[str, Backend],
    local: Callable[[], LocalVolumes],
    blocking: Blocking,
    clock: Clock,
    draw: Draw = random.random,
    silent_seconds: float = SILENT_SECONDS,
) -> Attachments:
    """Make the attachments of a node, in the event loop that uses them. Raises InvalidConfig.

    `backends`: by name. `local`: returns the volumes of this node; first called by `before_serving`. `blocking`: runs
    calls of files. `silent_seconds`: see `RecordedNodes`.
    """
    stores = open_stores(
        kubeconfig=config.storage_kubeconfig,
        records=config.records,
        node=config.node_name,
        clock=clock,
        draw=draw,
        silent_seconds=silent_seconds,
        sets_aside=True,
    )
    cleanup = Cleanup()
    if stores.client is not None:
        cleanup = _cleanup(
            stores.client,
            config.node_name,
            stores,
            local=local,
            resources=config.cluster_resources,
            state=config.state_dir,
            blocking=blocking,
        )
    context = NodeContext(
        node=config.node_name,
        boot_id=config.boot_id,
        stores=stores,
        local=local,
        backends=backends,
        policy=BreakPolicy(config.break_policy),
        refuses=cleanup.refuses,
    )
    book = RecordBook(context)
    reconciler = Reconciler(context, book, memory=config.state_dir / MEMORY, blocking=blocking)
    scan: Work = partial(scan_daily, Scanner(stores), clock, draw)
    if stores.client is not None:
        scan = partial(lead, stores.client, config.lease_namespace, clock, [scan, *cleanup.leading])

    async def before_serving() -> None:
        await cleanup.load()
        await start_node(context, reconciler)

    return Attachments(
        book=book,
        context=context,
        before_serving=before_serving,
        tasks=(*node_tasks(context, reconciler, draw), *cleanup.tasks, ("scan", scan)),
        close=stores.close,
    )


def _cleanup(
    client: KubeClient,
    node: str,
    stores: Stores,
    *,
    local: Callable[[], LocalVolumes],
    resources: Sequence[str],
    state: Path,
    blocking: Blocking,
) -> Cleanup:
    """Make the clean-up of a node of a cluster. `resources`: GROUP/VERSION/PLURAL of storage clusters. Raises InvalidConfig."""
    from ..attachments.definitions import cluster_resource
    from ..cleanup.cleaner import CleanupJournal, ClusterCleaner, VolumeObjects
    from ..cleanup.clusters import ClusterWatch
    from ..cleanup.finalizers import FinalizerKeeper

    cleaner = ClusterCleaner(
        node,
        stores,
        local=local,
        objects=VolumeObjects(client),
        journal=CleanupJournal(state / JOURNAL, blocking),
    )
    watch = ClusterWatch(
        client, [cluster_resource(resource) for resource in resources], stores.clock, cleaner.on_cluster
    )
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
