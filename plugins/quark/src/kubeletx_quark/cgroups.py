"""Finds the mounted cgroup hierarchies, and the cgroup of a container in them.

A node has one hierarchy for each controller (cgroup v1), one for all (v2), or both (hybrid, as with systemd's
``unified``). The freezer of v1 is used if it is mounted, since runc uses it then, too. The freezer of v2 is a part of
every v2 cgroup except the root. Source: proc(5), Linux Documentation/admin-guide/cgroup-v1 and cgroup-v2.rst.

A container's cgroup has the container's id as the last element of its path (cgroupfs), or ``PREFIX-ID.scope``
(systemd). The container's first process may be in a cgroup below, which it has made itself.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from kubeletx.api import Conflict, NotFound, Unsupported
from kubeletx.linux.mounts import read_mounts

PROC = Path("/proc")

_CONTAINER = re.compile(r"(?:.*-)?(?P<id>[0-9a-f]{64})(?:\.scope)?")


class Hierarchy(NamedTuple):
    """A mounted cgroup hierarchy.

    `version`: 1 or 2. `controller`: such as freezer, with version 1; else empty. `mount`: where it is mounted. `root`:
    path of the cgroup that is visible there, usually ``/``.
    """

    version: int
    controller: str
    mount: Path
    root: str


def find_hierarchy(controller: str, proc: Path = PROC) -> Hierarchy:
    """Return the hierarchy of a controller, such as ``freezer``: cgroup v1 if it is mounted, else v2.

    Raises Unsupported if neither is mounted.
    """
    unified = None
    for mount in read_mounts(table=proc / "self" / "mountinfo"):
        if mount.fs_type == "cgroup" and controller in mount.super_options:
            return Hierarchy(1, controller, Path(mount.target), mount.root)
        if mount.fs_type == "cgroup2":
            unified = Hierarchy(2, "", Path(mount.target), mount.root)
    if unified is None:
        raise Unsupported(
            f"no cgroup hierarchy with controller {controller} is mounted on this node; mount cgroup2 or the "
            f"{controller} controller of cgroup v1"
        )
    return unified


def container_cgroup(hierarchy: Hierarchy, pid: int, container_id: str, proc: Path = PROC) -> Path:
    """Return the directory of a container's cgroup.

    `pid`: id of the container's first process. Raises NotFound if the process or the cgroup is gone, Conflict if the
    process is in a cgroup that does not belong to the container, and Unsupported if the agent does not see the
    cgroup.
    """
    try:
        text = (proc / str(pid) / "cgroup").read_text()
    except (FileNotFoundError, ProcessLookupError):
        raise NotFound(f"process {pid} of container {container_id} has ended") from None
    path = _path_in(hierarchy, text)
    parts = PurePosixPath(path).parts
    own = [index for index, part in enumerate(parts) if container_id in (part, _id_of(part))]
    if not own:
        raise Conflict(
            f"process {pid} of container {container_id} is in cgroup {path!r}, which is not the container's: its path "
            "does not contain the container's id"
        )
    inside = PurePosixPath(*parts[: own[-1] + 1])
    # In a cgroup namespace, a path outside of it begins with "..".
    if ".." in parts or not inside.is_relative_to(hierarchy.root):
        raise Unsupported(
            f"cgroup {path!r} of container {container_id} is not visible below {hierarchy.mount}; mount the whole "
            "hierarchy there, or use strategy pause"
        )
    directory = hierarchy.mount / inside.relative_to(hierarchy.root)
    if not directory.is_dir():
        raise NotFound(f"the cgroup of container {container_id}, {directory}, is gone")
    return directory


def container_cgroups(hierarchy: Hierarchy) -> Iterator[tuple[str, Path]]:
    """Yield id and directory of each container's cgroup in the hierarchy."""
    for directory, names, _ in os.walk(hierarchy.mount):
        for name in names:
            container_id = _id_of(name)
            if container_id:
                yield container_id, Path(directory, name)


def _id_of(name: str) -> str:
    match = _CONTAINER.fullmatch(name)
    return match["id"] if match else ""


def _path_in(hierarchy: Hierarchy, text: str) -> str:
    for line in text.strip().split("\n"):
        number, controllers, path = line.split(":", 2)
        if hierarchy.version == 2 and number == "0":
            return path
        if hierarchy.version == 1 and hierarchy.controller in controllers.split(","):
            return path
    return "/"
