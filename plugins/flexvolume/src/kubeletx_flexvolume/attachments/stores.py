"""`open_stores`: opens the records of a cluster or of this machine, with their sources of facts about nodes."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from kubeletx.api import Clock, InvalidConfig, NotFound, Records

from .editing import Draw, RecordEditor, not_served, record_editor
from .events import AttachmentEvents, LoggedEvents
from .garbage import GarbageLists
from .modes import VolumeLookup
from .nodes import SILENT_SECONDS, NodeDirectory, RecordedNodes

if TYPE_CHECKING:
    from kubeletx.kube.client import KubeClient

    from .cluster import ClusterPods

USER_AGENT: Final = "kubeletx-flexvolume"


class Stores(msgspec.Struct, frozen=True, kw_only=True):
    """Records and sources of facts.

    `editor`, `lists`: change `attachments` and `stale`. `client`, `pods`: of the cluster; None without one. `own_nodes`:
    records of the nodes of this machine; None in a cluster. `identity`: returns a text that changes if the records are
    lost and made again. Call `close` at the end.
    """

    attachments: Records
    stale: Records
    editor: RecordEditor
    lists: GarbageLists
    nodes: NodeDirectory
    volumes: VolumeLookup
    events: AttachmentEvents
    pods: ClusterPods | None
    client: KubeClient | None
    own_nodes: RecordedNodes | None
    identity: Callable[[], Awaitable[str]]
    close: Callable[[], Coroutine[Any, Any, None]]
    clock: Clock


def open_stores(
    *,
    kubeconfig: Path | None,
    records: Path | None,
    node: str,
    clock: Clock,
    silent_seconds: float = SILENT_SECONDS,
    sets_aside: bool = False,
    draw: Draw = random.random,
) -> Stores:
    """Open the records of a cluster (`kubeconfig`) or of this machine (`records`, an SQLite file).

    `node`: name of this node, the reporter of events. `sets_aside`: see `SqliteStore`. `silent_seconds`: see
    `RecordedNodes`. Call it in the event loop that uses the stores. Raises InvalidConfig unless exactly one of the two is
    given, or if the kubeconfig is invalid.
    """
    if kubeconfig is not None and records is None:
        return _cluster_stores(kubeconfig, node, clock, draw)
    if records is not None and kubeconfig is None:
        return _machine_stores(records, clock, draw, silent_seconds, sets_aside=sets_aside)
    raise InvalidConfig(
        field="--storage-kubeconfig, --records",
        problem="both are given" if kubeconfig is not None else "none is given",
        fix="give --storage-kubeconfig for records in a cluster, or --records for a file of this machine",
    )


def _machine_stores(
    path: Path, clock: Clock, draw: Draw, silent_seconds: float, *, sets_aside: bool
) -> Stores:
    from .sqlite import SqliteStore

    store = SqliteStore(path, clock, sets_aside=sets_aside)
    attachments, stale = store.of("volumeattachments"), store.of("staleattachments")
    nodes = RecordedNodes(store.of("nodes"), clock, silent_seconds=silent_seconds)
    return Stores(
        attachments=attachments,
        stale=stale,
        editor=record_editor(attachments, clock, draw=draw),
        lists=GarbageLists(stale, clock, draw=draw),
        nodes=nodes,
        volumes=VolumeLookup(None, clock),
        events=LoggedEvents(),
        pods=None,
        client=None,
        own_nodes=nodes,
        identity=store.identity,
        close=store.close,
        clock=clock,
    )


def _cluster_stores(path: Path, node: str, clock: Clock, draw: Draw) -> Stores:
    from kubeletx.kube.client import KubeClient, load_kubeconfig
    from kubeletx.kube.client.records import CustomResourceRecords

    from .cluster import ClusterEvents, ClusterNodes, ClusterPods
    from .definitions import ATTACHMENT_KIND, ATTACHMENTS, STALE, STALE_KIND

    client = KubeClient(load_kubeconfig(path), clock=clock, user_agent=USER_AGENT)
    attachments = CustomResourceRecords(client, ATTACHMENTS, kind=ATTACHMENT_KIND, clock=clock)
    stale = CustomResourceRecords(client, STALE, kind=STALE_KIND, clock=clock)
    volumes = VolumeLookup(client, clock)
    return Stores(
        attachments=attachments,
        stale=stale,
        editor=record_editor(attachments, clock, draw=draw),
        lists=GarbageLists(stale, clock, draw=draw),
        nodes=ClusterNodes(client),
        volumes=volumes,
        events=ClusterEvents(client, volumes, clock, node=node),
        pods=ClusterPods(client),
        client=client,
        own_nodes=None,
        identity=lambda: _identity_of_cluster(client),
        close=client.close,
        clock=clock,
    )


async def _identity_of_cluster(client: KubeClient) -> str:
    """Return the UID of the definition of attachment records, with which all records are deleted."""
    from kubeletx.kube.client.resources import CUSTOM_RESOURCE_DEFINITIONS
    from kubeletx.kube.types.custom import CustomResourceDefinition

    from .definitions import ATTACHMENTS, GROUP

    path = CUSTOM_RESOURCE_DEFINITIONS.path(name=f"{ATTACHMENTS.plural}.{GROUP}")
    try:
        return (await client.get(path, CustomResourceDefinition)).metadata.uid
    except NotFound as error:
        raise not_served(error) from error
