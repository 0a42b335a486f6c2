"""`FlexJournal`: what drivers have done, or may have done, for each volume: a file each in ``STATE/volumes``.

A volume of a driver with attach has one entry for all its pods of the node, and one device:

    ATTACHING ─► ATTACHED ─► MOUNTING ─► MOUNTED ─► UNMOUNTING ─► DETACHING ─► removed

A volume of a driver without attach has an entry for each pod, in stage NONE. In both, each pod has a use:

    WAITING ─► MOUNTING ─► MOUNTED ─► UNMOUNTING ─► removed, or DONE until the device is detached

A state whose name ends in ING says that its step was begun: it may have been done, in part or not at all.

A file is on disk before its step is begun, so that a volume is released after a crash at any step, also if the options
of the volume are lost. A damaged file is set aside: `release` then relies on the mount table. A file that cannot be
read now, or that a newer version has written, is kept, and blocks only its volume.
"""

from __future__ import annotations

import enum
import errno
import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec
import structlog
from msgspec.structs import replace

from kubeletx.api import Blocking, Unavailable, VolumeRequest
from kubeletx.api.names import Event
from kubeletx.linux.json_files import JsonFiles

from ..errors import file_error
from .options import fingerprint

log = structlog.get_logger(__name__)

VERSION: Final = 1
_IS_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


class DeviceStage(enum.Enum):
    """Progress of the device of a volume. See the module."""

    NONE = "none"
    ATTACHING = "attaching"
    ATTACHED = "attached"
    MOUNTING = "mounting"
    MOUNTED = "mounted"
    UNMOUNTING = "unmounting"
    DETACHING = "detaching"


class UseState(enum.Enum):
    """Progress of one pod's use of a volume. See the module."""

    WAITING = "waiting"
    MOUNTING = "mounting"
    MOUNTED = "mounted"
    UNMOUNTING = "unmounting"
    DONE = "done"


class VolumeUse(msgspec.Struct, frozen=True, kw_only=True):
    """One pod's use of a volume. `target`: path at which the pod gets it. `pod`: as NAMESPACE/NAME.

    `is_mount`: the target was a mount point when the driver had mounted it; None: the driver has not.
    """

    target: str
    pod_uid: str
    pod: str
    read_only: bool = False
    state: UseState = UseState.WAITING
    is_mount: bool | None = None


class FlexEntry(msgspec.Struct, frozen=True, kw_only=True):
    """Entry of one volume. It contains neither options nor secrets.

    `volume`: name of the persistent volume, or name in the pod. `attach`: the driver attaches and mounts a device; the
    other fields are then set. `global_directory`: where the device is mounted once for all pods. `device`: as the
    driver named it; empty if it has none, or is not attached yet. `read_only`: the device was mounted so. `node`: name
    of the node for which it was attached. `fingerprint`: of the options with which it was attached. `is_formatting`: a
    format of the device was begun and has not ended; the entry then stays when the device is detached.
    """

    driver: str
    volume: str
    attach: bool = False
    global_directory: str = ""
    device: str = ""
    node: str = ""
    fingerprint: str = ""
    read_only: bool = False
    is_formatting: bool = False
    stage: DeviceStage = DeviceStage.NONE
    uses: dict[str, VolumeUse] = {}
    """By target."""
    version: int = VERSION

    @property
    def key(self) -> str:
        """Name of the entry's file and lock: a hash, since names of volumes may be too long for a file."""
        return entry_key(self.driver, self.volume if self.attach else next(iter(self.uses), self.volume))

    def with_use(self, use: VolumeUse) -> FlexEntry:
        return replace(self, uses={**self.uses, use.target: use})

    def without_use(self, target: str) -> FlexEntry:
        return replace(self, uses={key: use for key, use in self.uses.items() if key != target})

    def others(self, target: str) -> tuple[VolumeUse, ...]:
        """Return the uses by other pods that are not done."""
        return tuple(
            use for key, use in self.uses.items() if key != target and use.state is not UseState.DONE
        )


def entry_key(driver: str, name: str) -> str:
    """Return the key of an entry. `name`: of the volume for a driver with attach, or else the target."""
    return hashlib.sha256(f"{driver}\0{name}".encode("utf-8", "surrogateescape")).hexdigest()[:40]


def new_entry(
    request: VolumeRequest, *, attach: bool, global_directory: str = "", node: str = ""
) -> FlexEntry:
    """Return the entry of a volume before anything was done for it, with the request's use."""
    entry = FlexEntry(driver=request.driver, volume=request.volume_name).with_use(new_use(request))
    if not attach:
        return entry
    return replace(
        entry,
        attach=True,
        global_directory=global_directory,
        node=node,
        fingerprint=fingerprint(request),
        read_only=request.read_only,
    )


def new_use(request: VolumeRequest) -> VolumeUse:
    """Return the use of a request, before anything was done for it."""
    return VolumeUse(
        target=request.target,
        pod_uid=str(request.pod.uid),
        pod=f"{request.pod.namespace}/{request.pod.name}",
        read_only=request.read_only,
    )


def entry_files(directory: Path) -> JsonFiles[FlexEntry]:
    """Return the files of a journal."""
    return JsonFiles(
        directory,
        FlexEntry,
        version=VERSION,
        name=lambda entry: entry.key,
        without=": the volume is then released by the mount table",
    )


class FlexJournal:
    """Entries in memory and on disk. Callers hold the lock of an entry's key while they change it."""

    def __init__(self, files: JsonFiles[FlexEntry], blocking: Blocking) -> None:
        """`blocking`: finishes its function also if the caller is cancelled.

        A late write would otherwise replace what the next call for the volume has written.
        """
        self._files = files
        self._blocking = blocking
        self._entries: dict[str, FlexEntry] = {}
        self._blocked: set[str] = set()
        """Keys of files that could not be read, or are of a newer version."""
        self._is_warned = False

    async def load(self) -> None:
        try:
            loaded = await self._blocking(self._files.load)
        except OSError as error:
            raise file_error("cannot read the journal of FlexVolumes", error) from error
        self._entries, self._blocked = loaded.values, set(loaded.problems)
        for problem in loaded.problems.values():
            log.warning("Failed to read an entry of the journal", err=str(problem))

    async def check(self, keys: Iterable[str]) -> None:
        """Raise Unavailable if the file of one of these keys still cannot be read, or is of a newer version."""
        for key in self._blocked.intersection(keys):
            try:
                entry = await self._blocking(self._files.read, key)
            except Unavailable as error:
                error.reason = Event.FAILED_MOUNT
                raise
            self._blocked.discard(key)
            if entry is not None:
                self._entries[key] = entry

    def get(self, key: str) -> FlexEntry | None:
        return self._entries.get(key)

    def find(self, target: str) -> FlexEntry | None:
        """Return the entry with a use of this target; None if there is none."""
        return next((entry for entry in self._entries.values() if target in entry.uses), None)

    async def put(self, entry: FlexEntry, *, is_release: bool = False) -> FlexEntry:
        """Store an entry and return it; it is on disk then. Raises Unavailable if it cannot be written.

        `is_release`: with a full disk it is stored in memory only. For a step that undoes another one, which may be
        done twice: what is on disk then says more than is there.
        """
        if self._entries.get(entry.key) != entry:
            await self._change(entry.key, entry, is_release=is_release)
        return entry

    async def remove(self, key: str) -> None:
        """Remove an entry; succeeds if there is none."""
        if key in self._entries:
            await self._change(key, None)

    async def _change(self, key: str, entry: FlexEntry | None, *, is_release: bool = False) -> None:
        is_done = False

        def change() -> None:
            nonlocal is_done
            if entry is None:
                self._files.remove(key)
            else:
                self._files.put(entry)
            is_done = True

        try:
            await self._blocking(change)
        except OSError as error:
            is_full = error.errno in _IS_FULL
            if not is_release or not is_full:
                fix = "free space on its disk" if is_full else "it is tried again"
                path = self._files.path(key)
                raise Unavailable(
                    f"{path} cannot be written: {error.strerror}; {fix}", reason=Event.FAILED_MOUNT
                ) from error
            is_done = True
            if not self._is_warned:
                self._is_warned = True
                log.warning("Failed to update an entry of the journal, releasing it anyway", err=str(error))
        finally:
            # Also if the caller was cancelled meanwhile: `_blocking` has waited for the file.
            if is_done and entry is None:
                self._entries.pop(key, None)
            elif is_done and entry is not None:
                self._entries[key] = entry
