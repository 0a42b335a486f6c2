"""`Holder`: one entry of a volume's attachment record."""

from __future__ import annotations

import enum

import msgspec


class HolderStatus(enum.Enum):
    """Progress of one attachment."""

    ATTACHING = "Attaching"
    """The entry is written; the device may exist already."""
    MOUNTED = "Mounted"
    DETACHING = "Detaching"
    """The pod has ended; the device may still exist."""


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
    def key(self) -> tuple[str, str, str]:
        """Identity of the entry within its record: node, boot ID and mount directory."""
        return self.node, self.boot_id, self.mount_dir

    def __str__(self) -> str:
        return f"pod {self.pod_namespace}/{self.pod} on node {self.node}"
