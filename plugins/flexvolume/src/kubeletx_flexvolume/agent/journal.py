"""`VolumeJournal`: everything of one volume that may exist on this node. A frozen value; `plan` has its rules.

Each part of a volume has a `Mark`. A part is marked MAY on disk before the agent makes it, and remains marked until it
is known to be gone. So whatever a crash leaves behind is marked in the journal, and can be removed.
"""

from __future__ import annotations

import enum
from typing import Final

import msgspec

from ..backends.backend import AttachedSource
from ..values import Holder, HolderKey, StorageVolume

VERSION: Final = 1


class Mark(enum.Enum):
    """Existence of one part of a volume."""

    NO = "no"
    MAY = "may"
    """It may exist: it is being made or removed, or that failed."""
    YES = "yes"


class Content(enum.Enum):
    """Content of the volume's device."""

    UNKNOWN = "unknown"
    BLANK = "blank"
    """Proved to be blank a moment ago."""
    FORMATTING = "formatting"
    """It was blank, and mkfs has been started."""
    READY = "ready"
    """It has the volume's file system, or is not a device."""


class Use(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Use of the volume by one pod. `holder`: its entry in the volume's record.

    `is_wanted` False: everything of it is to be removed. `is_mounted`: the mount was completed and reported as such.
    """

    holder: Holder
    is_wanted: bool = True
    is_mounted: bool = False
    taken: Mark = Mark.NO
    """The entry in the volume's record."""
    bound: Mark = Mark.NO
    """The mount at `Holder.mount_dir`."""

    @property
    def key(self) -> HolderKey:
        return self.holder.key


class VolumeJournal(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Journal of one volume. `boot_id`: of the kernel that has the mounts and the device.

    `kubelet_root`, `global_dir`: where the volume is mounted once for the node. `is_forced`: the storage does not
    answer, or this node must not use it any more: writes that are not done are given up. `why`: reason of that, for
    logs.
    """

    volume: StorageVolume
    boot_id: str
    kubelet_root: str
    global_dir: str
    attached: Mark = Mark.NO
    source: AttachedSource | None = None
    content: Content = Content.UNKNOWN
    mounted: Mark = Mark.NO
    """The mount at `global_dir`."""
    is_writable: bool = False
    """The mount at `global_dir` can be written to."""
    uses: tuple[Use, ...] = ()
    is_forced: bool = False
    why: str = ""
    version: int = VERSION

    @property
    def is_empty(self) -> bool:
        """True if nothing of the volume is left on this node."""
        return not self.uses and self.attached is Mark.NO and self.mounted is Mark.NO

    @property
    def staying(self) -> tuple[Use, ...]:
        """Uses that are mounted, or to be mounted."""
        return tuple(use for use in self.uses if use.is_wanted)

    @property
    def leaving(self) -> tuple[Use, ...]:
        """Uses that are to be removed."""
        return tuple(use for use in self.uses if not use.is_wanted)

    def find(self, key: HolderKey) -> Use | None:
        return next((use for use in self.uses if use.key == key), None)

    def with_use(self, use: Use) -> VolumeJournal:
        if self.find(use.key) is None:
            return msgspec.structs.replace(self, uses=(*self.uses, use))
        return msgspec.structs.replace(
            self, uses=tuple(use if one.key == use.key else one for one in self.uses)
        )

    def without(self, key: HolderKey) -> VolumeJournal:
        return msgspec.structs.replace(self, uses=tuple(use for use in self.uses if use.key != key))

    def leave(self, *keys: HolderKey) -> VolumeJournal:
        """Return the journal with these uses to be removed; without keys, all."""
        uses = tuple(
            msgspec.structs.replace(use, is_wanted=False, is_mounted=False)
            if use.key in keys or not keys
            else use
            for use in self.uses
        )
        return msgspec.structs.replace(self, uses=uses)
