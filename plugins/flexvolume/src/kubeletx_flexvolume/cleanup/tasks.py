"""`make_cleanup`: the clean-up of deleted storage clusters, as the agent runs it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from kubeletx.api import Blocking

from ..attachments.loops import Work
from ..attachments.node import LocalVolumes
from ..attachments.stores import Stores
from ..values import StorageVolume

if TYPE_CHECKING:
    from kubeletx.kube.client import KubeClient

JOURNAL: Final = "cleanup.json"


async def _nothing() -> None:
    return


class Cleanup(msgspec.Struct, frozen=True, kw_only=True):
    """Clean-up on one node; the defaults are those of an agent without a cluster.

    `refuses`: returns why a volume must not be mounted; empty if it may. `load`: call it before anything is mounted.
    `tasks`: of every agent. `leading`: of the agent that scans.
    """

    refuses: Callable[[StorageVolume], str] = lambda _: ""
    load: Work = _nothing
    tasks: tuple[tuple[str, Work], ...] = ()
    leading: tuple[Work, ...] = ()


def make_cleanup(
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
    from .cleaner import ClusterCleaner
    from .clusters import ClusterWatch
    from .finalizers import FinalizerKeeper
    from .journal import CleanupJournal
    from .objects import VolumeObjects

    cleaner = ClusterCleaner(
        node,
        stores,
        local=local,
        objects=VolumeObjects(client),
        journal=CleanupJournal(state / JOURNAL, blocking),
    )
    watch = ClusterWatch(
        client, [cluster_resource(one) for one in resources], stores.clock, cleaner.on_cluster
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
