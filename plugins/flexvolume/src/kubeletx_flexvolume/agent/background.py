"""`make_attachments`: everything around attachment records that an agent runs.

    made = make_attachments(config, backends=backends, local=lambda: volumes, blocking=threads.run, clock=clock)
    await made.before_serving()          # reads the journal and the garbage list, and works the list off
    for name, run in made.tasks: ...     # one task each, until the agent ends
    made.book                            # for mount and unmount
    await made.close()

`before_serving` does not fail if the API server does not answer: the agent must unmount without it. The book then
refuses to take volumes until the garbage list was read.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from kubeletx.api import Blocking, Clock

from ..attachments.decision import BreakPolicy
from ..attachments.editing import Draw
from ..attachments.loops import Work, lead, node_tasks, scan_daily, start_node
from ..attachments.node import LocalVolumes, NodeContext
from ..attachments.nodes import SILENT_SECONDS
from ..attachments.reconcile import Reconciler
from ..attachments.record_book import RecordBook
from ..attachments.stale import Scanner
from ..attachments.stores import Stores, open_stores
from ..backends.backend import Backend
from ..values import StorageVolume
from .config import AgentConfig

if TYPE_CHECKING:
    from kubeletx.kube.client import KubeClient

JOURNAL: Final = "cleanup.json"
MEMORY: Final = "records-store"
"""Name of the file in the state directory with the identity of the store that has the entries of this node."""


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
