"""`VolumeBackend`: volumes of pods, as the admin socket and the node's status show them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from kubeletx.api import Clock, PodUid
from kubeletx.kube.types.node import AttachedVolume
from kubeletx.pods import DiskBoard, PodManager, VolumeBoard
from kubeletx.server.views import VolumeView
from kubeletx.volumes.drivers.journal import EntryState, JournalEntry
from kubeletx.volumes.operations import plugin_name
from kubeletx.volumes.prepared import PreparedVolume
from kubeletx.volumes.preparer import VolumePreparer

from .figures import volume_figures

WATCH_SECONDS: Final = 1.0


class VolumeBackend:
    """Lists the volumes of all pods. Implements `VolumeVerbs`."""

    def __init__(
        self,
        *,
        manager: PodManager,
        preparer: VolumePreparer,
        disks: DiskBoard,
        board: VolumeBoard,
        clock: Clock,
    ) -> None:
        """`disks`: usage of volumes below the pods' directories. `board`: usage of the others."""
        self._manager = manager
        self._preparer = preparer
        self._disks = disks
        self._board = board
        self._clock = clock

    async def list_volumes(self) -> Sequence[VolumeView]:
        return sorted(self._views(), key=lambda view: (view.namespace, view.pod, view.name))

    async def watch_volumes(self) -> AsyncIterator[Sequence[VolumeView]]:
        before: Sequence[VolumeView] | None = None
        while True:
            present = await self.list_volumes()
            if present != before:
                yield present
            before = present
            await self._clock.sleep(WATCH_SECONDS)

    def _views(self) -> Iterator[VolumeView]:
        journals = self._preparer.journals()
        for uid, worker in list(self._manager.workers.items()):
            pod = worker.desired.pod
            prepared = self._preparer.prepared(uid)
            driven = journals[uid].entries if uid in journals else {}
            for volume in prepared.volumes.values() if prepared is not None else ():
                if volume.name not in driven:
                    yield self._own_view(uid, pod.namespace, pod.name, volume)
            for entry in driven.values():
                yield self._driven_view(uid, pod.namespace, pod.name, entry)
        for uid in journals.keys() - self._manager.workers.keys():
            for entry in journals[uid].entries.values():
                yield self._driven_view(uid, entry.request.pod.namespace, entry.request.pod.name, entry)

    def _own_view(self, uid: PodUid, namespace: str, pod: str, volume: PreparedVolume) -> VolumeView:
        return VolumeView(
            namespace=namespace,
            pod=pod,
            pod_uid=str(uid),
            name=volume.name,
            kind=volume.plugin,
            state=EntryState.READY.value,
            path=volume.source or volume.image,
            read_only=volume.read_only,
            **self._use(uid, volume.name),
        )

    def _driven_view(self, uid: PodUid, namespace: str, pod: str, entry: JournalEntry) -> VolumeView:
        request, ready = entry.request, entry.ready
        return VolumeView(
            namespace=namespace,
            pod=pod,
            pod_uid=str(uid),
            name=request.name,
            kind=plugin_name(request.source, request.driver),
            driver=entry.driver,
            persistent_volume=request.persistent_volume,
            claim=request.claim,
            state=entry.state.value,
            path=entry.path,
            device=ready.device if ready is not None else "",
            fs_type=request.fs_type,
            read_only=request.read_only or (ready is not None and ready.read_only),
            access_modes=request.access_modes,
            options=request.options,
            message=self._preparer.driven.problem(uid, request.name),
            since=datetime.fromtimestamp(int(entry.since), UTC) if entry.since else None,
            **self._use(uid, request.name),
        )

    def _use(self, uid: PodUid, name: str) -> dict[str, Any]:
        figures = volume_figures(self._disks, self._board, uid).get(name)
        if figures is None:
            return {}
        return {
            "capacity_bytes": figures.fs.capacity_bytes,
            "used_bytes": figures.use.bytes if figures.use is not None else figures.fs.used_bytes,
            "available_bytes": figures.fs.available_bytes,
        }


def attached_volumes(preparer: VolumePreparer) -> tuple[AttachedVolume, ...]:
    """Return the devices that volume drivers have attached to this node, in order of name.

    The names are the kubelet's: the plugin, a slash and the name of the volume.
    """
    attached = {}
    for journal in preparer.journals().values():
        for entry in journal.entries.values():
            if entry.ready is not None and entry.ready.device:
                request = entry.request
                name = f"{plugin_name(request.source, request.driver)}/{request.volume_name}"
                attached[name] = AttachedVolume(name=name, device_path=entry.ready.device)
    return tuple(attached[name] for name in sorted(attached))
