"""`VolumePreparer`: prepares the volumes of pods on the node, and removes them.

The kinds that only need files of the node (`kinds`) are prepared together, on one thread for each pod. Volumes of
volume drivers are prepared at the same time, each in a task of its own (`drivers`). Preparing a pod again only
updates content that changed. Releasing is idempotent: drivers release what the pod's journal has; then everything that
is still mounted below the pod's directory is unmounted. Neither needs the memory of an earlier agent process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from kubeletx.api import (
    Blocking,
    ClusterObjects,
    KubeletxError,
    PodUid,
    TimedOut,
)
from kubeletx.api.names import Event
from kubeletx.kube.types.core import Pod, PodUnit

from . import layout
from .cluster_objects import ObjectSet, fetch_objects
from .container_mounts import ContainerMounts, MountRequest, build_mounts
from .drivers import DriverEntry, VolumeDrivers, nfs
from .drivers.journal import PodJournal
from .drivers.nfs import NfsDriver
from .drivers.resolving import PodVolumes, ready_volume, resolve_volumes, wanted_volumes
from .drivers.volumes import DriverVolumes
from .files.safe_paths import make_private
from .kinds.table import mount_text, set_up_volume
from .mounting import LinuxMounter, Mounter
from .operations import MOUNT, UNMOUNT, OperationCounts, Operations, plugin_of
from .pod_fields import FieldContext
from .prepared import PreparedVolume, PreparedVolumes, SetUp
from .teardown import Orphan, find_orphans, remove_pod_directory, tear_down, unmount_sub_paths
from .turns import PodTurns

PREPARE_SECONDS: Final = 123.0
"""Seconds after which preparing a pod's volumes fails with an event (docs/kubelet-parity.md, row V1)."""
RELEASE_SECONDS: Final = 123.0


class VolumePreparer:
    """Prepares and releases the volumes of all pods on this node."""

    def __init__(
        self,
        *,
        root_dir: Path,
        blocking: Blocking,
        fields: FieldContext,
        mounter: Mounter | None = None,
        working: Blocking | None = None,
        boot_id: str = "",
    ) -> None:
        """`root_dir`: the agent's root directory. `blocking`: runs a function on a thread.

        `fields`: the node's data for the downward API. `mounter`: None: a `LinuxMounter`. `working`: runs functions
        on volumes of drivers, which may hang; None: `blocking`. `boot_id`: of the running kernel.
        """
        self._root_dir = root_dir.resolve()  # the mount table has resolved paths
        self._blocking = blocking
        self._fields = fields
        self._mounter: Mounter = mounter or LinuxMounter()
        self._turns = PodTurns(blocking)
        self._ready: dict[PodUid, PreparedVolumes] = {}
        self.operations = OperationCounts()
        self.drivers = VolumeDrivers()
        """Volume drivers. Those of plugins are added before the first pod starts."""
        own_nfs = NfsDriver(self._mounter, working or blocking)
        self.drivers.add(DriverEntry(name=nfs.NAME, driver=own_nfs, sources=nfs.SOURCES))
        self.driven = DriverVolumes(
            root_dir=self._root_dir,
            drivers=self.drivers,
            files=blocking,
            working=working or blocking,
            mounter=self._mounter,
            operations=self.operations,
            boot_id=boot_id,
        )

    async def prepare(
        self,
        pod: Pod,
        cluster: ClusterObjects | None = None,
        *,
        deadline_seconds: float = PREPARE_SECONDS,
    ) -> PreparedVolumes:
        """Prepare every volume of the pod; a repeated call updates changed content (labels, config maps).

        `cluster`: access to the objects of the cluster that the pod comes from; None: volumes that need cluster objects
        are refused. Raises a KubeletxError with reason FailedMount: InvalidPod if a retry is useless unless the pod
        changes, Unavailable or TimedOut if a retry may succeed.
        """
        if not pod.spec.volumes:
            return PreparedVolumes(uid=pod.uid)
        objects = await self._fetch(pod, cluster, deadline_seconds)
        volumes = resolve_volumes(pod, objects, self.drivers, self._root_dir)
        done = Operations()
        try:
            if volumes.driven:
                ready = await self._prepare_all(pod, volumes, objects, cluster, deadline_seconds, done)
            else:
                ready = await self._prepare_own(pod, volumes, objects, deadline_seconds, done)
        finally:
            self.operations.add(done)
        self._ready[pod.uid] = ready
        return ready

    def prepared(self, uid: PodUid) -> PreparedVolumes | None:
        """Return the pod's volumes as this process last prepared them.

        None if it has not prepared them, or has released them since.
        """
        return self._ready.get(uid)

    async def mounts_for(
        self,
        pod: Pod,
        container: PodUnit,
        prepared: PreparedVolumes,
        *,
        attempt: int,
        environment: Mapping[str, str] | None = None,
        hosts_text: str | None = None,
        recursive_read_only: bool = False,
        deadline_seconds: float = PREPARE_SECONDS,
    ) -> ContainerMounts:
        """Make and return the mounts of one run of a container: volumes, hosts file and termination message file.

        `attempt`: restart count of the run; each has its own termination message file. `environment`: the container's
        variables, for subPathExpr. `hosts_text`: content of the managed /etc/hosts; None: it is not mounted.
        `recursive_read_only`: True if the runtime supports recursive read-only mounts. Raises the errors of `prepare`.
        """
        request = MountRequest(
            pod=pod,
            container=container,
            prepared=prepared,
            attempt=attempt,
            environment=dict(environment or {}),
            hosts_text=hosts_text,
            recursive_read_only=recursive_read_only,
            root_dir=self._root_dir,
            mounter=self._mounter,
        )
        return await self._turns.run(pod.uid, deadline_seconds, build_mounts, request)

    async def release(self, uid: PodUid, *, deadline_seconds: float = RELEASE_SECONDS) -> None:
        """Release and remove all volumes of the pod; the directories of hostPath volumes stay as they are.

        Volumes of drivers are released by their drivers, also after a restart of the agent. Succeeds if the pod
        has no volumes. Raises Unavailable while a volume is in use. The rest of the pod's directory, which has the
        termination messages, is kept until `remove_directory`.
        """
        had_volumes = self._ready.pop(uid, None) is not None
        done = Operations()
        try:
            with done.timed("", UNMOUNT):
                if not await self._turns.run(uid, deadline_seconds, self._tear_down_own, uid):
                    await self._turns.run(
                        uid, deadline_seconds, unmount_sub_paths, self._root_dir, uid, self._mounter
                    )
                    await self.driven.release(uid, deadline_seconds)
                    await self._turns.run(
                        uid, deadline_seconds, tear_down, self._root_dir, uid, self._mounter
                    )
        finally:
            if had_volumes:
                self.operations.add(done)

    async def remove_directory(self, uid: PodUid, *, deadline_seconds: float = RELEASE_SECONDS) -> None:
        """Remove the pod's whole directory; call `release` before.

        Raises Unavailable while something is mounted in it, or a volume driver has not released a volume of the pod.
        """
        await self._turns.run(uid, deadline_seconds, remove_pod_directory, self._root_dir, uid, self._mounter)

    def ready_volumes(self) -> Iterator[PreparedVolume]:
        """Yield every volume that this process prepared and has not released."""
        for ready in self._ready.values():
            yield from ready.volumes.values()

    def journals(self) -> dict[PodUid, PodJournal]:
        """Return the journals of pods with volumes of drivers."""
        return self.driven.journals

    async def find_orphans(self, known: frozenset[PodUid]) -> Sequence[Orphan]:
        """Return the directories of pods that are not in `known`, for the clean-up at the agent's start."""
        return await self._blocking(find_orphans, self._root_dir, known, self._mounter)

    async def close(self) -> None:
        """Cancel running calls of volume drivers. All volumes stay as they are."""
        await self.driven.close()

    async def _prepare_all(
        self,
        pod: Pod,
        volumes: PodVolumes,
        objects: ObjectSet | None,
        cluster: ClusterObjects | None,
        deadline_seconds: float,
        done: Operations,
    ) -> PreparedVolumes:
        """Prepare volumes of drivers and the others at the same time. Raises the first error when all have ended."""
        wanted = wanted_volumes(volumes.driven, cluster)
        own, driven = await asyncio.gather(
            self._prepare_own(pod, volumes, objects, deadline_seconds, done),
            self.driven.prepare(pod.uid, wanted, deadline_seconds),
            return_exceptions=True,
        )
        for error in (own, driven):
            if isinstance(error, BaseException):
                raise error
        assert isinstance(own, PreparedVolumes)
        assert isinstance(driven, dict)
        prepared = own.volumes | {name: ready_volume(entry) for name, entry in driven.items()}
        return PreparedVolumes(uid=pod.uid, volumes=prepared)

    async def _prepare_own(
        self,
        pod: Pod,
        volumes: PodVolumes,
        objects: ObjectSet | None,
        deadline_seconds: float,
        done: Operations,
    ) -> PreparedVolumes:
        return await self._turns.run(pod.uid, deadline_seconds, self._prepare, pod, volumes, objects, done)

    def _prepare(
        self, pod: Pod, volumes: PodVolumes, objects: ObjectSet | None, done: Operations
    ) -> PreparedVolumes:
        make_private(layout.volumes_dir(self._root_dir, pod.uid))
        ready: dict[str, PreparedVolume] = {}
        for index in volumes.own:
            volume = pod.spec.volumes[index]
            request = SetUp(
                pod=pod,
                volume=volume,
                root_dir=self._root_dir,
                mounter=self._mounter,
                fields=self._fields,
                objects=objects,
                field=f"spec.volumes[{index}]",
            )
            try:
                plugin = plugin_of(pod, volume, objects)
                with done.timed(plugin, MOUNT):
                    ready[volume.name] = replace(set_up_volume(request), plugin=plugin)
            except KubeletxError as err:
                err.message = mount_text(request.field, volume.name, str(err))
                raise
        return PreparedVolumes(uid=pod.uid, volumes=ready)

    def _tear_down_own(self, uid: PodUid) -> bool:
        """Remove the volumes of a pod that has none of drivers, and return True; otherwise return False."""
        return not self.driven.has_volumes(uid) and tear_down(self._root_dir, uid, self._mounter)

    async def _fetch(
        self, pod: Pod, cluster: ClusterObjects | None, deadline_seconds: float
    ) -> ObjectSet | None:
        if cluster is None:
            return None
        try:
            async with asyncio.timeout(deadline_seconds):
                return await fetch_objects(pod, cluster)
        except TimeoutError as err:
            raise TimedOut(
                f"objects that pod {pod.ref} refers to could not be read within {deadline_seconds:.0f} s",
                reason=Event.FAILED_MOUNT,
            ) from err
