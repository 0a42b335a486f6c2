"""Access of non-root emulators to their disks, through their group only.

libvirtd starts machines as its own user (``libvirt-qemu``), while the agent's files are in directories that
only root may enter. The emulators' group gets three rights: to traverse (never to list) the plugin's state
directory and its parents that belong to the agent, to read backing files, and to write overlays. Backing
files belong to root: libvirt is configured not to change their owner, since an owner could make them
writable.
"""

from __future__ import annotations

import contextlib
import os
import stat
import struct
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

_ACL: Final = "system.posix_acl_access"
_HEADER, _ENTRY = struct.Struct("<I"), struct.Struct("<HHI")
_VERSION: Final = 2
_USER_OBJ, _GROUP_OBJ, _GROUP, _MASK, _OTHER = 0x01, 0x04, 0x08, 0x10, 0x20
_NO_ID: Final = 0xFFFFFFFF
_PASS: Final = 1
_AGENT_DIRECTORIES: Final = 2
"""Directories above the state directory that belong to the agent: <root>/runtimes and <root>."""


def emulator_gid(capabilities: str) -> int | None:
    """Return the group in which libvirt runs emulators; None if they run as root or the group is unknown.

    `capabilities`: XML of libvirt's capabilities.
    """
    for model in ElementTree.fromstring(capabilities).findall("./host/secmodel"):
        label = model.findtext("baselabel[@type='qemu']", "")
        if model.findtext("model") == "dac" and label:
            uid, _, gid = label.partition(":")
            return int(gid.lstrip("+")) if int(uid.lstrip("+")) != 0 else None
    return None


def let_group_in(directory: Path, gid: int) -> str | None:
    """Let the group traverse `directory` and the agent's directories above it. Idempotent. Blocking.

    Returns None, or the reason that the group still cannot reach `directory`; then no machine can start.
    """
    give(directory, gid, 0o710)
    for number, parent in enumerate(directory.parents):
        status = parent.stat()
        if _may_pass(status, gid) or _acl_lets_pass(parent, gid):
            continue
        closed = f"{parent} (mode {stat.S_IMODE(status.st_mode):o}) does not let group {gid} pass"
        if number >= _AGENT_DIRECTORIES:
            return f"{closed}; run: setfacl -m g:{gid}:x {parent}"
        try:
            _add_pass(parent, gid, status.st_mode)
        except OSError as error:
            return f"{closed}, and gets no access list: {error.strerror}; give it mode 711, or another group"
    return None


def give(path: Path, gid: int | None, mode: int) -> None:
    """Set the file's group and mode; `gid` None: only the mode. Blocking."""
    if gid is not None:
        os.chown(path, -1, gid)
    path.chmod(mode)


def _may_pass(status: os.stat_result, gid: int) -> bool:
    bit = stat.S_IXGRP if status.st_gid == gid else stat.S_IXOTH
    return bool(status.st_mode & bit)


def _acl_lets_pass(path: Path, gid: int) -> bool:
    entries = _read(path)
    mask = entries.get((_MASK, _NO_ID), 7)
    return bool(entries.get((_GROUP, gid), 0) & mask & _PASS)


def _read(path: Path) -> dict[tuple[int, int], int]:
    """Read the POSIX ACL as a map from (tag, id) to permission bits; empty if the file has none."""
    data = b""
    with contextlib.suppress(OSError):  # ENODATA: no ACL; ENOTSUP: a file system without ACLs
        data = os.getxattr(path, _ACL)
    return {(tag, owner): bits for tag, bits, owner in _ENTRY.iter_unpack(data[_HEADER.size :])}


def _add_pass(path: Path, gid: int, mode: int) -> None:
    entries = _read(path) or {
        (_USER_OBJ, _NO_ID): mode >> 6 & 7,
        (_GROUP_OBJ, _NO_ID): mode >> 3 & 7,
        (_OTHER, _NO_ID): mode & 7,
    }
    mask = entries.get((_MASK, _NO_ID), entries[_GROUP_OBJ, _NO_ID])
    entries[_GROUP, gid] = entries.get((_GROUP, gid), 0) | _PASS
    entries[_MASK, _NO_ID] = mask | _PASS
    data = b"".join(_ENTRY.pack(tag, bits, owner) for (tag, owner), bits in sorted(entries.items()))
    os.setxattr(path, _ACL, _HEADER.pack(_VERSION) + data)
