"""`VolumeExpansion`: expands the file systems of claimed volumes whose devices have grown.

A controller of the cluster enlarges the device and the capacity of the persistent volume. The node then expands the
file system, also while pods use it, and writes the new size to the claim. A node may not watch claims, so that the
claims of volumes whose driver can expand them are read once a minute. Source: kubelet,
pkg/volume/util/operationexecutor (NodeExpandVolume).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import structlog

from kubeletx.api import Clock, ClusterObjects, EventSink, KubeletxError, ObjectRef, PodUid, VolumeRequest
from kubeletx.api.names import Event

from .journal import EntryState
from .volumes import DriverVolumes

log = structlog.get_logger(__name__)

LOOK_SECONDS: Final = 60.0


class VolumeExpansion:
    """Expands volumes of volume drivers; the agent runs `run` as one task."""

    def __init__(
        self,
        *,
        volumes: DriverVolumes,
        cluster_of: Callable[[PodUid], ClusterObjects | None],
        events: EventSink,
        clock: Clock,
    ) -> None:
        """`cluster_of`: returns the cluster that a pod comes from; None: the pod has no cluster, or no longer exists."""
        self._volumes = volumes
        self._cluster_of = cluster_of
        self._events = events
        self._clock = clock
        self._told: dict[tuple[PodUid, str], str] = {}
        """Problems that were recorded, by pod and volume."""

    async def run(self) -> None:
        """Expand what has grown, until cancelled. Waits without a timer while no volume can be expanded."""
        while True:
            if not list(self._candidates()):
                self._volumes.prepared.clear()
                await self._volumes.prepared.wait()
            for uid, request in list(self._candidates()):
                await self._look(uid, request)
            await self._clock.sleep(LOOK_SECONDS)

    def _candidates(self) -> Iterator[tuple[PodUid, VolumeRequest]]:
        for uid, journal in self._volumes.journals.items():
            for entry in journal.entries.values():
                can = entry.ready is not None and entry.ready.capabilities.expand
                if can and entry.state is EntryState.READY and entry.request.claim:
                    yield uid, entry.request

    async def _look(self, uid: PodUid, request: VolumeRequest) -> None:
        cluster = self._cluster_of(uid)
        if cluster is None or request.read_only:
            return
        try:
            volume = await cluster.find_volume(uid, request.claim)
            if volume is None or volume.name != request.persistent_volume:
                return
            if not 0 < volume.claim_bytes < volume.capacity_bytes:
                return
            size = await self._volumes.expand(uid, request.name, volume.capacity_bytes)
            await cluster.note_expanded(uid, request.claim, max(size, volume.capacity_bytes))
        except KubeletxError as error:
            self._failed(uid, request, str(error))
            return
        self._told.pop((uid, request.name), None)
        log.info("Expanded volume", pod_uid=uid, volume=request.volume_name, size_bytes=size)
        message = f'MountVolume.NodeExpandVolume succeeded for volume "{request.volume_name}"'
        self._record(request, "Normal", Event.FILE_SYSTEM_RESIZED, message)

    def _failed(self, uid: PodUid, request: VolumeRequest, problem: str) -> None:
        if self._told.get((uid, request.name)) == problem:
            return
        self._told[(uid, request.name)] = problem
        message = f'MountVolume.NodeExpandVolume failed for volume "{request.volume_name}" : {problem}'
        self._record(request, "Warning", Event.FILE_SYSTEM_RESIZE_FAILED, message)

    def _record(self, request: VolumeRequest, type_: str, reason: str, message: str) -> None:
        pod = request.pod
        ref = ObjectRef(kind="Pod", name=pod.name, namespace=pod.namespace, uid=str(pod.uid))
        self._events.record(ref, type=type_, reason=reason, message=message)
