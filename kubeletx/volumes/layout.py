"""Paths of a pod's files below ``root_dir``: the kubelet's layout.

    pods/<uid>/                                        0750
        volumes/kubernetes.io~<kind>/<volume>          0750 up to the volume itself
        volumes/<vendor>~<driver>/<volume>             volumes of flexVolume drivers
        volumeDevices/kubernetes.io~<kind>/<volume>    block devices of volume drivers
        volumes.json                                   journal of volumes of volume drivers (`drivers.journal`)
        volume-subpaths/<volume>/<container>/<index>   bind mounts of subPath
        containers/<container>/<attempt>               termination message file, 0666
        plugins/
        etc-hosts                                      0644

These functions only compute paths, without I/O. Every name that comes from a manifest is checked before it
becomes part of a path.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from kubeletx.api import InvalidPod, PodUid

EMPTY_DIR: Final = "empty-dir"
DOWNWARD_API: Final = "downward-api"
PROJECTED: Final = "projected"
CONFIG_MAP: Final = "configmap"
SECRET: Final = "secret"
NFS: Final = "nfs"
FLEX_VOLUME: Final = "flexVolume"
VOLUMES: Final = "volumes"
SUB_PATHS: Final = "volume-subpaths"
JOURNAL: Final = "volumes.json"
LOCAL: Final = "local-volume"
LOCAL_DEVICE: Final = "local-device"
OWN: Final = (EMPTY_DIR, DOWNWARD_API, PROJECTED, CONFIG_MAP, SECRET, LOCAL, LOCAL_DEVICE)
"""Kinds whose volumes the agent prepares without a volume driver; all others in a pod's directory are of drivers."""

_MAX_NAME_BYTES: Final = 255
"""Maximum length of a name in Linux file systems."""
DIRECTORY_MODE: Final = 0o750
"""Mode of every directory between root_dir and the volumes."""


def pods_dir(root_dir: Path) -> Path:
    """Return the directory that contains one directory per pod."""
    return root_dir / "pods"


def pod_dir(root_dir: Path, uid: PodUid) -> Path:
    """Return the directory with all files of one pod except its logs."""
    return pods_dir(root_dir) / check_name(uid, "metadata.uid")


def volumes_dir(root_dir: Path, uid: PodUid) -> Path:
    """Return the directory of the pod's volumes; it has one directory for each kind of volume."""
    return pod_dir(root_dir, uid) / VOLUMES


def volume_dir(root_dir: Path, uid: PodUid, kind: str, name: str) -> Path:
    """Return the directory of one volume. `kind`: a constant of this module for its kind, such as `EMPTY_DIR`."""
    return volumes_dir(root_dir, uid) / f"kubernetes.io~{kind}" / check_name(name, "spec.volumes[].name")


def driver_volume_dir(
    root_dir: Path, uid: PodUid, source: str, driver: str, name: str, *, is_block: bool = False
) -> Path:
    """Return the target of a volume that a volume driver prepares.

    `source`, `driver`: as in `VolumeRequest`. `name`: of the persistent volume, or of the volume in the pod.
    """
    if source == FLEX_VOLUME:
        kind = check_name(driver.replace("/", "~"), f"{FLEX_VOLUME}.driver")
    else:
        kind = source_directory(source)
    base = devices_dir(root_dir, uid) if is_block else volumes_dir(root_dir, uid)
    return base / kind / check_name(name, "spec.volumes[].name")


def source_directory(source: str) -> str:
    """Return the name of the directory for volumes of one source, such as ``kubernetes.io~scale-io``."""
    return "kubernetes.io~" + re.sub(r"(?<=[a-z])(?=[A-Z])", "-", source).lower()


def devices_dir(root_dir: Path, uid: PodUid) -> Path:
    """Return the directory of the pod's block volumes that volume drivers prepare."""
    return pod_dir(root_dir, uid) / "volumeDevices"


def journal_path(root_dir: Path, uid: PodUid) -> Path:
    """Return the path of the journal of the pod's volumes that volume drivers prepare."""
    return pod_dir(root_dir, uid) / JOURNAL


def subpaths_dir(root_dir: Path, uid: PodUid) -> Path:
    """Return the directory of the bind mounts for the pod's subPath mounts."""
    return pod_dir(root_dir, uid) / SUB_PATHS


def subpath_target(root_dir: Path, uid: PodUid, volume: str, container: str, index: int) -> Path:
    """Return the path at which the subPath of one volumeMount is bind-mounted.

    `index`: position of the volumeMount in the container's list.
    """
    base = subpaths_dir(root_dir, uid) / check_name(volume, "spec.volumes[].name")
    return base / check_name(container, "spec.containers[].name") / str(index)


def container_dir(root_dir: Path, uid: PodUid, container: str) -> Path:
    """Return the directory of one container's files, such as termination messages."""
    return pod_dir(root_dir, uid) / "containers" / check_name(container, "spec.containers[].name")


def termination_message_path(root_dir: Path, uid: PodUid, container: str, attempt: int) -> Path:
    """Return the path of the termination message file. `attempt`: restart count; each run has a file of its own."""
    return container_dir(root_dir, uid, container) / f"{attempt:08d}"


def hosts_path(root_dir: Path, uid: PodUid) -> Path:
    """Return the path of the pod's /etc/hosts file, which the agent writes."""
    return pod_dir(root_dir, uid) / "etc-hosts"


def check_name(name: str, field: str) -> str:
    """Return `name` unchanged. Raises InvalidPod if it cannot be one component of a path.

    `field`: the manifest field that contains the name, for the error.
    """
    if not name or name in {".", ".."} or "/" in name or "\0" in name:
        raise InvalidPod(field=field, problem=f"{name!r} cannot be part of a path", fix="use a plain name")
    if len(name.encode("utf-8", "replace")) > _MAX_NAME_BYTES:
        raise InvalidPod(
            field=field,
            problem=f"{name[:40]!r}... is longer than {_MAX_NAME_BYTES} bytes",
            fix="use a shorter name",
        )
    return name
