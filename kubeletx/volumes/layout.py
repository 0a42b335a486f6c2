"""Paths of a pod's files below ``root_dir``: the kubelet's layout.

    pods/<uid>/                                        0750
        volumes/kubernetes.io~<kind>/<volume>          0750 up to the volume itself
        volume-subpaths/<volume>/<container>/<index>   bind mounts of subPath
        containers/<container>/<attempt>               termination message file, 0666
        plugins/
        etc-hosts                                      0644

These functions only compute paths, without I/O. Every name that comes from a manifest is checked before it
becomes part of a path.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from kubeletx.api import InvalidPod, PodUid

EMPTY_DIR: Final = "empty-dir"
DOWNWARD_API: Final = "downward-api"
PROJECTED: Final = "projected"
CONFIG_MAP: Final = "configmap"
SECRET: Final = "secret"
NFS: Final = "nfs"
LOCAL: Final = "local-volume"

DIRECTORY_MODE: Final = 0o750
"""Mode of every directory between root_dir and the volumes."""


def pods_dir(root_dir: Path) -> Path:
    """Directory that contains one directory per pod."""
    return root_dir / "pods"


def pod_dir(root_dir: Path, uid: PodUid) -> Path:
    """Directory with all files of one pod."""
    return pods_dir(root_dir) / check_name(uid, "metadata.uid")


def volumes_dir(root_dir: Path, uid: PodUid) -> Path:
    """Directory of the pod's volumes; its entries are one directory for each kind."""
    return pod_dir(root_dir, uid) / "volumes"


def volume_dir(root_dir: Path, uid: PodUid, kind: str, name: str) -> Path:
    """Directory of one volume. `kind`: the directory's name for the kind, such as ``empty-dir``."""
    return volumes_dir(root_dir, uid) / f"kubernetes.io~{kind}" / check_name(name, "spec.volumes[].name")


def subpaths_dir(root_dir: Path, uid: PodUid) -> Path:
    """Directory of the bind mounts that the pod's subPath mounts need."""
    return pod_dir(root_dir, uid) / "volume-subpaths"


def subpath_target(root_dir: Path, uid: PodUid, volume: str, container: str, index: int) -> Path:
    """Path at which one volumeMount's subPath is bind-mounted.

    `index`: position of the volumeMount in the container's list.
    """
    base = subpaths_dir(root_dir, uid) / check_name(volume, "spec.volumes[].name")
    return base / check_name(container, "spec.containers[].name") / str(index)


def container_dir(root_dir: Path, uid: PodUid, container: str) -> Path:
    """Directory of one container's files, such as termination messages."""
    return pod_dir(root_dir, uid) / "containers" / check_name(container, "spec.containers[].name")


def termination_message_path(root_dir: Path, uid: PodUid, container: str, attempt: int) -> Path:
    """Path of the termination message file; each attempt (start number) of the container has its own."""
    return container_dir(root_dir, uid, container) / f"{attempt:08d}"


def hosts_path(root_dir: Path, uid: PodUid) -> Path:
    """Path of the pod's /etc/hosts, which the agent writes."""
    return pod_dir(root_dir, uid) / "etc-hosts"


def check_name(name: str, field: str) -> str:
    """Return `name` unchanged. Raises InvalidPod if it cannot be one component of a path.

    `field`: its manifest field, for the error.
    """
    if not name or name in {".", ".."} or "/" in name or "\0" in name:
        raise InvalidPod(field=field, problem=f"{name!r} cannot be part of a path", fix="use a plain name")
    return name
