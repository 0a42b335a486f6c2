"""`Operations`: mount and unmount of the driver, and the volumes of this node for the agent's other tasks.

Each volume that is on this node, or is being attached or detached, has a worker (`worker`). This class finds the worker
of a call, limits the time of the call, and starts workers for journals of a former run and for mounts whose journal is
lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

import msgspec
import structlog

from kubeletx.api import Conflict, TimedOut

from ..attachments.node import LocalVolume
from ..values import Holder, MountRequest, StorageVolume
from .adopt import FoundVolume, find_volumes, rebuild_journal
from .journal import Mark, VolumeJournal
from .paths import TargetPath, global_directory
from .plan import StepKind, entered_holders
from .progress import recovered
from .worker import AgentTools, VolumeWorker

log = structlog.get_logger(__name__)

LAST_STEP_SECONDS: Final = 10.0
"""Additional time of a mount whose last step has begun: the kubelet would take its result for a success."""


class Operations:
    """Volumes of this node. Implements `LocalVolumes`."""

    def __init__(self, tools: AgentTools) -> None:
        self._tools = tools
        self._workers: dict[str, VolumeWorker] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def mount(self, request: MountRequest, target: TargetPath) -> None:
        """Make the volume available at the target. Raises KubeletxErrors; TimedOut: it continues, repeat the call."""
        await self._tools.blocking(
            self._tools.namespace.check_directory, target.kubelet_root, target.directory
        )
        self._check_target(request.volume.name, target.path)
        worker = self._worker(request.volume, target)
        with worker.in_use():
            task = asyncio.create_task(
                worker.mount(request, self._holder(request)), name=f"mount-{worker.name}"
            )
            try:
                await asyncio.wait((task,), timeout=self._tools.mount_seconds)
                if worker.step is not None and worker.step.kind in (StepKind.BIND, StepKind.CONFIRM):
                    await asyncio.wait((task,), timeout=LAST_STEP_SECONDS)
                if not task.done():
                    raise _still(worker, "mount", self._tools.mount_seconds)
                task.result()
            finally:
                await _cancelled(task)

    async def unmount(self, target: TargetPath) -> None:
        """Unmount the target, and detach its volume if no other pod of this node uses it.

        Succeeds if it is not mounted.
        """
        worker = self._find_mounted_at(target.path) or self._adopt_at(target)
        if worker is None:
            return
        try:
            async with asyncio.timeout(self._tools.unmount_seconds):
                await worker.unmount(target.path)
        except TimeoutError:
            raise _still(worker, "unmount", self._tools.unmount_seconds) from None

    def volumes(self) -> Sequence[LocalVolume]:
        found = (self.find(name) for name in sorted(self._workers))
        return tuple(one for one in found if one is not None)

    def users(self, device: str) -> list[str]:
        """Return the names of the volumes that have the device and are not being detached."""
        return [
            worker.name
            for worker in self._workers.values()
            if _device(worker.journal) == device
            and (worker.journal.attached is Mark.YES or any(use.is_mounted for use in worker.journal.uses))
        ]

    def find(self, name: str) -> LocalVolume | None:
        worker = self._workers.get(name)
        if worker is None or worker.journal.is_empty:
            return None
        journal = worker.journal
        return LocalVolume(volume=journal.volume, holders=entered_holders(journal), device=_device(journal))

    def state(self) -> list[dict[str, Any]]:
        workers = sorted(self._workers.values(), key=lambda one: one.name)
        return [worker.state() for worker in workers]

    async def drop(self, volume: StorageVolume, *, why: str, force: bool = False) -> None:
        worker = self._workers.get(volume.name) or self._adopt_named(volume)
        log.info("Began to drop a volume", volume=volume.name, reason=why, force=force)
        await worker.drop(why, force=force)

    async def recover(self) -> None:
        """Bring all volumes of a former run to a known state. What fails is repeated later. Raises OSError."""
        journals = await self._tools.blocking(self._tools.store.load_all)
        table = self._tools.namespace.table()
        mounted_on = frozenset(mount.target for mount in table)
        for stored in journals:
            self._start(recovered(stored, self._tools.boot_id, mounted_on), stored=stored)
        for found in find_volumes(table, set(self._tools.kubelet_roots.values())):
            self._adopt(found)
        if self._workers:
            log.info("Found volumes of a former run", volumes=sorted(self._workers))
            waits = [
                asyncio.create_task(one.settled(), name=f"recover-{one.name}")
                for one in self._workers.values()
            ]
            await asyncio.wait(waits, timeout=self._tools.recovery_seconds)
            for one in waits:
                await _cancelled(one)

    async def close(self, grace_seconds: float) -> None:
        """Wait at most `grace_seconds` for steps that run, and end all workers. Volumes stay as they are."""
        busy = [
            asyncio.create_task(one.settled(), name=f"finish-{one.name}") for one in self._workers.values()
        ]
        if busy:
            await asyncio.wait(busy, timeout=grace_seconds)
        for task in (*busy, *self._tasks.values()):
            await _cancelled(task)

    def _holder(self, request: MountRequest) -> Holder:
        return Holder(
            node=self._tools.node,
            boot_id=self._tools.boot_id,
            pod_namespace=request.pod.namespace,
            pod=request.pod.name,
            pod_uid=request.pod.uid,
            mount_dir=request.target,
            read_only=request.read_only,
            since=self._tools.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ"),
        )

    def _check_target(self, name: str, path: str) -> None:
        """Raise Conflict if another volume is mounted, or to be mounted, at the path."""
        present = self._find_mounted_at(path)
        if present is not None and present.name != name:
            raise Conflict(f"volume {name}: volume {present.name} is mounted on {path}; unmount it first")

    def _find_mounted_at(self, path: str) -> VolumeWorker | None:
        for worker in self._workers.values():
            if any(use.holder.mount_dir == path for use in worker.journal.uses):
                return worker
        return None

    def _worker(self, volume: StorageVolume, target: TargetPath) -> VolumeWorker:
        return self._workers.get(volume.name) or self._start(self._empty_journal(volume, target.kubelet_root))

    def _empty_journal(self, volume: StorageVolume, kubelet_root: str) -> VolumeJournal:
        return VolumeJournal(
            volume=volume,
            boot_id=self._tools.boot_id,
            kubelet_root=kubelet_root,
            global_dir=global_directory(kubelet_root, volume.name),
        )

    def _adopt_at(self, target: TargetPath) -> VolumeWorker | None:
        """Start a worker for a mount whose journal is lost; None if nothing is mounted at the target."""
        for found in find_volumes(self._tools.namespace.table(), {target.kubelet_root}):
            if any(one.path == target.path for one, _ in found.binds):
                return self._adopt(found)
        return None

    def _adopt(self, found: FoundVolume) -> VolumeWorker:
        """Start a worker for a mounted volume, or add its mounts to the present one."""
        journal = rebuild_journal(
            found, self._tools.backends, node=self._tools.node, boot_id=self._tools.boot_id
        )
        worker = self._workers.get(found.name)
        if worker is None:
            log.warning(
                "Rebuilt the journal of a mounted volume", volume=found.name, backend=journal.volume.backend
            )
            return self._start(journal)
        known = {use.holder.mount_dir for use in worker.journal.uses}
        for use in journal.uses:
            if use.holder.mount_dir not in known:
                log.warning("Added a mount to a journal", volume=found.name, path=use.holder.mount_dir)
                worker.add_use(use)
        return worker

    def _adopt_named(self, volume: StorageVolume) -> VolumeWorker:
        """Start a worker for a volume without a journal, of which anything may be left."""
        roots = set(self._tools.kubelet_roots.values())
        for found in find_volumes(self._tools.namespace.table(), roots):
            if found.name == volume.name:
                return self._adopt(found)
        journal = self._empty_journal(volume, sorted(roots)[0])
        return self._start(msgspec.structs.replace(journal, attached=Mark.MAY))

    def _start(self, journal: VolumeJournal, *, stored: VolumeJournal | None = None) -> VolumeWorker:
        worker = VolumeWorker(journal, self._tools, stored=stored)
        self._workers[worker.name] = worker
        self._tasks[worker.name] = asyncio.create_task(self._run(worker), name=f"volume-{worker.name}")
        return worker

    async def _run(self, worker: VolumeWorker) -> None:
        try:
            await worker.run()
        finally:  # in the same turn of the event loop in which the worker has found no caller
            if self._workers.get(worker.name) is worker:
                del self._workers[worker.name], self._tasks[worker.name]


def _device(journal: VolumeJournal) -> str:
    """Return the device; if the journal was rebuilt, the mounted device. Empty: the volume is not attached."""
    if journal.source is not None:
        return journal.source.source
    return next((use.holder.device for use in journal.uses if use.holder.device), "")


def _still(worker: VolumeWorker, call: str, seconds: float) -> TimedOut:
    what = worker.step.kind.value if worker.step is not None else "waiting for it"
    return TimedOut(f"volume {worker.name}: still {what}; the {call} took more than {seconds:g} s; repeat it")


async def _cancelled(task: asyncio.Task[None]) -> None:
    """Cancel a task and wait for its end; errors of it are known already."""
    task.cancel()
    await asyncio.wait((task,))
    if not task.cancelled():
        task.exception()
