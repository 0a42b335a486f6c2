"""`VolumeSteps`: the steps that make a volume available to a pod, and their undoing.

    prepare   driver ready ─► lock ─► attach, mountdevice (with attach) ─► mount
    release   lock ─► unmount ─► unmountdevice, detach (with attach, last pod)

If a step of `prepare` fails, the steps that were begun are undone in reverse before it raises, with a deadline of their
own, since a pod that never ran is not released. What cannot be undone stays in the journal for `release`. If
the caller is cancelled, nothing is undone: the next call for the volume continues from the journal.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final
from weakref import WeakValueDictionary

import structlog
from msgspec.structs import replace

from kubeletx.api import KubeletxError, TimedOut, Unavailable, VolumeHost, VolumeRequest

from ..errors import DriverFailed, invalid_volume, volume_error
from .calls import VolumeCalls
from .driver import FlexDriver
from .drivers import FlexDrivers
from .journal import DeviceStage, FlexEntry, FlexJournal, UseState, entry_key, new_entry, new_use
from .node import Node
from .options import global_directory

log = structlog.get_logger(__name__)

UNDO_SECONDS: Final = 15.0
_ALL_DONE: Final = (UseState.WAITING, UseState.DONE)


class VolumeSteps:
    """Steps of all volumes; the steps of one volume follow each other."""

    def __init__(
        self,
        *,
        drivers: FlexDrivers,
        journal: FlexJournal,
        node: Node,
        host: VolumeHost,
    ) -> None:
        self._drivers = drivers
        self._journal = journal
        self._node = node
        self._calls = VolumeCalls(journal, node)
        self._host = host
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def prepare(self, request: VolumeRequest, until: float) -> tuple[FlexEntry, FlexDriver]:
        """Make the volume available; return its entry and driver. `until`: deadline in the event loop's time."""
        driver = await self._drivers.get(request.driver, until)
        if request.is_block:
            _check_block(request, driver)
        await self._check(request)
        known = self._journal.find(request.target)
        attach = known.attach if known is not None else driver.capabilities.attach
        async with self._turn(self._key(request, attach=attach), request, until):
            entry = self._entry(request, attach=attach)
            try:
                return await self._prepare(entry, request, driver, until), driver
            except KubeletxError as error:
                await self._undo(request, driver, error)
                raise

    async def release(self, request: VolumeRequest, until: float) -> None:
        """Undo `prepare` with what the journal and the mount table tell; succeeds if nothing is there."""
        await self._check(request)
        known = self._journal.find(request.target)
        key = known.key if known is not None else self._key(request, attach=True)
        async with self._turn(key, request, until):
            entry = self._journal.find(request.target) or await self._adopted(request)
            if entry is not None:
                driver = await self._drivers.find(entry.driver, until)
                await self._put_away(entry, request.target, driver, until)
        await self._node.remove_directory(request.target)

    async def expand(self, request: VolumeRequest, size_bytes: int, until: float) -> int:
        """Expand the prepared volume; return its new size in bytes."""
        driver = await self._drivers.get(request.driver, until)
        entry = self._journal.find(request.target)
        if entry is None:
            raise volume_error(Unavailable, request.volume_name, "it is not prepared, and cannot be expanded")
        async with self._turn(entry.key, request, until):
            return await self._calls.expand(entry, request, driver, size_bytes, until)

    async def close(self) -> None:
        """Stop checks and formats of devices; the journal has what was begun."""
        works = list(self._calls.working.values())
        for work in works:
            work.cancel()
        await asyncio.gather(*works, return_exceptions=True)

    async def _check(self, request: VolumeRequest) -> None:
        """Raise Unavailable if the volume has an entry that cannot be read."""
        await self._journal.check(self._key(request, attach=attach) for attach in (True, False))

    @asynccontextmanager
    async def _turn(self, key: str, request: VolumeRequest, until: float) -> AsyncIterator[None]:
        """Wait for earlier steps of the volume, and hold its lock. `key`: of its entry.

        A check or format of the device that outlasts its call holds the lock until it has ended.
        """
        lock = self._locks.get(key)
        if lock is None:
            lock = self._locks[key] = asyncio.Lock()
        try:
            async with asyncio.timeout_at(until):
                await lock.acquire()
        except TimeoutError:
            raise volume_error(
                TimedOut, request.volume_name, "earlier calls for it have not ended; it is tried again"
            ) from None
        try:
            yield
        finally:
            if (work := self._calls.working.get(key)) is not None:
                work.add_done_callback(lambda _: lock.release())
            else:
                lock.release()

    async def _prepare(
        self, entry: FlexEntry, request: VolumeRequest, driver: FlexDriver, until: float
    ) -> FlexEntry:
        if entry.attach:
            self._calls.check_sharing(entry, request)
            if self._calls.is_outdated(entry, request):
                await self._put_away(entry, request.target, driver, until)
                entry = self._entry(request, attach=True)
            entry = await self._calls.bring_up(entry, request, driver, until)
        return await self._calls.mount(entry, request, driver, until)

    async def _undo(self, request: VolumeRequest, driver: FlexDriver, error: KubeletxError) -> None:
        """Undo the steps of a failed `_prepare`; log a failure, and add it to the error's message."""
        entry = self._journal.find(request.target)
        if entry is None or entry.key in self._calls.working:
            return
        until = asyncio.get_running_loop().time() + UNDO_SECONDS
        is_detached = isinstance(error, DriverFailed) and entry.stage is DeviceStage.ATTACHING
        try:
            await self._put_away(entry, request.target, driver, until, is_detached=is_detached)
        except KubeletxError as second:
            log.warning("Failed to undo a failed mount", volume=request.volume_name, err=str(second))
            error.message += f"; undoing it failed, too: {second}"

    async def _put_away(
        self,
        entry: FlexEntry,
        target: str,
        driver: FlexDriver,
        until: float,
        *,
        is_detached: bool = False,
    ) -> None:
        """Unmount the volume from one pod, and take its device down if no other pod uses it."""
        use = entry.uses[target]
        if use.state not in _ALL_DONE:
            entry = await self._journal.put(
                entry.with_use(replace(use, state=UseState.UNMOUNTING)), is_release=True
            )
            await self._calls.unmount(entry, target, driver, until)
        if not entry.attach:
            await self._journal.remove(entry.key)
            return
        entry = entry.with_use(replace(use, state=UseState.DONE))
        await self._calls.take_down(entry, target, driver, until, is_detached=is_detached)

    def _key(self, request: VolumeRequest, *, attach: bool) -> str:
        return entry_key(request.driver, request.volume_name if attach else request.target)

    def _directory(self, request: VolumeRequest) -> str:
        return global_directory(self._host.plugins_directory, request.driver, request.volume_name)

    def _entry(self, request: VolumeRequest, *, attach: bool) -> FlexEntry:
        """Return the entry of the volume with a use of the request, which may be new and is then not stored yet."""
        fresh = new_entry(
            request, attach=attach, global_directory=self._directory(request), node=self._host.node_name
        )
        known = self._journal.get(fresh.key)
        if known is None:
            return fresh
        if known.stage is DeviceStage.NONE and not known.uses:  # kept only for an interrupted format
            is_same = known.fingerprint == fresh.fingerprint
            return replace(fresh, is_formatting=known.is_formatting and is_same)
        return known if request.target in known.uses else known.with_use(new_use(request))

    async def _adopted(self, request: VolumeRequest) -> FlexEntry | None:
        """Return an entry for what the mount table shows of a volume that is not in the journal; None: nothing."""
        is_mount = await self._node.find_mount(request.target) is not None
        directory = self._directory(request)
        has_device = await self._node.find_mount(directory) is not None
        if not is_mount and not has_device:
            return None
        state = UseState.MOUNTED if is_mount else UseState.WAITING
        use = replace(new_use(request), state=state, is_mount=is_mount or None)
        known = self._journal.get(self._key(request, attach=True))
        if known is not None:
            return known.with_use(use)
        entry = new_entry(request, attach=has_device, global_directory=directory, node=self._host.node_name)
        stage = DeviceStage.MOUNTED if has_device else DeviceStage.NONE
        return replace(entry.with_use(use), stage=stage)


def _check_block(request: VolumeRequest, driver: FlexDriver) -> None:
    """Raise InvalidPod if the driver cannot give a pod the device itself."""
    if not driver.capabilities.block_volumes or driver.capabilities.attach:
        raise invalid_volume(
            request.volume_name,
            "volumeMode",
            f"driver {driver.name} has no block volumes",
            "use volumeMode Filesystem, or another driver",
        )
