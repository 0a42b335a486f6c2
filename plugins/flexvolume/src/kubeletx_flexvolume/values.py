"""Values that the parts of the storage agent share: volumes, pods, requests and holders."""

from __future__ import annotations

import enum
import hashlib

import msgspec

DRIVER = "kubeletx.io/storage"
"""Name of the FlexVolume driver of the storage agent; also the type of secrets that it accepts."""


IMAGE_RECORD = ".image.storage.kubeletx.io"
"""End of the names of the attachment records of images; no volume has such a name."""

_LONGEST_STEM = 200


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
    """Modes given in the options; empty: the PersistentVolume's, or else ReadWriteOnce."""
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


class HolderStatus(enum.Enum):
    """Progress of one attachment."""

    ATTACHING = "Attaching"
    """The entry is written; the device may exist already."""
    MOUNTED = "Mounted"
    DETACHING = "Detaching"
    """The pod has ended; the device may still exist."""


HolderKey = tuple[str, str, str]
"""Identity of a holder within a volume: node, boot ID, mount directory."""


class Holder(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One use of a volume: a pod on a node. `boot_id`: of the node's kernel when it attached the volume.

    `mount_dir`: path at which the pod gets the volume. `device`: empty until it is attached. `since`: RFC 3339 time at
    which the entry was made. `reason`: why another holder's entry was removed for this one; empty: there was none.
    `images`: names of the records of its image, which have the entry, too.
    """

    node: str
    boot_id: str = msgspec.field(name="bootID")
    pod_namespace: str
    pod: str
    pod_uid: str = msgspec.field(name="podUID")
    mount_dir: str
    read_only: bool = False
    device: str = ""
    since: str = ""
    status: HolderStatus = HolderStatus.ATTACHING
    reason: str = ""
    images: tuple[str, ...] = ()

    @property
    def key(self) -> HolderKey:
        return self.node, self.boot_id, self.mount_dir

    def __str__(self) -> str:
        return f"pod {self.pod_namespace}/{self.pod} on node {self.node}"


def file_stem(volume: str) -> str:
    """Return a file name for the volume, without an extension.

    It is the volume's name, which is a DNS subdomain. A name that leaves no room for an extension is shortened, and its
    hash added.
    """
    if len(volume) <= _LONGEST_STEM:
        return volume
    return f"{volume[:120]}_{hashlib.sha256(volume.encode()).hexdigest()}"
