"""A mount table in memory, cluster objects in a dict, and pods from dicts."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from kubeletx.api import (
    ClusterService,
    ClusterServiceAccount,
    ClusterVolume,
    ObjectData,
    ObjectUser,
    PodUid,
    TokenParameters,
)
from kubeletx.kube.types.core import Pod
from kubeletx.linux.mounts import MountPoint
from kubeletx.volumes import FieldContext, VolumePreparer

T = TypeVar("T")


def make_pod(spec: dict[str, Any] | None = None, **metadata: Any) -> Pod:
    """A pod in namespace default, named web, with uid u1."""
    meta = {"name": "web", "namespace": "default", "uid": "u1", **metadata}
    return msgspec.convert({"metadata": meta, "spec": spec or {}}, Pod)


class FakeMounter:
    """Remembers mounts; `busy` targets cannot be unmounted; `refuses_noswap` is an old kernel."""

    def __init__(self, *, refuses_noswap: bool = False) -> None:
        self.table: list[MountPoint] = []
        self.calls: list[str] = []
        self.busy: set[str] = set()
        self.refuses_noswap = refuses_noswap

    def mount(self, source: str, target: Path, *, fstype: str = "", flags: int = 0, data: str = "") -> None:
        if self.refuses_noswap and "noswap" in data:
            raise OSError(errno.EINVAL, "Invalid argument", str(target))
        self.calls.append(f"mount {fstype or flags} {target.name} {data}".strip())
        self.table.append(
            MountPoint(
                id=len(self.table),
                target=str(target),
                fs_type=fstype,
                source=source,
                super_options=tuple(data.split(",")),
            )
        )

    def mount_by_helper(self, source: str, target: Path, *, fstype: str, options: Sequence[str] = ()) -> None:
        self.mount(source, target, fstype=fstype, data=",".join(options))

    def unmount(self, target: Path) -> None:
        if str(target) in self.busy:
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), str(target))
        self.calls.append(f"unmount {target.name}")
        for one in reversed(self.table):
            if one.target == str(target):
                self.table.remove(one)
                return

    def mounts(self, below: Path | None = None) -> tuple[MountPoint, ...]:
        return tuple(self.table)


class FakeCluster:
    """Objects of namespace default by name; `followed` are the pods that refer to some."""

    def __init__(self) -> None:
        self.config_maps: dict[str, ObjectData] = {}
        self.secrets: dict[str, ObjectData] = {}
        self.claims: dict[str, ClusterVolume] = {}
        self.tokens: dict[TokenParameters, bytes] = {}
        self.services: tuple[ClusterService, ...] = ()
        self.volume_secrets: dict[tuple[str, str], ObjectData] = {}
        """Secrets of volumes by namespace and name."""
        self.expanded: dict[str, int] = {}
        """Sizes that were written to claims, by claim."""
        self.followed: dict[PodUid, ObjectUser] = {}

    def follow(self, pod: ObjectUser) -> None:
        self.followed[pod.uid] = pod

    def leave(self, uid: PodUid) -> None:
        self.followed.pop(uid, None)

    async def token(self, uid: PodUid, wanted: TokenParameters) -> bytes:
        return self.tokens[wanted]

    async def find_service_account(self, namespace: str, name: str) -> ClusterServiceAccount | None:
        return None

    async def list_services(self, namespace: str) -> tuple[ClusterService, ...]:
        return tuple(one for one in self.services if one.namespace == namespace)

    async def find_volume(self, uid: PodUid, claim: str) -> ClusterVolume | None:
        return self.claims.get(claim)

    async def find_volume_secret(self, uid: PodUid, namespace: str, name: str) -> ObjectData | None:
        return self.volume_secrets.get((namespace, name))

    async def note_expanded(self, uid: PodUid, claim: str, size_bytes: int) -> None:
        self.expanded[claim] = size_bytes

    async def find_config_map(self, namespace: str, name: str) -> ObjectData | None:
        assert namespace == "default"
        return self.config_maps.get(name)

    async def find_secret(self, namespace: str, name: str) -> ObjectData | None:
        assert namespace == "default"
        return self.secrets.get(name)


async def inline(function: Callable[..., T], *args: Any) -> T:
    """Blocking work, right here."""
    return function(*args)


def make_preparer(root_dir: Path, **changes: Any) -> VolumePreparer:
    """A preparer on `root_dir` that needs no root."""
    arguments: dict[str, Any] = {
        "root_dir": root_dir,
        "blocking": inline,
        "fields": FieldContext(
            node_name="node-1", host_ips=("192.0.2.1",), allocatable={"cpu": 4000, "memory": 8 << 30}
        ),
        "mounter": FakeMounter(),
    }
    return VolumePreparer(**{**arguments, **changes})
