"""Entries of the journal: what a driver has done, or may have done, for one volume. Frozen values and pure rules.

A volume of a driver with attach has one entry for all its pods of the node, and one device:

    ATTACHING ─► ATTACHED ─► MOUNTING ─► MOUNTED ─► UNMOUNTING ─► DETACHING ─► removed

A volume of a driver without attach has an entry for each pod, in stage NONE. In both, each pod has a use:

    WAITING ─► MOUNTING ─► MOUNTED ─► UNMOUNTING ─► removed, or DONE until the device is detached

A state whose name ends in ING says that its step was begun: it may have been done, in part or not at all.
"""

from __future__ import annotations

import enum
import hashlib
from typing import Final

import msgspec
from msgspec.structs import replace

from kubeletx.api import VolumeRequest

from .options import fingerprint

VERSION: Final = 1


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
