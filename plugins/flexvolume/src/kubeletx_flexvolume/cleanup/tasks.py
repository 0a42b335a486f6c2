"""`make_cleanup`: the clean-up of deleted storage clusters, as parts of `agent.background`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from kubeletx.api import Clock

from ..attachments.editing import RecordEditor
from ..attachments.local import LocalVolumes
from ..attachments.stores import Stores
from ..values import StorageVolume

JOURNAL: Final = "cleanup.json"

Work = Callable[[], Awaitable[None]]


class Cleanup(msgspec.Struct, frozen=True, kw_only=True):
    """Clean-up on one node. `refuses`: returns why a volume must not be mounted; empty if it may.

    `load`: call it before anything is mounted. `tasks`: of every agent. `leading`: of the agent that scans.
    """

    refuses: Callable[[StorageVolume], str]
    load: Work
    tasks: tuple[tuple[str, Work], ...]
    leading: tuple[Work, ...]
    close: Callable[[], None]


def no_cleanup() -> Cleanup:
    """Make the clean-up of an agent without a cluster, which does nothing."""

    async def load() -> None:
        return

    return Cleanup(refuses=lambda _: "", load=load, tasks=(), leading=(), close=lambda: None)


def make_cleanup(
    node: str,
    stores: Stores,
    *,
    editor: RecordEditor,
    local: Callable[[], LocalVolumes],
    resources: Sequence[str],
    state: Path,
    clock: Clock,
) -> Cleanup:
    """Make the clean-up of a node. `resources`: GROUP/VERSION/PLURAL of storage clusters. Raises InvalidConfig."""
    if stores.client is None:
        return no_cleanup()
    from ..attachments.definitions import cluster_resource
    from .cleaner import CleanerTools, ClusterCleaner
    from .clusters import ClusterWatch
    from .finalizers import FinalizerKeeper
    from .journal import CleanupJournal
    from .objects import VolumeObjects

    journal = CleanupJournal(state / JOURNAL)
    tools = CleanerTools(
        local=local,
        editor=editor,
        objects=VolumeObjects(stores.client),
        events=stores.events,
        journal=journal,
        clock=clock,
    )
    cleaner = ClusterCleaner(node, tools)
    watch = ClusterWatch(
        stores.client, [cluster_resource(one) for one in resources], clock, cleaner.on_cluster
    )
    keeper = FinalizerKeeper(stores.client, watch, stores.attachments, stores.events, clock)

    def refuses(volume: StorageVolume) -> str:
        if volume.cluster and not watch.is_synced:
            return f"whether storage cluster {volume.cluster} of volume {volume.name} is being deleted is not known yet"
        return cleaner.refuses(volume)

    return Cleanup(
        refuses=refuses,
        load=cleaner.load,
        tasks=(("storage clusters", watch.run), ("clean-up of storage clusters", cleaner.run)),
        leading=(keeper.run,),
        close=journal.close,
    )
