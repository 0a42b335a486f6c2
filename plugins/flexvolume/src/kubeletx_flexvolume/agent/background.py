"""`make_attachments`: everything around attachment records that an agent runs, from plain settings.

    made = make_attachments(settings, backends=backends, local=lambda: volumes, clock=clock)
    await made.before_serving()          # reads the journal and the garbage list, and works the list off
    for name, run in made.tasks: ...     # one task each, until the agent ends
    made.book, made.refuses              # for mount and unmount
    await made.close()

`before_serving` does not fail if the API server does not answer: the agent must unmount without it. The book then
refuses to take volumes until the garbage list was read.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import msgspec

from kubeletx.api import Clock

from ..attachments import loops
from ..attachments.decision import BreakPolicy
from ..attachments.editing import Draw, RecordEditor, record_editor
from ..attachments.entry_check import EntryCheck
from ..attachments.fencing import ProofSearch, SearchTools
from ..attachments.garbage import GarbageLists
from ..attachments.guard import VolumeGuard
from ..attachments.leader import Work, lead, scan_daily
from ..attachments.list_worker import ListWorker, OwnNode
from ..attachments.local import LocalVolumes
from ..attachments.nodes import SILENT_SECONDS
from ..attachments.record_book import BookTools, RecordBook
from ..attachments.returned import ReturnedEntries
from ..attachments.stale import Scanner
from ..attachments.store_memory import FILE_NAME, StoreMemory
from ..attachments.stores import Stores, open_stores
from ..backends.backend import Backend
from ..cleanup.tasks import Cleanup, make_cleanup
from ..values import StorageVolume


class AttachmentSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of the attachments of one node.

    `node`: name of its Node object. `boot_id`: content of /proc/sys/kernel/random/boot_id. `kubeconfig`: with the
    storage identity, or `records`: SQLite file of this machine; exactly one of them. `state`: directory of the agent,
    for the journal of clean-ups and the memory of the store. `namespace`: of the agents' Lease. `cluster_resources`: GROUP/VERSION/PLURAL of
    storage clusters.
    """

    node: str
    boot_id: str
    state: Path
    kubeconfig: Path | None = None
    records: Path | None = None
    policy: BreakPolicy = BreakPolicy.SAFE
    namespace: str = "kubeletx-storage"
    cluster_resources: tuple[str, ...] = ("storage.kubeletx.io/v1alpha1/storageclusters",)
    silent_seconds: float = SILENT_SECONDS
    """Without a cluster: seconds after which an agent of this machine that no longer reports counts as dead."""


class Attachments(msgspec.Struct, frozen=True, kw_only=True):
    """Attachments of one node. `refuses`: returns why a volume must not be mounted; empty if it may.

    `tasks`: name and function of each task. They run until they are cancelled; "returned entries" ends by itself.
    """

    book: RecordBook
    refuses: Callable[[StorageVolume], str]
    before_serving: Work
    tasks: tuple[tuple[str, Work], ...]
    close: Work


class _Parts(msgspec.Struct, frozen=True, kw_only=True):
    """Parts that all tasks share. `lost`: wakes the check of entries."""

    own: OwnNode
    stores: Stores
    editor: RecordEditor
    lists: GarbageLists
    guard: VolumeGuard
    local: Callable[[], LocalVolumes]
    clock: Clock
    draw: Draw
    lost: asyncio.Event


def make_attachments(
    settings: AttachmentSettings,
    *,
    backends: Mapping[str, Backend],
    local: Callable[[], LocalVolumes],
    clock: Clock,
    draw: Draw = random.random,
) -> Attachments:
    """Make the attachments of a node, in the event loop that uses them. Raises InvalidConfig.

    `backends`: by name. `local`: returns the volumes of this node; first called by `before_serving`.
    """
    parts = _parts(settings, local, clock, draw)
    stores = parts.stores
    worker = ListWorker(
        parts.own,
        lists=parts.lists,
        editor=parts.editor,
        local=local,
        guard=parts.guard,
        clock=clock,
        events=stores.events,
    )
    cleanup = make_cleanup(
        settings.node,
        stores,
        editor=parts.editor,
        local=local,
        resources=settings.cluster_resources,
        state=settings.state,
        clock=clock,
    )
    book = _book(settings, parts, backends, worker, cleanup)
    memory = StoreMemory(settings.state / FILE_NAME)
    check = EntryCheck(
        book=book,
        editor=parts.editor,
        local=local,
        guard=parts.guard,
        identity=stores.identity,
        memory=memory,
        events=stores.events,
    )

    async def before_serving() -> None:
        await cleanup.load()
        await loops.start_node(parts.own, stores.own_nodes, worker, check)

    async def close() -> None:
        await stores.close()
        cleanup.close()
        memory.close()

    return Attachments(
        book=book,
        refuses=cleanup.refuses,
        before_serving=before_serving,
        tasks=(*_own_tasks(parts, worker, check), *cleanup.tasks, ("scan", _scan(settings, parts, cleanup))),
        close=close,
    )


def _parts(
    settings: AttachmentSettings, local: Callable[[], LocalVolumes], clock: Clock, draw: Draw
) -> _Parts:
    stores = open_stores(
        kubeconfig=settings.kubeconfig,
        records=settings.records,
        node=settings.node,
        clock=clock,
        silent_seconds=settings.silent_seconds,
        sets_aside=True,
    )
    return _Parts(
        own=OwnNode(name=settings.node, boot_id=settings.boot_id),
        stores=stores,
        editor=record_editor(stores.attachments, clock, draw=draw),
        lists=GarbageLists(stores.stale, clock, draw=draw),
        guard=VolumeGuard(),
        local=local,
        clock=clock,
        draw=draw,
        lost=asyncio.Event(),
    )


def _book(
    settings: AttachmentSettings,
    parts: _Parts,
    backends: Mapping[str, Backend],
    worker: ListWorker,
    cleanup: Cleanup,
) -> RecordBook:
    stores = parts.stores
    search = SearchTools(nodes=stores.nodes, pods=stores.pods, backends=backends, local=parts.local)
    tools = BookTools(
        editor=parts.editor,
        garbage=parts.lists,
        nodes=stores.nodes,
        volumes=stores.volumes,
        proofs=ProofSearch(search, settings.policy),
        events=stores.events,
        guard=parts.guard,
        local=parts.local,
        pending=worker.pending,
        refuses=cleanup.refuses,
        lost=parts.lost,
        backends=backends,
    )
    return RecordBook(
        tools, node=settings.node, boot_id=settings.boot_id, policy=settings.policy, clock=parts.clock
    )


def _own_tasks(parts: _Parts, worker: ListWorker, check: EntryCheck) -> list[tuple[str, Work]]:
    clock, draw = parts.clock, parts.draw
    returned = ReturnedEntries(parts.own, editor=parts.editor, local=parts.local, guard=parts.guard)
    tasks: list[tuple[str, Work]] = [
        ("garbage list", partial(loops.work_off, worker, clock, draw)),
        ("entry check", partial(loops.check_entries, check, parts.lost, clock, draw)),
        ("returned entries", partial(loops.clean_returned, returned, clock, draw)),
    ]
    if parts.stores.own_nodes is not None:
        tasks.append(("node record", partial(loops.announce, parts.own, parts.stores.own_nodes, clock)))
    return tasks


def _scan(settings: AttachmentSettings, parts: _Parts, cleanup: Cleanup) -> Work:
    stores = parts.stores
    scanner = Scanner(
        editor=parts.editor,
        lists=parts.lists,
        lists_records=stores.stale,
        nodes=stores.nodes,
        events=stores.events,
        clock=parts.clock,
    )
    scan = partial(scan_daily, scanner, parts.clock, draw=parts.draw)
    if stores.client is None:
        return scan
    return partial(lead, stores.client, settings.namespace, parts.clock, [scan, *cleanup.leading])
