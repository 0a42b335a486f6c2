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
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

import msgspec

from kubeletx.api import Blocking, Clock

from ..attachments.decision import BreakPolicy
from ..attachments.editing import Draw
from ..attachments.leader import lead
from ..attachments.loops import Work, node_tasks, scan_daily, start_node
from ..attachments.node import LocalVolumes, NodeContext
from ..attachments.nodes import SILENT_SECONDS
from ..attachments.reconcile import Reconciler
from ..attachments.record_book import RecordBook
from ..attachments.stale import Scanner
from ..attachments.stores import open_stores
from ..backends.backend import Backend
from ..cleanup.tasks import Cleanup, make_cleanup
from .config import AgentConfig

MEMORY: Final = "records-store"
"""Name of the file in the state directory with the identity of the store that has the entries of this node."""


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
        cleanup = make_cleanup(
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
