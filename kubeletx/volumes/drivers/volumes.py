"""`DriverVolumes`: prepares and releases the volumes of pods that volume drivers serve.

Each volume has a task of its own for each step, so that a driver that hangs delays neither the other volumes of its pod
nor the pod's files. Steps of one volume follow each other. The pod's journal is written before the driver is called.

    prepare   journal (all volumes of the pod) ─► for each volume: secret ─► driver ─► checks ─► fsGroup ─► journal
    release   journal ─► for each volume, the last one first: driver ─► journal

A volume that was prepared before is not prepared again, also after a restart of the agent, as long as the machine has
not been rebooted and the volume is still mounted.
"""

from __future__ import annotations

import asyncio
import errno
import os
import stat
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final
from weakref import WeakValueDictionary

import msgspec
import structlog
from msgspec.structs import replace

from kubeletx.api import (
    Blocking,
    KubeletxError,
    NotFound,
    PodUid,
    SourceKind,
    TimedOut,
    Unavailable,
    VolumeDriver,
    VolumeRequest,
    VolumeStats,
)
from kubeletx.api.names import Event
from kubeletx.linux.mounts import find_mount

from ..files.ownership import set_group
from ..files.safe_paths import make_private
from ..kinds.table import mount_text
from ..layout import journal_path
from ..mounting import Mounter, mount_error
from ..operations import MOUNT, UNMOUNT, OperationCounts, Operations, plugin_name
from .journal import (
    EntryState,
    JournalEntry,
    PodJournal,
    has_volumes,
    read_journal,
    without_secrets,
    write_journal,
)
from .requests import DriverVolume
from .table import VolumeDrivers

log = structlog.get_logger(__name__)

Secrets = Callable[[], Awaitable[dict[str, bytes]]]
"""Reads the content of the secret that a volume names; empty if it names none."""

_IS_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
_SLOW_GROUP_SECONDS: Final = 30.0
"""Duration of applying an fsGroup after which the log says so; as in the kubelet."""


class WantedVolume(msgspec.Struct, frozen=True):
    """A volume to prepare, and the function that reads its secret."""

    volume: DriverVolume
    secrets: Secrets


class DriverVolumes:
    """Volumes of all pods that volume drivers serve."""

    def __init__(
        self,
        *,
        root_dir: Path,
        drivers: VolumeDrivers,
        files: Blocking,
        working: Blocking,
        mounter: Mounter,
        operations: OperationCounts,
        boot_id: str,
        now: Callable[[], float] = time.time,
    ) -> None:
        """`files`: threads for local files. `working`: threads for calls on volumes, which may hang.

        `boot_id`: of the running kernel. `now`: returns the time in seconds since the epoch.
        """
        self._root_dir = root_dir
        self._drivers = drivers
        self._files = files
        self._working = working
        self._mounter = mounter
        self._operations = operations
        self._boot_id = boot_id
        self._now = now
        self._pods: dict[PodUid, _PodVolumes] = {}
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self.prepared = asyncio.Event()
        """Set when a volume has become ready; the task that waits for it clears it."""

    @property
    def journals(self) -> dict[PodUid, PodJournal]:
        """Journals of the pods that have volumes of drivers and were prepared or released by this process."""
        return {uid: pod.journal for uid, pod in self._pods.items() if pod.journal.entries}

    async def prepare(
        self, uid: PodUid, wanted: Sequence[WantedVolume], seconds: float
    ) -> dict[str, JournalEntry]:
        """Prepare the volumes, all at the same time; return their entries by volume name.

        Raises the first error after all calls have ended. Raises TimedOut, with the names of the volumes, when calls
        have not ended after `seconds`; they continue, and a later call of this method waits for them.
        """
        pod = await self._pod(uid)
        missing = [
            wanted_volume
            for wanted_volume in wanted
            if not await self._is_ready(pod, wanted_volume.volume.request)
        ]
        if missing:
            for missing_volume in missing:
                pod.put(await self._new_entry(pod, missing_volume.volume.request))
            await self._write(uid, pod)
            tasks = [self._start(uid, pod, missing_volume) for missing_volume in missing]
            await _all_ended(tasks, seconds, "prepared")
        names = [wanted_volume.volume.request.name for wanted_volume in wanted]
        return {name: pod.journal.entries[name] for name in names if name in pod.journal.entries}

    async def release(self, uid: PodUid, seconds: float) -> None:
        """Release all volumes in the pod's journal. Succeeds if it has none.

        Raises the first error after all calls have ended, and TimedOut as `prepare` does.
        """
        pod = await self._pod(uid)
        if pod.journal.entries:
            for entry in pod.journal.entries.values():
                if entry.state is not EntryState.RELEASING:
                    pod.put(replace(entry, state=EntryState.RELEASING, since=self._now()))
            await self._write(uid, pod, is_release=True)
            tasks = [self._start_release(uid, pod, name) for name in reversed(pod.journal.entries)]
            await _all_ended(tasks, seconds, "released")
        self._pods.pop(uid, None)

    def has_volumes(self, uid: PodUid) -> bool:
        """Return True if the pod has a journal, or directories of volumes whose drivers are there. Blocks."""
        return has_volumes(self._root_dir, uid, self._is_served)

    def problem(self, uid: PodUid, name: str) -> str:
        """Return the error of the last call for a volume; empty if it succeeded or there was none."""
        pod = self._pods.get(uid)
        return pod.problems.get(name, "") if pod is not None else ""

    async def stats(self, uid: PodUid, name: str) -> VolumeStats:
        """Return what the driver of a prepared volume measures. Raises the errors of the driver, and NotFound."""
        entry = self._ready_entry(uid, name)
        return await self._driver_of(entry).stats(entry.request)

    async def expand(self, uid: PodUid, name: str, size_bytes: int) -> int:
        """Expand the file system of a prepared volume; returns its size.

        Raises the errors of the driver, and NotFound.
        """
        entry = self._ready_entry(uid, name)
        async with self._lock(entry.request):
            return await self._driver_of(entry).expand(entry.request, size_bytes)

    async def close(self) -> None:
        """Cancel the running calls. The volumes stay as they are; the next agent process continues."""
        tasks = [task for pod in self._pods.values() for task in pod.tasks.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # --- steps ---

    def _ready_entry(self, uid: PodUid, name: str) -> JournalEntry:
        pod = self._pods.get(uid)
        entry = pod.journal.entries.get(name) if pod is not None else None
        if entry is None or entry.state is not EntryState.READY:
            raise NotFound(f"volume {name} of pod {uid} is not prepared")
        return entry

    def _driver_of(self, entry: JournalEntry) -> VolumeDriver:
        request = entry.request
        return self._drivers.for_release(entry.driver, request.source, request.driver).driver

    def _is_served(self, source: str, driver: str) -> bool:
        return self._drivers.find(source, driver) is not None

    async def _pod(self, uid: PodUid) -> _PodVolumes:
        if (pod := self._pods.get(uid)) is None:
            journal = await self._files(read_journal, self._root_dir, uid, self._is_served)
            pod = self._pods.setdefault(uid, _PodVolumes(journal))
        return pod

    async def _is_ready(self, pod: _PodVolumes, request: VolumeRequest) -> bool:
        """Return True if the volume was prepared with this request and is still there."""
        entry = pod.journal.entries.get(request.name)
        if entry is None or entry.state is not EntryState.READY or not _is_same(entry.request, request):
            return False
        if request.name in pod.seen:
            return True
        if entry.boot_id != self._boot_id or not await self._working(self._is_there, entry):
            return False
        pod.seen.add(request.name)
        return True

    def _is_there(self, entry: JournalEntry) -> bool:
        if entry.is_mount:
            return find_mount(self._mounter.mounts(Path(entry.path)), Path(entry.path)) is not None
        return Path(entry.path).exists()

    async def _new_entry(self, pod: _PodVolumes, request: VolumeRequest) -> JournalEntry:
        """Return the entry of a volume that is prepared now. Its files have the pod's fsGroup if it still is mounted."""
        driver = self._drivers.find(request.source, request.driver)
        before = pod.journal.entries.get(request.name)
        has_group = (
            before is not None
            and before.has_group
            and before.request.fs_group == request.fs_group
            and before.boot_id == self._boot_id
            and await self._working(self._is_there, before)
        )
        return JournalEntry(
            request=without_secrets(request),
            driver=driver.name if driver is not None else "",
            has_group=has_group,
            since=self._now(),
        )

    def _start(self, uid: PodUid, pod: _PodVolumes, wanted: WantedVolume) -> asyncio.Task[None]:
        request = wanted.volume.request
        running = pod.tasks.get(request.name)
        if running is not None and not running.done() and pod.preparing.get(request.name) == request:
            return running
        pod.preparing[request.name] = request
        return pod.start(
            request.name, self._prepare(uid, pod, wanted), f"prepare volume {uid}/{request.name}"
        )

    def _start_release(self, uid: PodUid, pod: _PodVolumes, name: str) -> asyncio.Task[None]:
        running = pod.tasks.get(name)
        if running is not None and not running.done():
            if name not in pod.preparing:
                return running
            running.cancel()
        pod.preparing.pop(name, None)
        return pod.start(name, self._release(uid, pod, name), f"release volume {uid}/{name}")

    async def _prepare(self, uid: PodUid, pod: _PodVolumes, wanted: WantedVolume) -> None:
        request, field = wanted.volume.request, wanted.volume.field
        done = Operations()
        try:
            with done.timed(plugin_name(request.source, request.driver), MOUNT):
                await self._call_driver(uid, pod, wanted)
        except KubeletxError as error:
            pod.problems[request.name] = str(error)
            error.message = mount_text(field.rpartition(".")[0], request.name, str(error))
            raise
        finally:
            self._operations.add(done)

    async def _call_driver(self, uid: PodUid, pod: _PodVolumes, wanted: WantedVolume) -> None:
        request, field = wanted.volume.request, wanted.volume.field
        driver_entry = self._drivers.find(request.source, request.driver)
        if driver_entry is None:  # the plugin has gone since the pod was looked at
            raise Unavailable(f"{field}: no volume driver for {request.served_by} is there now")
        entry = pod.journal.entries.get(request.name)
        if entry is None or entry.state is not EntryState.PREPARING:  # a release of the same pod came between
            pod.put(await self._new_entry(pod, request))
            await self._write(uid, pod)
        await self._working(_make_target, request)
        secrets = await wanted.secrets()
        async with self._lock(request):
            ready = await driver_entry.driver.prepare(replace(request, secrets=secrets))
        entry = JournalEntry(
            request=without_secrets(request),
            driver=driver_entry.name,
            state=EntryState.READY,
            ready=ready,
            boot_id=self._boot_id,
            has_group=pod.journal.entries[request.name].has_group,
            since=self._now(),
        )
        entry = replace(entry, is_mount=await self._working(self._check, entry, driver_entry.name))
        if ready.capabilities.fs_group and not entry.has_group and request.fs_group is not None:
            await self._apply_group(entry)
            entry = replace(entry, has_group=True)
        pod.put(entry)
        pod.seen.add(request.name)
        await self._write(uid, pod)
        self.prepared.set()

    def _check(self, entry: JournalEntry, driver: str) -> bool:
        """Check that the volume is what the driver says. Return True if its path is a mount point."""
        path, ready = entry.path, entry.ready
        assert ready is not None
        try:
            mode = Path(path).stat().st_mode
        except OSError as error:
            raise Unavailable(
                f"volume driver {driver} has prepared the volume, but {path} cannot be read: {error.strerror}",
                reason=Event.FAILED_MOUNT,
            ) from error
        is_right = stat.S_ISBLK(mode) if ready.kind is SourceKind.BLOCK_DEVICE else not stat.S_ISBLK(mode)
        if not is_right or (entry.request.is_block and ready.kind is SourceKind.DIRECTORY):
            wanted = "a block device" if entry.request.is_block else f"a {ready.kind.value}"
            raise Unavailable(
                f"volume driver {driver} has prepared {path}, which is not {wanted}",
                reason=Event.FAILED_MOUNT,
            )
        return find_mount(self._mounter.mounts(Path(path)), Path(path)) is not None

    async def _apply_group(self, entry: JournalEntry) -> None:
        request, ready = entry.request, entry.ready
        assert ready is not None
        if request.read_only or ready.read_only or ready.kind is not SourceKind.DIRECTORY:
            return
        slow = partial(
            log.warning,
            "Setting the group of a volume takes long",
            pod_uid=request.pod.uid,
            volume=request.name,
            fix="use fsGroupChangePolicy: OnRootMismatch",
        )
        timer = asyncio.get_running_loop().call_later(_SLOW_GROUP_SECONDS, slow)
        try:
            await self._working(_set_group, entry)
        finally:
            timer.cancel()

    async def _release(self, uid: PodUid, pod: _PodVolumes, name: str) -> None:
        entry = pod.journal.entries[name]
        request = entry.request
        driver_entry = self._drivers.for_release(entry.driver, request.source, request.driver)
        done = Operations()
        try:
            with done.timed(plugin_name(request.source, request.driver), UNMOUNT):
                async with self._lock(request):
                    await driver_entry.driver.release(request)
        except KubeletxError as error:
            pod.problems[name] = str(error)
            raise
        finally:
            self._operations.add(done)
        await self._working(_remove_target, request)
        pod.drop(name)
        await self._write(uid, pod, is_release=True)

    def _lock(self, request: VolumeRequest) -> asyncio.Lock:
        """Return the lock of the volume, which several pods may use, and a pod under several names."""
        key = f"{request.served_by} {request.persistent_volume or request.target}"
        lock = self._locks.get(key)
        if lock is None:
            lock = self._locks[key] = asyncio.Lock()
        return lock

    async def _write(self, uid: PodUid, pod: _PodVolumes, *, is_release: bool = False) -> None:
        """Write the pod's journal; concurrent calls follow each other, and the last one writes the newest state.

        `is_release`: continue if the disk is full. The older journal has all volumes, and a release may free space.
        """
        async with pod.writing:
            if pod.written == pod.journal:
                return
            journal = pod.journal
            try:
                await self._files(write_journal, self._root_dir, uid, journal)
            except OSError as error:
                path = journal_path(self._root_dir, uid)
                if not is_release or error.errno not in _IS_FULL:
                    fix = "free space on its disk" if error.errno in _IS_FULL else "it is tried again"
                    raise Unavailable(
                        f"{path} cannot be written: {error.strerror}; {fix}", reason=Event.FAILED_MOUNT
                    ) from error
                if not pod.is_warned:
                    pod.is_warned = True
                    log.warning(
                        "Failed to update a journal of volumes, releasing them anyway",
                        pod_uid=uid,
                        path=str(path),
                        err=str(error),
                    )
                return
            pod.written = journal


class _PodVolumes:
    """Volumes of one pod: its journal, and the running task of each volume."""

    def __init__(self, journal: PodJournal) -> None:
        self.journal = journal
        self.written = journal
        self.writing = asyncio.Lock()
        self.is_warned = False
        """The log says that the disk is full."""
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self.preparing: dict[str, VolumeRequest] = {}
        """Requests of the running preparations, by volume name."""
        self.problems: dict[str, str] = {}
        """Last error of a volume, by name; removed by the next success."""
        self.seen: set[str] = set()
        """Names of volumes that this process has found prepared."""

    def put(self, entry: JournalEntry) -> None:
        """Add or replace an entry of the journal."""
        self.journal = self.journal.with_entry(entry)
        if entry.state is EntryState.READY:
            self.problems.pop(entry.request.name, None)

    def drop(self, name: str) -> None:
        """Remove an entry of the journal."""
        self.journal = self.journal.without(name)
        self.seen.discard(name)

    def start(self, name: str, work: Awaitable[None], task_name: str) -> asyncio.Task[None]:
        """Start the next step of a volume, after its present one has ended."""
        earlier = self.tasks.get(name)
        task = self.tasks[name] = asyncio.create_task(_after(earlier, work), name=task_name)
        task.add_done_callback(lambda done: self._ended(name, done))
        return task

    def _ended(self, name: str, task: asyncio.Task[None]) -> None:
        if self.tasks.get(name) is task:
            del self.tasks[name]
            self.preparing.pop(name, None)
        if not task.cancelled():
            task.exception()  # a caller that gave up does not look at it


async def _after(earlier: asyncio.Task[None] | None, work: Awaitable[None]) -> None:
    try:
        if earlier is not None:
            await asyncio.wait((earlier,))
        await work
    finally:
        if asyncio.iscoroutine(work):
            work.close()  # cancelled before it began


async def _all_ended(tasks: Iterable[asyncio.Task[None]], seconds: float, verb: str) -> None:
    tasks = tuple(tasks)
    done, late = await asyncio.wait(tasks, timeout=seconds)
    errors = [error for task in tasks if task in done and (error := _error_of(task)) is not None]
    if errors:
        raise errors[0]
    if late:
        names = ", ".join(sorted(task.get_name().rpartition("/")[2] for task in late))
        raise TimedOut(
            f"volumes {names} have not been {verb} within {seconds:.0f} s; their volume drivers have not finished",
            reason=Event.FAILED_MOUNT,
        )


def _error_of(task: asyncio.Task[None]) -> KubeletxError | None:
    if task.cancelled():
        name = task.get_name().rpartition("/")[2]
        return Unavailable(
            f"volume {name}: the call of its driver was cancelled; it is repeated", reason=Event.FAILED_MOUNT
        )
    error = task.exception()
    if isinstance(error, OSError):
        return mount_error("volume", error)
    if error is not None and not isinstance(error, KubeletxError):
        raise error
    return error


def _is_same(one: VolumeRequest, other: VolumeRequest) -> bool:
    """Return True if a volume that was prepared for one request serves the other; its size may have changed."""
    return without_secrets(replace(one, capacity_bytes=0)) == without_secrets(
        replace(other, capacity_bytes=0)
    )


def _make_target(request: VolumeRequest) -> None:
    """Make the target's directory. Raises Unavailable if a link leads elsewhere: the driver would mount there."""
    target = Path(request.target)
    made = target.parent if request.is_block else target
    make_private(made)
    if os.path.realpath(made.parent) != str(made.parent) or made.is_symlink():
        raise Unavailable(
            f"{made} is a link, or is reached through one; remove it", reason=Event.FAILED_MOUNT
        )


def _remove_target(request: VolumeRequest) -> None:
    """Remove the directory of a released volume and those above it that are empty now, up to the pod's directory.

    What is mounted there or not empty is left to the sweep.
    """
    target = Path(request.target)
    with suppress(OSError):
        target.rmdir()
    if request.is_block:  # the sweep removes only the directory of the other volumes
        for path in (target.parent, target.parent.parent):
            with suppress(OSError):
                path.rmdir()


def _set_group(entry: JournalEntry) -> None:
    policy = entry.request.fs_group_change_policy
    set_group(Path(entry.path), entry.request.fs_group, only_on_mismatch=policy == "OnRootMismatch")
