"""Converts the options that a kubelet passes to ``mount`` into a `MountRequest`. Pure.

The kubelet merges the options of the volume with its own, whose keys begin with ``kubernetes.io/``. All values are
strings. Keys of the kubelet that are not used here are ignored, since newer kubelets send more. Other unknown keys are
refused, so that a misspelled option is noticed. No error message contains a value of a secret. Source: FlexVolume
specification; kubelet v1.36, pkg/volume/flexvolume/driver-call.go.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from typing import Final

import msgspec

from kubeletx.api import InvalidPod
from kubeletx.kube.text.quantity import to_bytes

from ..attachments.fencing import STATEFUL_OPTION
from ..backends import nfs
from ..backends.registry import Backends
from ..device import MAKE_OPTIONS
from ..values import AccessMode, MountRequest, PodRef, StorageVolume
from .paths import TargetPath, check_volume_name

DEFAULT_FS_TYPE: Final = "ext4"
_KUBELET: Final = "kubernetes.io/"
_SECRET: Final = f"{_KUBELET}secret/"
_FS_GROUP: Final = (f"{_KUBELET}mounterArgs.FsGroup", f"{_KUBELET}fsGroup")
"""Keys of the fsGroup: kubelets from 1.15, and older ones."""
_OPTIONS: Final = frozenset(
    ("accessModes", "backend", "cluster", "image", "mountOptions", "name", "pool", "size", STATEFUL_OPTION)
)
_MAX_OPTIONS: Final = 32
_CLUSTER: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?/[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
DIRECTORY: Final = "directory"
"""In place of a file system: a directory that is bind-mounted."""

_ALL: Final = "nosuid nodev noexec noatime nodiratime relatime strictatime"
_DEVICE: Final = f"{_ALL} lazytime nolazytime sync dirsync discard nodiscard grpid nogrpid"
_EXT: Final = (
    f"{_DEVICE} acl noacl user_xattr nouser_xattr iversion noiversion barrier nobarrier delalloc nodelalloc "
    "auto_da_alloc noauto_da_alloc journal_checksum bsddf minixdf norecovery noload commit= inode_readahead_blks= "
    "journal_ioprio= max_batch_time= min_batch_time= stripe= data= data_err= errors="
)
_MOUNT_OPTIONS: Final = {
    DIRECTORY: _ALL,
    "ext3": _EXT,
    "ext4": _EXT,
    "xfs": f"{_DEVICE} nouuid inode64 inode32 largeio nolargeio swalloc norecovery allocsize= logbsize= logbufs= sunit= "
    "swidth=",
    "nfs": f"{_ALL} sync acl noacl hard soft softreval intr nointr tcp udp rdma lock nolock ac noac cto nocto rdirplus "
    "nordirplus resvport noresvport sharecache nosharecache fsc nofsc acdirmax= acdirmin= acregmax= acregmin= "
    "actimeo= nconnect= port= retrans= retry= rsize= timeo= wsize= local_lock= lookupcache= nfsvers= proto= sec= "
    "vers=",
}
_ALLOWED: Final = {name: frozenset(words.split()) for name, words in _MOUNT_OPTIONS.items()}
_NUMBER: Final = "[0-9]{1,10}[kmgKMG]?"
_VALUES: Final = {
    "data": "journal|ordered|writeback",
    "data_err": "ignore|abort",
    "errors": "continue|remount-ro",
    "local_lock": "all|flock|posix|none",
    "lookupcache": "all|none|pos|positive",
    "nfsvers": r"[234](\.[0-9])?",
    "proto": "tcp6?|udp6?|rdma6?",
    "sec": "sys|none|krb5|krb5i|krb5p",
    "vers": r"[234](\.[0-9])?",
}
"""Allowed mount options of each file system.

They become one argument of mount(8), so each is matched as a whole. An option is allowed if it concerns this mount only:
with ``errors=panic``, for example, a damaged volume stops the node. Sources: mount(8), ext4(5), xfs(5), nfs(5).
"""


def parse_options(text: str, target: TargetPath, backends: Backends) -> MountRequest:
    """Return the request of one mount. Raises InvalidPod or InvalidConfig, which name the option."""
    try:
        options = msgspec.json.decode(text, type=dict[str, str])
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise InvalidPod(
            obj=f"volume {target.name}", field="options", problem=f"no JSON object of strings: {error}"
        ) from None
    volume = _volume(options, target, backends)
    backends.get(volume.backend).check(volume)
    return MountRequest(
        volume=volume,
        pod=_pod(options, target),
        target=target.path,
        read_only=_is_read_only(options, target),
        fs_group=_fs_group(options, target),
        secrets=_secrets(options, target),
    )


def _volume(options: Mapping[str, str], target: TargetPath, backends: Backends) -> StorageVolume:
    given = _of_kubelet(options, "pvOrVolumeName", target)
    if given != target.name:
        raise _bad(target, f"{_KUBELET}pvOrVolumeName", f"{given!r} is not the last component of the target")
    name = options.get("name") or given
    check_volume_name(name)
    backend = _required(options, "backend", target)
    parameters = backends.get(backend).parameters
    unknown = sorted(
        key for key in options if not key.startswith(_KUBELET) and key not in _OPTIONS | parameters
    )
    if unknown:
        known = ", ".join(sorted(_OPTIONS | parameters))
        raise _bad(target, f"option {unknown[0]}", f"is unknown to backend {backend}", f"use {known}")
    return StorageVolume(
        name=name,
        backend=backend,
        image=options.get("image") or name,
        pool=options.get("pool") or "default",
        size_bytes=_size(options, target),
        fs_type=_fs_type(options, target),
        cluster=_cluster(options, target),
        is_block=target.is_block,
        mount_options=_mount_options(options, target, backend),
        access_modes=_access_modes(options, target),
        parameters={
            **{key: options[key] for key in sorted(parameters) if options.get(key)},
            **({STATEFUL_OPTION: "true"} if _is_stateful(options, target) else {}),
        },
    )


def _pod(options: Mapping[str, str], target: TargetPath) -> PodRef:
    uid = options.get(f"{_KUBELET}pod.UID") or _of_kubelet(options, "pod.uid", target)
    if uid != target.pod_uid:
        raise _bad(target, f"{_KUBELET}pod.uid", f"{uid!r} is not the pod UID of the target")
    return PodRef(
        namespace=_of_kubelet(options, "pod.namespace", target),
        name=_of_kubelet(options, "pod.name", target),
        uid=uid,
    )


def _is_read_only(options: Mapping[str, str], target: TargetPath) -> bool:
    mode = options.get(f"{_KUBELET}readwrite") or "rw"
    if mode not in ("ro", "rw"):
        raise _bad(target, f"{_KUBELET}readwrite", f"{mode!r} is neither ro nor rw")
    return mode == "ro"


def _fs_type(options: Mapping[str, str], target: TargetPath) -> str:
    fs_type = options.get(f"{_KUBELET}fsType") or DEFAULT_FS_TYPE
    if fs_type not in MAKE_OPTIONS:
        raise _bad(target, "fsType", f"{fs_type!r} is not supported", f"use one of {', '.join(MAKE_OPTIONS)}")
    return fs_type


def _fs_group(options: Mapping[str, str], target: TargetPath) -> int | None:
    for key in _FS_GROUP:
        text = options.get(key)
        if text:
            if not (text.isascii() and text.isdigit() and int(text) < 2**32 - 1):
                raise _bad(target, key, f"{text!r} is not a group ID")
            return int(text)
    return None


def _secrets(options: Mapping[str, str], target: TargetPath) -> dict[str, bytes]:
    found = {}
    for key, text in options.items():
        if key.startswith(_SECRET):
            try:
                found[key.removeprefix(_SECRET)] = base64.b64decode(text, validate=True)
            except (binascii.Error, ValueError):
                raise _bad(target, key, "its value is not base64") from None
    return found


def _size(options: Mapping[str, str], target: TargetPath) -> int:
    text = options.get("size")
    if not text:
        return 0
    try:
        size = to_bytes(text)
    except ValueError as error:
        raise _bad(target, "option size", f"{text!r} {error}", "give a quantity such as 10Gi") from None
    if size <= 0:
        raise _bad(target, "option size", f"{text!r} is not positive", "give a quantity such as 10Gi")
    return size


def _cluster(options: Mapping[str, str], target: TargetPath) -> str:
    cluster = options.get("cluster", "")
    if not cluster:
        return ""
    if not _CLUSTER.fullmatch(cluster):
        raise _bad(
            target, "option cluster", f"{cluster!r} is not NAMESPACE/NAME", "name a storage cluster object"
        )
    return cluster


def _mount_options(options: Mapping[str, str], target: TargetPath, backend: str) -> tuple[str, ...]:
    found = tuple(one for one in options.get("mountOptions", "").split(",") if one)
    file_system = backend if backend in (DIRECTORY, nfs.NAME) else _fs_type(options, target)
    problems = [one for one in (problem_with_option(one, file_system) for one in found) if one]
    if len(found) > _MAX_OPTIONS:
        problems.append(f"there are more than {_MAX_OPTIONS}")
    if problems:
        raise _bad(
            target,
            "option mountOptions",
            problems[0],
            f"use {', '.join(_MOUNT_OPTIONS[file_system].split())}",
        )
    return found


def _access_modes(options: Mapping[str, str], target: TargetPath) -> tuple[AccessMode, ...]:
    words = [one.strip() for one in options.get("accessModes", "").split(",") if one.strip()]
    try:
        return tuple(AccessMode(word) for word in dict.fromkeys(words))
    except ValueError as error:
        known = ", ".join(mode.value for mode in AccessMode)
        raise _bad(target, "option accessModes", str(error), f"use {known}, separated by commas") from None


def _is_stateful(options: Mapping[str, str], target: TargetPath) -> bool:
    text = options.get(STATEFUL_OPTION) or "false"
    if text not in ("true", "false"):
        raise _bad(target, f"option {STATEFUL_OPTION}", f"{text!r} is neither true nor false")
    return text == "true"


def _required(options: Mapping[str, str], key: str, target: TargetPath) -> str:
    value = options.get(key)
    if not value:
        raise _bad(target, f"option {key}", "is missing", "add it to the volume's options")
    return value


def _of_kubelet(options: Mapping[str, str], key: str, target: TargetPath) -> str:
    return _required(options, f"{_KUBELET}{key}", target)


def _bad(target: TargetPath, field: str, problem: str, fix: str = "") -> InvalidPod:
    return InvalidPod(obj=f"volume {target.name}", field=field, problem=problem, fix=fix)


def problem_with_option(option: str, file_system: str) -> str:
    """Return why a volume of this file system must not be mounted with an option; empty: it may."""
    name, has_value, value = option.partition("=")
    if f"{name}{has_value}" not in _ALLOWED[file_system]:
        return f"{option!r} is not allowed for {file_system}"
    pattern = _VALUES.get(name, _NUMBER)
    if has_value and re.fullmatch(pattern, value) is None:
        return f"{option!r} is not allowed: the value must match {pattern}"
    return ""
