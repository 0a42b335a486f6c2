"""`ClusterCleaner`: removes the volumes of deleted storage clusters from this node.

While a cluster is being deleted, its volumes are not mounted any more. Each volume of it that is on this node goes
through the steps of `sequence`, with a task, a deadline for each step, and an event for each step that was done.
Volumes do not wait for each other. What fails is tried again in the next round.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

import msgspec
import structlog

from kubeletx.api import Blocking, Conflict, KubeletxError, NotFound, TimedOut, Unavailable, sleep_or, within
from kubeletx.kube.client import KubeClient
from kubeletx.kube.client.resources import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES
from kubeletx.kube.types.objects import ClaimReference
from kubeletx.linux.files import replace_file
from kubeletx.linux.json_files import read_json

from ..attachments.editing import strike
from ..attachments.modes import read_volume
from ..attachments.node import LocalVolumes
from ..attachments.stores import Stores
from ..values import DRIVER, StorageVolume
from .clusters import ClusterState, StorageCluster
from .sequence import CleanupStep, StepResult, VolumeCleanup, after_step

log = structlog.get_logger(__name__)

VERSION: Final = 1
STEP_SECONDS: Final = 60.0
ROUND_SECONDS: Final = 10.0
_OF_OBJECTS: Final = (CleanupStep.DELETE_CLAIM, CleanupStep.DELETE_VOLUME)
"""Steps that need the claim and the PersistentVolume; the others need no API server, except for the record."""
_NECESSARY: Final = (CleanupStep.UNMOUNT, CleanupStep.REMOVE_RECORD)
"""Steps that are tried until they are done."""
_WHY: Final = "its storage cluster is being deleted"
_WORDS: Final = {
    CleanupStep.DELETE_CLAIM: ("DeletedClaim", "deleted the claim {claim} of volume {volume}"),
    CleanupStep.UNMAP: ("UnmappedVolume", "detached volume {volume} by force"),
    CleanupStep.DELETE_VOLUME: ("DeletedPersistentVolume", "deleted PersistentVolume {volume}"),
    CleanupStep.UNMOUNT: ("UnmountedVolume", "unmounted volume {volume} from all pods"),
    CleanupStep.REMOVE_RECORD: (
        "RemovedAttachment",
        "removed this node's entries from the record of {volume}",
    ),
}
"""Reason and text of the event after each step."""
BLOCKED: Final = "CleanupBlocked"
"""Reason of the event for a volume whose last steps fail; the text has the error."""


class ClusterCleaner:
    """Clean-ups of this node. Call `load` before anything is mounted, then run `run` as a task."""

    def __init__(
        self,
        node: str,
        stores: Stores,
        *,
        local: Callable[[], LocalVolumes],
        objects: VolumeObjects,
        journal: CleanupJournal,
        step_seconds: float = STEP_SECONDS,
    ) -> None:
        self._node = node
        self._stores = stores
        self._local = local
        self._objects = objects
        self._journal = journal
        self._step_seconds = step_seconds
        self._deleted: dict[str, StorageCluster] = {}
        self._work: dict[str, VolumeCleanup] = {}
        """Unfinished clean-ups by volume, as they are in the journal."""
        self._running: set[str] = set()
        self._wake = asyncio.Event()
        self._saving = asyncio.Lock()

    async def load(self) -> None:
        """Read the clean-ups that an earlier run left unfinished."""
        self._work = {one.volume.name: one for one in await self._journal.load()}
        self._wake.set()

    def refuses(self, volume: StorageVolume) -> str:
        """Return why the volume must not be mounted; empty if it may."""
        if not volume.cluster:
            return ""
        if volume.cluster in self._deleted or any(
            one.cluster_key == volume.cluster for one in self._work.values()
        ):
            return f"storage cluster {volume.cluster} of volume {volume.name} is being deleted"
        return ""

    def on_cluster(self, cluster: StorageCluster) -> None:
        if cluster.state is ClusterState.ALIVE:
            self._deleted.pop(cluster.key, None)
            return
        if cluster.key not in self._deleted:
            log.info(
                "Noticed the deletion of a storage cluster", cluster=cluster.key, state=cluster.state.value
            )
        self._deleted[cluster.key] = cluster
        self._wake.set()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            while True:
                await self._wait()
                try:
                    await self._find_work()
                except KubeletxError as error:
                    log.warning("Failed to begin a clean-up", err=str(error))
                for name in self._work.keys() - self._running:
                    self._running.add(name)
                    group.create_task(self._volume(name), name=f"clean up {name}")

    async def _wait(self) -> None:
        """Wait for a cluster that is deleted; while there is work, for the next round."""
        if not self._deleted and not self._work:
            await self._wake.wait()
        elif not self._wake.is_set():
            await sleep_or(self._stores.clock, ROUND_SECONDS, self._wake)
        self._wake.clear()

    async def _find_work(self) -> None:
        """Begin the clean-up of each volume here that belongs to a deleted cluster."""
        new = {
            local.volume.name: VolumeCleanup(
                volume=local.volume, cluster=self._deleted[local.volume.cluster].subject
            )
            for local in self._local().volumes()
            if local.volume.cluster in self._deleted and local.volume.name not in self._work
        }
        if new:
            self._work |= new
            await self._save()
        busy = {one.cluster_key for one in self._work.values()}
        for key, cluster in list(self._deleted.items()):
            if cluster.state is ClusterState.GONE and key not in busy:
                del self._deleted[key]

    async def _volume(self, name: str) -> None:
        """Do the steps of one volume, until one must be tried again later."""
        try:
            while True:
                before = self._work[name]
                looked_up, result = await self._step(before)
                after = after_step(looked_up, result)
                if after.step is CleanupStep.DONE:
                    await self._save(without=name)
                    del self._work[name]
                    log.info("Cleaned up a volume", volume=name, cluster=after.cluster_key)
                    return
                self._work[name] = after
                await self._save()
                if after.step is before.step:
                    return
        except KubeletxError as error:  # of the journal
            log.warning("Paused a clean-up", volume=name, err=str(error))
        finally:
            self._running.discard(name)

    async def _step(self, state: VolumeCleanup) -> tuple[VolumeCleanup, StepResult]:
        """Do the present step; returns the state with what was looked up, and the result."""
        name = state.volume.name
        try:
            async with within(self._step_seconds, f"step {state.step.value} did not end"):
                if state.step in _OF_OBJECTS and not state.is_looked_up:
                    state = await self._objects.look_up(state)
                is_done = await self._do(state)
        except KubeletxError as error:
            log.warning("Failed a step of a clean-up", volume=name, step=state.step.value, err=str(error))
            if not state.tries and state.step in _NECESSARY:
                await self._report_blocked(state, error)
            return state, StepResult.UNKNOWN if isinstance(error, TimedOut) else StepResult.FAILED
        if is_done and state.step is CleanupStep.UNMOUNT and not state.is_unmapped:
            await self._report(state, CleanupStep.UNMAP)  # nothing of the volume is left on the node
        if is_done:
            await self._report(state, state.step)
        return state, StepResult.DONE

    async def _do(self, state: VolumeCleanup) -> bool:
        """Do the present step; returns False if there was nothing to do."""
        match state.step:
            case CleanupStep.DELETE_CLAIM:
                return await self._objects.delete_claim(state)
            case CleanupStep.DELETE_VOLUME:
                return await self._objects.delete_volume(state)
            case CleanupStep.REMOVE_RECORD:
                editor, name = self._stores.editor, state.volume.name
                own = [one for one in await editor.items(name) if one.node == self._node]
                await strike(editor, name, own)
            case _:
                await self._local().drop(state.volume, why=_WHY, force=True)
        return True

    async def _report(self, state: VolumeCleanup, step: CleanupStep) -> None:
        reason, words = _WORDS[step]
        claim = f"{state.claim_namespace}/{state.claim_name}"
        message = f"Node {self._node} {words.format(volume=state.volume.name, claim=claim)}"
        await self._stores.events.of_object(state.cluster, reason=reason, message=message)

    async def _report_blocked(self, state: VolumeCleanup, error: KubeletxError) -> None:
        message = f"Node {self._node} cannot remove volume {state.volume.name} yet, and tries again: {error}"
        await self._stores.events.of_object(state.cluster, reason=BLOCKED, message=message)

    async def _save(self, without: str = "") -> None:
        """Write the journal. `without`: name of a volume that is done."""
        async with self._saving:
            await self._journal.save([one for name, one in self._work.items() if name != without])


class VolumeObjects:
    """Claims and PersistentVolumes of a cluster.

    Only those of the agent's own driver are deleted, and only after a look-up: deletions carry the UID.
    """

    def __init__(self, client: KubeClient) -> None:
        """`client`: its identity may get and delete PersistentVolumes and claims."""
        self._client = client

    async def look_up(self, state: VolumeCleanup) -> VolumeCleanup:
        """Return the state with the claim and the PersistentVolume of the volume."""
        found = await read_volume(self._client, state.volume.name)
        looked_up = msgspec.structs.replace(state, is_looked_up=True)
        if found is None or (found.spec.flex_volume or {}).get("driver") != DRIVER:
            return looked_up
        claim = found.spec.claim_ref or ClaimReference()
        return msgspec.structs.replace(
            looked_up,
            claim_namespace=claim.namespace,
            claim_name=claim.name,
            claim_uid=claim.uid,
            volume_uid=found.metadata.uid,
        )

    async def delete_claim(self, state: VolumeCleanup) -> bool:
        """Delete the claim; returns False if there was none. Pods that still run keep it, marked as deleted."""
        if not state.claim_name:
            return False
        path = PERSISTENT_VOLUME_CLAIMS.path(state.claim_namespace, state.claim_name)
        return await self._delete(path, state.claim_uid)

    async def delete_volume(self, state: VolumeCleanup) -> bool:
        """Delete the PersistentVolume; returns False if there was none."""
        if not state.volume_uid:
            return False
        return await self._delete(PERSISTENT_VOLUMES.path(name=state.volume.name), state.volume_uid)

    async def _delete(self, path: str, uid: str) -> bool:
        try:
            await self._client.delete(path, uid=uid)
        except (NotFound, Conflict):  # Conflict: another object has the name now
            return False
        return True


class _Content(msgspec.Struct, frozen=True):
    volumes: tuple[VolumeCleanup, ...] = ()
    version: int = VERSION


class CleanupJournal:
    """The unfinished clean-ups of this node, in one file. `path`: in a directory that only root can write.

    It is separate from the journals of the volumes: the clean-up goes on after those are gone, and after a restart of
    the agent during which the storage cluster, its claims and PersistentVolumes were deleted.
    """

    def __init__(self, path: Path, blocking: Blocking) -> None:
        self._path = path
        self._blocking = blocking

    async def load(self) -> tuple[VolumeCleanup, ...]:
        """Return the unfinished clean-ups; none if there is no file. Raises Unavailable if it cannot be read.

        A damaged file is set aside: clusters that are being deleted still exist, since records name them, and begin again.
        """
        without = "; unmount the volumes of deleted storage clusters by hand then"
        content = await self._blocking(lambda: read_json(self._path, _Content, VERSION, without=without))
        return content.volumes if content is not None else ()

    async def save(self, volumes: Iterable[VolumeCleanup]) -> None:
        """Write the unfinished clean-ups; they are on disk when it returns. Raises Unavailable."""
        data = msgspec.json.encode(_Content(tuple(volumes)))
        try:
            await self._blocking(replace_file, self._path, data)
        except OSError as error:
            raise Unavailable(f"{self._path} cannot be written: {error.strerror or error}") from error
