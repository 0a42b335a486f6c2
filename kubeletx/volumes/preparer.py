"""`VolumePreparer`: prepares the volumes of pods on the node, and removes them.

File system calls run on threads (`Blocking`), one call at a time for each pod. A call that hangs, for instance on a
dead NFS server, occupies only its thread: once it is past its deadline, further calls for this pod fail at once, and
other pods are not affected. Preparing a pod again only updates content that changed. Releasing is idempotent. It finds
mounts in the kernel's mount table, not in memory, so that it also works for pods that an earlier agent process
prepared.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import structlog
from msgspec.structs import replace

from kubeletx.api import Blocking, ClusterObjects, KubeletxError, PodUid, TimedOut, Unavailable
from kubeletx.api.names import Event
from kubeletx.kube.types.core import Pod, PodUnit

from . import layout
from .cluster_objects import ObjectSet
from .container_mounts import ContainerMounts, MountRequest, build_mounts
from .fetch import fetch_objects
from .files.safe_paths import make_private
from .kinds.table import mount_text, set_up_volume
from .mounting import LinuxMounter, Mounter, mount_error
from .operations import MOUNT, UNMOUNT, OperationCounts, Operations, plugin_of
from .pod_fields import FieldContext
from .prepared import PreparedVolume, PreparedVolumes, SetUp, SetUpVolume
from .teardown import Orphan, find_orphans, remove_pod_directory, tear_down

log = structlog.get_logger(__name__)

T = TypeVar("T")

PREPARE_SECONDS: Final = 123.0
"""Seconds after which preparing a pod's volumes fails with an event (docs/kubelet-parity.md, row V1)."""
RELEASE_SECONDS: Final = 123.0


class VolumePreparer:
    """Prepares and releases the volumes of all pods on this node, at most one call at a time for each pod."""

    def __init__(
        self,
        *,
        root_dir: Path,
        blocking: Blocking,
        fields: FieldContext,
        mounter: Mounter | None = None,
        drivers: Mapping[str, SetUpVolume] | None = None,
    ) -> None:
        """`root_dir`: the agent's root directory. `blocking`: runs a function on a thread.

        `fields`: the node's data for the downward API. `mounter`: None: a `LinuxMounter`. `drivers`: set-up functions
        of additional volume kinds, by attribute of `Volume`, such as ``flex_volume``.
        """
        self._root_dir = root_dir.resolve()  # the mount table knows no links
        self._blocking = blocking
        self._fields = fields
        self._mounter: Mounter = mounter or LinuxMounter()
        self._drivers = dict(drivers or {})
        self._running: dict[PodUid, asyncio.Future[Any]] = {}
        self._overdue: set[PodUid] = set()
        self._ready: dict[PodUid, PreparedVolumes] = {}
        self.operations = OperationCounts()

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
        done = Operations()
        try:
            ready = await self._run(pod.uid, deadline_seconds, self._prepare, pod, objects, done)
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
        return await self._run(pod.uid, deadline_seconds, build_mounts, request)

    async def release(self, uid: PodUid, *, deadline_seconds: float = RELEASE_SECONDS) -> None:
        """Unmount and remove all volumes of the pod; the directories of hostPath volumes stay as they are.

        Succeeds if the pod has no volumes. Raises Unavailable while a volume is in use. The rest of the pod's
        directory, which has the termination messages, is kept until `remove_directory`.
        """
        had_volumes = self._ready.pop(uid, None) is not None
        done = Operations()
        try:
            with done.timed("", UNMOUNT):
                await self._run(uid, deadline_seconds, tear_down, self._root_dir, uid, self._mounter)
        finally:
            if had_volumes:
                self.operations.add(done)

    async def remove_directory(self, uid: PodUid, *, deadline_seconds: float = RELEASE_SECONDS) -> None:
        """Remove the pod's whole directory; call `release` before.

        Raises Unavailable while something is mounted in it.
        """
        await self._run(uid, deadline_seconds, remove_pod_directory, self._root_dir, uid, self._mounter)

    def ready_volumes(self) -> Iterator[PreparedVolume]:
        """Yield every volume that this process prepared and has not released."""
        for ready in self._ready.values():
            yield from ready.volumes.values()

    async def find_orphans(self, known: frozenset[PodUid]) -> Sequence[Orphan]:
        """Return the directories of pods that are not in `known`, for the clean-up at the agent's start."""
        return await self._blocking(find_orphans, self._root_dir, known, self._mounter)

    def _prepare(self, pod: Pod, objects: ObjectSet | None, done: Operations) -> PreparedVolumes:
        make_private(layout.volumes_dir(self._root_dir, pod.uid))
        ready: dict[str, PreparedVolume] = {}
        for index, volume in enumerate(pod.spec.volumes):
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
                    ready[volume.name] = replace(set_up_volume(request, self._drivers), plugin=plugin)
            except KubeletxError as err:
                err.message = mount_text(request, str(err))
                raise
        return PreparedVolumes(uid=pod.uid, volumes=ready)

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

    async def _run(self, uid: PodUid, deadline_seconds: float, function: Callable[..., T], *args: Any) -> T:
        """Run `function` on a thread once earlier calls for this pod have ended, and return its result.

        Raises TimedOut after the deadline; the thread still runs then, and until it ends, later calls for this pod
        raise Unavailable at once. Calls wait for each other, since several containers of a pod may be created at the
        same time and a release may follow an abandoned preparation.
        """
        running: asyncio.Future[T] | None = None
        try:
            async with asyncio.timeout(deadline_seconds) as limit:
                await self._wait_turn(uid)
                running = self._begin(uid, function, *args)
                return await asyncio.shield(running)
        except OSError as err:
            if (
                not limit.expired()
            ):  # a file server's time-out (ETIMEDOUT) is one of its errors, not of this wait
                raise mount_error("cannot prepare or release volumes", err) from err
            if running is None:
                raise _still_busy() from err
            if not running.done():
                self._overdue.add(uid)
            raise TimedOut(
                f"the pod's volumes took longer than {deadline_seconds:.0f} s; a file system may hang",
                reason=Event.FAILED_MOUNT,
            ) from err

    async def _wait_turn(self, uid: PodUid) -> None:
        while (earlier := self._running.get(uid)) is not None and not earlier.done():
            if uid in self._overdue:
                raise _still_busy()
            await asyncio.wait([earlier])

    def _begin(self, uid: PodUid, function: Callable[..., T], *args: Any) -> asyncio.Future[T]:
        running = asyncio.ensure_future(self._blocking(function, *args))
        if isinstance(running, asyncio.Task):
            running.set_name(f"volumes-{uid}")
        self._running[uid] = running
        running.add_done_callback(lambda done: self._forget(uid, done))
        return running

    def _forget(self, uid: PodUid, done: asyncio.Future[Any]) -> None:
        if self._running.get(uid) is done:
            del self._running[uid]
            self._overdue.discard(uid)
        if not done.cancelled() and (err := done.exception()) is not None:
            log.debug("Volume work failed", pod_uid=uid, err=str(err))


def _still_busy() -> Unavailable:
    return Unavailable(
        "earlier work on the pod's volumes has not returned yet; a file system may hang",
        reason=Event.FAILED_MOUNT,
    )
