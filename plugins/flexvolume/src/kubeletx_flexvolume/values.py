"""Values that the parts of the storage agent share: volumes, pods and requests."""

from __future__ import annotations

import enum

import msgspec

DRIVER = "kubeletx.io/storage"
"""Name of the FlexVolume driver of the storage agent; also the type of secrets that it accepts."""


IMAGE_RECORD = ".image.storage.kubeletx.io"
"""End of the names of the attachment records of images; no volume has such a name."""


class AccessMode(enum.Enum):
    """Rule for the pods that may use a volume at the same time. Source: core/v1 PersistentVolumeAccessMode."""

    READ_WRITE_ONCE = "ReadWriteOnce"
    """Pods of one node."""
    READ_WRITE_ONCE_POD = "ReadWriteOncePod"
    """One pod."""
    READ_ONLY_MANY = "ReadOnlyMany"
    """Any number of pods, which only read."""
    READ_WRITE_MANY = "ReadWriteMany"
    """Any number of pods."""


class StorageVolume(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One volume, as the options of the driver describe it.

    `name`: name of the PersistentVolume, or the name that the options give; the key of its record, journal and lock.
    `backend`: name of the backend. `image`: name within the pool. `size_bytes`: size of a volume that does not exist
    yet; 0: it must exist. `cluster`: NAMESPACE/NAME of the storage cluster it belongs to; empty: none. `is_block`: pods
    get the device itself (volumeMode Block). `parameters`: further options of the backend. It contains no secrets.
    """

    name: str
    backend: str
    image: str
    pool: str = "default"
    size_bytes: int = 0
    fs_type: str = "ext4"
    cluster: str = ""
    is_block: bool = False
    mount_options: tuple[str, ...] = ()
    access_modes: tuple[AccessMode, ...] = ()
    """Modes given in the options; empty: those of the PersistentVolume, or else ReadWriteOnce."""
    parameters: dict[str, str] = {}


class PodRef(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Pod that uses a volume."""

    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class MountRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Request to make a volume available to a pod. Its repr does not show secrets.

    `target`: absolute path in the kubelet's mount namespace. `secrets`: content of the PersistentVolume's secret.
    """

    volume: StorageVolume
    pod: PodRef
    target: str
    read_only: bool = False
    fs_group: int | None = None
    secrets: dict[str, bytes] = {}

    def __repr__(self) -> str:
        return f"MountRequest({self.volume.name}, {self.pod}, {self.target}, secrets={sorted(self.secrets)})"
