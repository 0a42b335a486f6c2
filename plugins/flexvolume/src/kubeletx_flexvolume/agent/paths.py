"""Checks of the paths that the driver sends. Pure.

The driver's only paths are targets: ``<kubelet root>/pods/<uid>/volumes/kubeletx.io~storage/<name>``, and for block
volumes the same below ``volumeDevices``. `namespace` then walks to the directory.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from kubeletx.api import InvalidConfig, InvalidPod
from kubeletx.api.records import check_record_name

from ..values import DRIVER, IMAGE_RECORD

MAX_PATH: Final = 4000
MAX_COMPONENT: Final = 255
_VOLUMES: Final = DRIVER.replace("/", "~")
_VOLUMES_DIRECTORY: Final = "volumes"
_DEVICES_DIRECTORY: Final = "volumeDevices"
_UID: Final = re.compile(r"[0-9A-Za-z][-0-9A-Za-z._]{0,252}")


class TargetPath(msgspec.Struct, frozen=True, kw_only=True):
    """Parts of a checked target. `kubelet_root`: real path of the kubelet's root directory that it is in.

    `is_block`: the pod gets the device itself there, a file, and not a directory.
    """

    kubelet_root: str
    pod_uid: str
    name: str
    is_block: bool = False

    @property
    def path(self) -> str:
        """The target itself: the directory at which the pod gets the volume, or the file that becomes its device."""
        kind = _DEVICES_DIRECTORY if self.is_block else _VOLUMES_DIRECTORY
        return f"{self.kubelet_root}/pods/{self.pod_uid}/{kind}/{_VOLUMES}/{self.name}"

    @property
    def directory(self) -> str:
        """Directory that exists before the mount: the target; for a block volume, its parent directory."""
        return self.path.rpartition("/")[0] if self.is_block else self.path

    @property
    def global_directory(self) -> str:
        """Directory at which the volume is mounted once for the node."""
        return global_directory(self.kubelet_root, self.name)


def global_directory(kubelet_root: str, name: str) -> str:
    """Return the directory at which a volume is mounted once for the node."""
    return f"{kubelet_root}/plugins/{DRIVER}/mounts/{name}"


def parse_target(text: str, kubelet_roots: Mapping[str, str]) -> TargetPath:
    """Check and split the target of a call. Raises InvalidPod.

    Kubelets and scripts may end it with a slash, or double one; both are left out. `kubelet_roots`: root directories of
    kubelets, as they are configured, with their real paths.
    """
    if not text.startswith("/") or len(text) > MAX_PATH or "\0" in text:
        raise _bad(text, f"is not an absolute path of at most {MAX_PATH} characters")
    parts = [part for part in text.split("/") if part]
    if any(part in (".", "..") or len(part.encode(errors="replace")) > MAX_COMPONENT for part in parts):
        raise _bad(text, "has a dotted or too long component")
    text = "/" + "/".join(parts)
    root = next((one for one in kubelet_roots if text.startswith(f"{one}/")), None)
    if root is None:
        raise _bad(text, f"is not below {' or '.join(kubelet_roots)}; see option --kubelet-root-dir")
    match text[len(root) + 1 :].split("/"):
        case ["pods", uid, ("volumes" | "volumeDevices") as kind, volumes, name] if (
            volumes == _VOLUMES and _UID.fullmatch(uid)
        ):
            check_volume_name(name)
            is_block = kind == _DEVICES_DIRECTORY
            return TargetPath(kubelet_root=kubelet_roots[root], pod_uid=uid, name=name, is_block=is_block)
    raise _bad(text, f"is not {root}/pods/UID/volumes/{_VOLUMES}/NAME")


def check_volume_name(name: str) -> None:
    """Raise InvalidConfig if `name` cannot be the name of a volume, which is also the name of its record."""
    check_record_name(name, "volume")
    if name.endswith(IMAGE_RECORD):
        raise InvalidConfig(
            obj="volume",
            field="name",
            problem=f"{name!r} is the name of an attachment record of an image",
            fix=f"use a name that does not end in {IMAGE_RECORD}",
        )


def _bad(text: str, problem: str) -> InvalidPod:
    shown = text if len(text) <= 300 else f"{text[:300]}..."
    return InvalidPod(obj="call of the driver", field="target", problem=f"{shown!r} {problem}")
