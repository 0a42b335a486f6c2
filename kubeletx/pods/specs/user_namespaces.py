"""Assigns user and group IDs to pods with ``hostUsers: false`` (docs/kubelet-parity.md, row E6).

Each of these pods has its own user namespace, with a block of 65536 IDs on the node that no other pod uses; users and
groups have the same IDs. The block is written to ``pods/<uid>/userns`` before it is used and is removed with the pod's
directory. There is no other record. All functions block on file I/O.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from kubeletx.api import IdMapping, PodUid, Unavailable
from kubeletx.kube.types.core import Pod
from kubeletx.kube.types.meta import ApiStruct
from kubeletx.volumes import layout
from kubeletx.volumes.files.held import hold_directory
from kubeletx.volumes.files.safe_paths import make_private

from ..model.spec_errors import CONFIG_POD_SANDBOX_ERROR

FILE: Final = "userns"
IDS_PER_POD: Final = 65_536
_MAX_BYTES: Final = 4096


class IdRange(msgspec.Struct, frozen=True, kw_only=True):
    """Range of user and group IDs on the node that pods may use: `blocks` blocks of 65536 IDs, one for each pod.

    `first_id`: first ID of the first block. The default leaves IDs 0 to 65535 to the node itself.
    """

    first_id: int = IDS_PER_POD
    blocks: int = 110


class _Mapping(ApiStruct, frozen=True, kw_only=True):
    host_id: int
    container_id: int
    length: int


class _Record(ApiStruct, frozen=True, kw_only=True):
    uid_mappings: tuple[_Mapping, ...]
    gid_mappings: tuple[_Mapping, ...]


class UserNamespaces:
    """Assigns a block of user and group IDs to each pod with ``hostUsers: false``; thread-safe."""

    def __init__(self, root_dir: Path, ids: IdRange | None = None) -> None:
        self._root_dir = root_dir
        self._ids = ids or IdRange()
        self._lock = threading.Lock()

    def mappings_for(self, pod: Pod) -> tuple[IdMapping, ...] | None:
        """Return the pod's ID mapping, and assign it on the first call; None if the pod uses the node's user namespace.

        Raises Unavailable if no block is free.
        """
        if pod.spec.host_users is not False:
            return None
        with self._lock:
            first = self._find(pod.uid)
            if first is None:
                first = self._free_block()
                self._write(pod.uid, first)
        return (IdMapping(host_id=first, container_id=0, length=IDS_PER_POD),)

    def _free_block(self) -> int:
        taken = set(self._taken())
        for number in range(self._ids.blocks):
            first = self._ids.first_id + number * IDS_PER_POD
            if first not in taken:
                return first
        raise Unavailable(
            f"all {self._ids.blocks} blocks of user ids are taken by pods with hostUsers: false",
            reason=CONFIG_POD_SANDBOX_ERROR,
        )

    def _taken(self) -> Iterator[int]:
        try:
            uids = [PodUid(name) for name in os.listdir(layout.pods_dir(self._root_dir))]
        except FileNotFoundError:  # the first pod of this node
            return
        for uid in uids:
            if (first := self._find(uid)) is not None:
                yield first

    def _find(self, uid: PodUid) -> int | None:
        try:
            with hold_directory(layout.pod_dir(self._root_dir, uid), depth=1) as directory:
                data = directory.read(FILE, _MAX_BYTES)
            return msgspec.json.decode(data, type=_Record).uid_mappings[0].host_id
        except (FileNotFoundError, NotADirectoryError, msgspec.DecodeError, UnicodeDecodeError, IndexError):
            return None

    def _write(self, uid: PodUid, first: int) -> None:
        directory = layout.pod_dir(self._root_dir, uid)
        make_private(directory)
        mapping = (_Mapping(host_id=first, container_id=0, length=IDS_PER_POD),)
        data = msgspec.json.encode(_Record(uid_mappings=mapping, gid_mappings=mapping))
        with hold_directory(directory, depth=1) as held:
            with os.fdopen(held.replace(f".{FILE}.new", 0o644), "wb") as file:
                file.write(data)
                file.flush()
                # The range is in use from now on: a lost record would give it to a second pod after a power cut.
                os.fsync(file.fileno())
            held.rename(f".{FILE}.new", FILE)
