"""Checks requests for volumes and builds the options of a driver's calls. Pure.

The options are one argument of a call: a JSON object whose values are all text, with sorted keys and escapes as Go
writes them. The keys of Kubernetes come first, the options of the volume's author are merged over them. Keys of the
author in the namespaces of Kubernetes are refused here too, since manifest files do not pass an API server.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any, Final

from kubeletx.api import InvalidPod, VolumeRequest
from kubeletx.api.text import is_printable

from ..errors import invalid_volume

FS_TYPE: Final = "kubernetes.io/fsType"
READ_WRITE: Final = "kubernetes.io/readwrite"
VOLUME_NAME: Final = "kubernetes.io/pvOrVolumeName"
POD_NAME: Final = "kubernetes.io/pod.name"
POD_NAMESPACE: Final = "kubernetes.io/pod.namespace"
POD_UID: Final = "kubernetes.io/pod.uid"
SERVICE_ACCOUNT: Final = "kubernetes.io/serviceAccount.name"
FS_GROUPS: Final = ("kubernetes.io/fsGroup", "kubernetes.io/mounterArgs.FsGroup")
"""Keys of the fsGroup: up to Kubernetes 1.14, and since 1.15. Drivers read one of them."""
SECRET: Final = "kubernetes.io/secret/"
_RESERVED: Final = (".kubernetes.io", ".k8s.io")
_FS_TYPE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,31}")
_SECRET_KEY: Final = re.compile(r"[-._A-Za-z0-9]{1,253}")
_MOST_NAME: Final = 255
_MOST_ARGUMENT_BYTES: Final = 128 * 1024
_ESCAPES: Final = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}


def check_request(request: VolumeRequest) -> None:
    """Raise InvalidPod if the volume cannot be prepared by a FlexVolume driver as it is written."""
    name = request.volume_name
    if request.mount_options:
        raise invalid_volume(
            name,
            "mountOptions",
            "FlexVolume does not support mount options",
            "remove them, or use an option of the driver",
        )
    if request.fs_type and not _FS_TYPE.fullmatch(request.fs_type):
        raise invalid_volume(
            name, "flexVolume.fsType", f"{request.fs_type!r} is not a file system", "use a name such as ext4"
        )
    check_names(request)
    _check_options(request)
    if len(encode_options(mount_options(request)).encode()) >= _MOST_ARGUMENT_BYTES:
        raise invalid_volume(
            name,
            "flexVolume",
            "options and secrets together are too large for a command line",
            "make them smaller: Linux allows 128 KiB for one argument",
        )


def has_valid_names(request: VolumeRequest) -> bool:
    """Return False for a request that `check_names` refuses."""
    try:
        check_names(request)
    except InvalidPod:
        return False
    return True


def check_names(request: VolumeRequest) -> None:
    """Raise InvalidPod if the driver's or the volume's name cannot be a part of a path."""
    parts = driver_parts(request.driver)
    if not parts:
        raise invalid_volume(
            request.volume_name,
            "flexVolume.driver",
            f"{request.driver!r} is not a driver",
            "use VENDOR/DRIVER",
        )
    name = request.volume_name
    if (
        name in {"", ".", ".."}
        or "/" in name
        or "\0" in name
        or len(name.encode("utf-8", "replace")) > _MOST_NAME
    ):
        raise invalid_volume(
            name, "metadata.name", "the name cannot be part of a path", "use a DNS subdomain name"
        )


def driver_parts(driver: str) -> tuple[str, ...]:
    """Return the parts of a driver's name, such as vendor and driver; empty if they cannot be parts of a path."""
    parts = tuple(driver.split("/"))
    is_bad = any(
        part in {"", ".", ".."} or len(part.encode("utf-8", "replace")) > _MOST_NAME for part in parts
    )
    return () if is_bad or "\0" in driver or driver.startswith(".") or not is_printable(driver) else parts


def volume_options(request: VolumeRequest) -> dict[str, str]:
    """Return the options of all calls that have options."""
    return {
        FS_TYPE: request.fs_type,
        READ_WRITE: "ro" if request.read_only else "rw",
        VOLUME_NAME: request.volume_name,
        **request.options,
    }


def mount_options(request: VolumeRequest) -> dict[str, str]:
    """Return the options of ``mount``: the options of all calls, the pod, its fsGroup, and the secrets in base64."""
    own = {
        POD_NAME: request.pod.name,
        POD_NAMESPACE: request.pod.namespace,
        POD_UID: str(request.pod.uid),
        SERVICE_ACCOUNT: request.pod.service_account,
    }
    if request.fs_group is not None:
        own |= dict.fromkeys(FS_GROUPS, str(request.fs_group))
    secrets = {f"{SECRET}{key}": base64.b64encode(data).decode() for key, data in request.secrets.items()}
    return own | secrets | volume_options(request)


def encode_options(options: Mapping[str, str]) -> str:
    """Return the options as an argument, as Go's encoding/json writes a map."""
    text = json.dumps(options, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    for character, escape in _ESCAPES.items():
        text = text.replace(character, escape)
    return text


def fingerprint(request: VolumeRequest) -> str:
    """Return a hash that two requests share if they describe the same volume; it does not depend on secrets."""
    options = {key: value for key, value in volume_options(request).items() if key != READ_WRITE}
    return hashlib.sha256(encode_options(options).encode()).hexdigest()


def global_directory(plugins: PurePath, driver: str, name: str) -> str:
    """Return the directory at which a volume is mounted once for all pods of the node. `plugins`: absolute path."""
    return str(plugins.joinpath("kubernetes.io", "flexvolume", *driver_parts(driver), "mounts", name))


def _check_options(request: VolumeRequest) -> None:
    for key, value in request.options.items():
        if problem := _problem(key, value):
            raise invalid_volume(request.volume_name, f"flexVolume.options[{key!r}]", *problem)
    for key in request.secrets:
        if not _SECRET_KEY.fullmatch(key):
            raise invalid_volume(
                request.volume_name,
                "flexVolume.secretRef",
                f"{key!r} is not a key of a secret",
                "rename the key",
            )


def _problem(key: str, value: Any) -> tuple[str, str] | None:
    if not isinstance(value, str):
        return f"is a {type(value).__name__}, not text", "write it in quotes"
    if "\0" in key or "\0" in value or not is_printable(key + value):
        return "contains NUL or broken Unicode, which no argument can have", "remove it"
    namespace = "." + key.partition("/")[0].lower()
    if namespace.endswith(_RESERVED):
        return (
            "is in a namespace of Kubernetes, which is reserved",
            "use a key without '/', or another namespace",
        )
    return None
