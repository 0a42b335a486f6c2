"""emptyDir volumes: a directory that lives as long as the pod, on disk, in memory or in huge pages.

See docs/kubelet-parity.md, row V3. All users may write to it (mode 0777). In memory, its size limit is the smallest of
the node's allocatable memory, the pod's memory limit and sizeLimit. On disk, the file system does not enforce
sizeLimit; `pods.eviction` measures the usage and evicts a pod that exceeds it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from kubeletx.kube.requests import enforceable_limits
from kubeletx.kube.text.quantity import to_bytes
from kubeletx.kube.types.core import EmptyDirVolumeSource, Pod
from kubeletx.linux.mounts import find_mount

from .. import layout
from ..files.ownership import group_mode
from ..files.safe_paths import make_private
from ..mounting import mount_tmpfs
from ..prepared import PreparedVolume, SetUp, VolumeError

MODE: Final = 0o777
HUGE_PAGES: Final = "HugePages"
_HUGE_PAGE_DIRECTORY: Final = Path("/sys/kernel/mm/hugepages")


def set_up(request: SetUp) -> PreparedVolume:
    """Create the directory; for medium Memory mount a tmpfs on it, for HugePages a hugetlbfs."""
    source = request.volume.empty_dir or EmptyDirVolumeSource()
    path = layout.volume_dir(request.root_dir, request.pod.uid, layout.EMPTY_DIR, request.volume.name)
    make_volume_dir(path, MODE, request.fs_group)
    medium = source.medium or ""
    if medium == "Memory":
        _mount_memory(request, path, memory_size(request.pod, source, request.fields.allocatable))
    elif medium.startswith(HUGE_PAGES):
        _mount_huge_pages(request, path, medium)
    elif medium:
        raise VolumeError(
            field=f"{request.field}.emptyDir.medium",
            problem=f"unknown storage medium {medium!r}",
            fix="use Memory, HugePages or HugePages-<size>, or leave it out",
        )
    return PreparedVolume(name=request.volume.name, source=str(path))


def memory_size(pod: Pod, source: EmptyDirVolumeSource, allocatable: dict[str, int]) -> int:
    """Return the size limit in bytes of an emptyDir in memory; 0: no limit.

    `allocatable`: amounts of the node by resource name; memory in bytes.
    """
    limits = enforceable_limits(pod.spec)
    candidates = (
        allocatable.get("memory", 0),
        limits["memory"].value if "memory" in limits else 0,
        to_bytes(source.size_limit) if source.size_limit else 0,
    )
    return min((size for size in candidates if size > 0), default=0)


def make_volume_dir(path: Path, mode: int, group: int | None = None) -> None:
    """Create the directory of a volume with `mode`; an existing directory is left unchanged.

    `group`: if not None, the directory gets this group, which may read and write. The directory appears in one step, by
    a rename; an existing one is therefore complete, and containers may have changed it.
    """
    if os.path.lexists(path):
        return
    make_private(path.parent)
    fresh = path.with_name(f".{path.name}.new")
    fresh.mkdir(exist_ok=True)
    if group is not None:
        os.chown(fresh, -1, group)
    fresh.chmod(group_mode(mode, group))
    fresh.rename(path)


def _mount_memory(request: SetUp, path: Path, size: int) -> None:
    if find_mount(request.mounter.mounts(path), path) is None:
        mount_tmpfs(request.mounter, path, size_bytes=size, group=request.fs_group)


def _mount_huge_pages(request: SetUp, path: Path, medium: str) -> None:
    if find_mount(request.mounter.mounts(path), path) is not None:
        return
    size = _page_size(request, medium)
    if not (_HUGE_PAGE_DIRECTORY / f"hugepages-{size // 1024}kB").is_dir():
        raise VolumeError(
            field=f"{request.field}.emptyDir.medium",
            problem=f"this node's kernel offers no huge pages of {size} bytes",
            fix="reserve them on the node or use another medium",
        )
    owner = "" if request.fs_group is None else f",gid={request.fs_group}"
    request.mounter.mount("nodev", path, fstype="hugetlbfs", data=f"pagesize={size},mode={MODE:o}{owner}")


def _page_size(request: SetUp, medium: str) -> int:
    """Return the size in bytes of the huge pages for this medium.

    For ``HugePages-<size>`` it is this size, which a container must request. For ``HugePages`` it is the only size that
    the pod's containers request. Raises InvalidPod if there is no such size, or more than one.
    """
    spec, prefix = request.pod.spec, "hugepages-"
    needs = [
        spec.resources,
        *(container.resources for container in (*spec.init_containers, *spec.containers)),
    ]
    names = {name for need in needs for name in (*need.limits, *need.requests) if name.startswith(prefix)}
    wanted = {to_bytes(name.removeprefix(prefix)) for name in names}
    if medium != HUGE_PAGES:
        try:
            wanted &= {to_bytes(medium.removeprefix(f"{HUGE_PAGES}-"))}
        except ValueError as err:
            problem = f"{medium!r} names no page size"
            raise VolumeError(field=f"{request.field}.emptyDir.medium", problem=problem) from err
    if len(wanted) != 1:
        problem = f"medium {medium}: containers ask for {len(wanted)} matching sizes of huge pages"
        raise VolumeError(
            field=f"{request.field}.emptyDir.medium",
            problem=problem,
            fix="give a container a limit of hugepages-<size>, and name the size if there are several",
        )
    return wanted.pop()
