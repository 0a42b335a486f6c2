"""`StepRunner`: executes the steps that `plan` chooses. Each may be repeated, and has a deadline."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Final

import structlog

from kubeletx.api import Blocking, Conflict, Internal, InvalidPod, KubeletxError, within

from ..attachments.record_book import RecordBook
from ..backends.backend import AttachedSource, SourceType
from ..backends.registry import Backends
from ..device import Device
from ..mounts import Mounts
from ..values import AccessMode, Holder, HolderStatus, MountRequest, StorageVolume
from .journal import Use, VolumeJournal
from .namespace import MountNamespace
from .plan import Step, StepKind
from .progress import StepOutcome

log = structlog.get_logger(__name__)

BOOK_SECONDS: Final = 30.0
"""Deadline of one call to the attachment records."""


class StepRunner:
    """Executes steps."""

    def __init__(  # noqa: PLR0913 - all by keyword
        self,
        *,
        book: RecordBook,
        backends: Backends,
        mounts: Callable[[str], Mounts],
        device: Callable[[str, str], Device],
        namespace: MountNamespace,
        blocking: Blocking,
        sets_group: bool = False,
        users: Callable[[str], Collection[str]] = lambda _: (),
        wait_idle: Callable[[str], Awaitable[None]] | None = None,
    ) -> None:
        """`mounts`: returns the mounts of the volume with this name. `device`: a device of this volume, by its path.

        `sets_group`: the agent gives the top directory of a volume to the pod's fsGroup; False: the kubelet applies it to
        all files, which takes long on large volumes. `users`: returns the names of the volumes of this node that have a
        device. `wait_idle`: waits until no program works on the volume with this name; None: none can.
        """
        self._book = book
        self._backends = backends
        self._mounts = mounts
        self._device = device
        self._namespace = namespace
        self._blocking = blocking
        self._sets_group = sets_group
        self._users = users
        self._wait_idle = wait_idle
        self._makers: Mapping[
            StepKind, Callable[[VolumeJournal, Use, MountRequest], Awaitable[StepOutcome | None]]
        ] = {
            StepKind.TAKE: self._take,
            StepKind.ATTACH: self._attach,
            StepKind.LOOK: self._look,
            StepKind.FORMAT: self._format,
            StepKind.MOUNT: self._mount,
            StepKind.WRITABLE: self._make_writable,
            StepKind.BIND: self._bind,
            StepKind.CONFIRM: self._confirm,
        }
        self._removers: Mapping[StepKind, Callable[[VolumeJournal, Use | None], Awaitable[None]]] = {
            StepKind.UNBIND: self._unbind,
            StepKind.FINISH_FORMAT: self._finish_format,
            StepKind.UNMOUNT: self._unmount,
            StepKind.DETACH: self._detach,
            StepKind.RELEASE: self._release,
        }

    async def run(self, step: Step, journal: VolumeJournal, request: MountRequest | None) -> StepOutcome:
        """Execute the step and return its result. Raises KubeletxErrors.

        `request`: the request of the step's use; None for a removal.
        """
        use = None if step.key is None else journal.find(step.key)
        if step.kind in self._removers:
            if self._wait_idle is not None and not journal.is_forced:
                await self._wait_idle(journal.volume.name)
            await self._removers[step.kind](journal, use)
            return StepOutcome()
        if use is None or request is None:
            raise Internal(f"volume {journal.volume.name}: no request for step {step.kind.name}")
        return await self._makers[step.kind](journal, use, request) or StepOutcome()

    async def _take(self, journal: VolumeJournal, use: Use, _: MountRequest) -> StepOutcome:
        async with _limited(journal.volume):
            stored = await self._book.take(journal.volume, use.holder)
        if stored.reason:
            log.warning("Broke the lock of another holder", volume=journal.volume.name, reason=stored.reason)
        return StepOutcome(holder=stored)

    async def _attach(self, journal: VolumeJournal, use: Use, request: MountRequest) -> StepOutcome:
        volume = journal.volume
        is_read_only = set(volume.access_modes) == {AccessMode.READ_ONLY_MANY}
        source = await self._backends.get(volume.backend).attach(
            volume, read_only=is_read_only, secrets=request.secrets
        )
        if volume.is_block and source.type is not SourceType.DEVICE:
            raise InvalidPod(
                obj=f"volume {volume.name}",
                field="volumeMode",
                problem=f"backend {volume.backend} has no block devices",
                fix="use volumeMode Filesystem, or a backend with devices",
            )
        await self._note(volume, use.holder, source.source, HolderStatus.ATTACHING)
        return StepOutcome(source=source)

    async def _look(self, journal: VolumeJournal, use: Use, _: MountRequest) -> StepOutcome:
        read_only = all(one.holder.read_only for one in journal.staying)
        device = self._device(journal.volume.name, _source(journal).source)
        found = await device.look(journal.volume.fs_type, read_only=read_only)
        return StepOutcome(is_ready=bool(found))

    async def _format(self, journal: VolumeJournal, use: Use, _: MountRequest) -> None:
        device = self._device(journal.volume.name, _source(journal).source)
        await device.make(journal.volume.fs_type)

    async def _mount(self, journal: VolumeJournal, use: Use, _: MountRequest) -> StepOutcome:
        volume, source, directory = journal.volume, _source(journal), journal.global_dir
        mounts = self._mounts(volume.name)
        await self._blocking(self._namespace.make_directory, journal.kubelet_root, directory)
        if source.type is SourceType.DIRECTORY:
            return StepOutcome(is_writable=await mounts.mount_directory(source.source, directory))
        is_writable = await mounts.mount(
            source.source,
            directory,
            fs_type=source.fs_type or volume.fs_type,
            read_only=all(use.holder.read_only for use in journal.staying),
            options=(*volume.mount_options, *source.mount_options),
        )
        return StepOutcome(is_writable=is_writable)

    async def _make_writable(self, journal: VolumeJournal, use: Use, _: MountRequest) -> None:
        await self._mounts(journal.volume.name).make_writable(journal.global_dir)

    async def _bind(self, journal: VolumeJournal, use: Use, request: MountRequest) -> None:
        holder, volume, group = use.holder, journal.volume, request.fs_group
        mounts = self._mounts(volume.name)
        if volume.is_block:
            await self._blocking(self._namespace.make_file, journal.kubelet_root, holder.mount_dir)
            await mounts.bind_device(_source(journal).source, holder.mount_dir)
            return
        if self._sets_group and group is not None and not holder.read_only:
            await mounts.set_group(journal.global_dir, group)
        await mounts.bind(journal.global_dir, holder.mount_dir, read_only=holder.read_only)

    async def _confirm(self, journal: VolumeJournal, use: Use, _: MountRequest) -> None:
        await self._note(journal.volume, use.holder, _source(journal).source, HolderStatus.MOUNTED)

    async def _note(self, volume: StorageVolume, holder: Holder, device: str, status: HolderStatus) -> None:
        """Write device and status to the entry. Only Conflict is an error: the entry is gone.

        The entry alone protects the volume; the rest of it is for users.
        """
        try:
            async with _limited(volume):
                await self._book.note(volume, holder, device=device, status=status)
        except Conflict:
            raise
        except KubeletxError as error:
            log.warning("Failed to note an attachment in its record", volume=volume.name, err=str(error))

    async def _unbind(self, journal: VolumeJournal, use: Use | None) -> None:
        if use is not None:
            await self._cut(journal)
            await self._mounts(journal.volume.name).unmount(use.holder.mount_dir, lazy=journal.is_forced)
            if journal.volume.is_block:
                await self._blocking(self._namespace.remove, journal.kubelet_root, use.holder.mount_dir)

    async def _unmount(self, journal: VolumeJournal, _: Use | None) -> None:
        await self._cut(journal)
        mounts = self._mounts(journal.volume.name)
        # a volume of an earlier version may share its superblock with others, which must stay writable
        if (
            journal.is_forced
            and journal.source is not None
            and "nosharecache" in journal.source.mount_options
        ):
            await mounts.stop_writers(journal.global_dir)
        await mounts.unmount(journal.global_dir, lazy=journal.is_forced)
        await self._blocking(self._namespace.remove, journal.kubelet_root, journal.global_dir)

    async def _cut(self, journal: VolumeJournal) -> None:
        """Take the storage away before a forced unmount, which otherwise waits for it.

        Errors are expected here, as the volume is in use; the result of step DETACH counts.
        """
        if journal.is_forced and journal.volume.backend:
            try:
                await self._detach(journal, None)
            except KubeletxError as error:
                log.info("Cut the storage of a volume off", volume=journal.volume.name, err=str(error))

    async def _detach(self, journal: VolumeJournal, _: Use | None) -> None:
        volume = journal.volume
        if not volume.backend:
            return
        backend = self._backends.get(volume.backend)
        if users := await self._other_users(journal):  # two volumes of one image, of an earlier version
            log.warning("Left a device to its other users", volume=volume.name, users=users)
            return
        await backend.detach(volume, force=journal.is_forced)

    async def _other_users(self, journal: VolumeJournal) -> list[str]:
        """Return the names of other volumes of this node that have the device of this one."""
        try:
            found = await self._backends.get(journal.volume.backend).find(journal.volume)
        except KubeletxError:  # of a device whose daemon has ended; no other volume has that
            return []
        users = self._users(found.source) if found is not None else ()
        return sorted(name for name in users if name != journal.volume.name)

    async def _release(self, journal: VolumeJournal, use: Use | None) -> None:
        if use is not None:
            async with _limited(journal.volume):
                await self._book.release(journal.volume, use.holder)

    async def _finish_format(self, journal: VolumeJournal, _: Use | None) -> None:
        """Format the device again, once, after the agent was killed while mkfs ran.

        Half a file system would be refused later. The device was blank, and only this node can have written to it as
        long as an entry of this node is in its record.
        """
        volume = journal.volume
        try:
            async with _limited(volume):
                is_ours = any([await self._book.holds(volume, use.holder) for use in journal.leaving])
            source = await self._backends.get(volume.backend).find(volume) if is_ours else None
            if source is not None and not await self._other_users(journal):
                await self._device(volume.name, source.source).make(volume.fs_type, force=True)
        except KubeletxError as error:
            log.error("Failed to finish an interrupted format", volume=volume.name, err=str(error))


def _source(journal: VolumeJournal) -> AttachedSource:
    if journal.source is None:
        raise Internal(f"volume {journal.volume.name}: its journal has no device")
    return journal.source


def _limited(volume: StorageVolume) -> AbstractAsyncContextManager[None]:
    """Limit the time of a call to the attachment records."""
    return within(BOOK_SECONDS, f"volume {volume.name}: the attachment records did not answer")
