"""Builds the files of downwardAPI, configMap, secret and serviceAccountToken sources, and writes volumes from them.

Volumes of these kinds and projected volumes use it. The content comes from the Pod and from an `ObjectSet`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from kubeletx.api import ObjectData, TokenParameters
from kubeletx.api.names import Event
from kubeletx.kube.manifests.volume_defaults import TOKEN_EXPIRATION_SECONDS
from kubeletx.kube.types.core import (
    ConfigMapProjection,
    ConfigMapVolumeSource,
    DownwardAPIVolumeFile,
    EmptyDirVolumeSource,
    KeyToPath,
    Pod,
    SecretProjection,
    SecretVolumeSource,
    ServiceAccountTokenProjection,
)
from kubeletx.linux.mounts import find_mount

from .. import layout
from ..cluster_objects import Unread, read
from ..files.atomic_writer import DEFAULT_MODE, FileContent, check_path, write_files
from ..mounting import mount_tmpfs
from ..pod_fields import all_containers, containers_by_name, field_text, resource_text
from ..prepared import PreparedVolume, SetUp, VolumeError
from .empty_dir import make_volume_dir, memory_size

Files = dict[str, FileContent]

VOLUME_MODE: Final = 0o777
PRIVATE_MODE: Final = 0o600
REASON: Final = Event.FAILED_MOUNT
MAX_VOLUME_BYTES: Final = 32 * 1024 * 1024
"""Limit for the size of all files of one volume together.

Without a limit, a manifest of 1 MB could use one large value in ten thousand files.
"""
_FIX_STATIC: Final = "this pod's source gives no cluster objects: use hostPath, or mark it optional"
_FIX_NO_TOKEN: Final = "this pod's source gives no cluster objects: use a file of the node (hostPath)"


def downward_files(
    request: SetUp, items: Sequence[DownwardAPIVolumeFile], default_mode: int | None, field: str
) -> Files:
    """Return one file for each item, with the value of a field of the pod or of a container's resource.

    `default_mode`: mode of files whose item has none; None: 0644. `field`: path in the manifest, for errors.
    """
    files: Files = {}
    containers = containers_by_name(request.pod)
    known: dict[str, bytes] = {}  # annotations may be large and be named by any number of items
    for index, item in enumerate(items):
        where = f"{field}.items[{index}]"
        if item.field_ref is not None:
            path = item.field_ref.field_path
            if path not in known:
                known[path] = field_text(
                    request.pod, item.field_ref, request.fields, field=f"{where}.fieldRef", reason=REASON
                ).encode()
            data = known[path]
        elif item.resource_field_ref is not None:
            data = resource_text(
                request.pod,
                None,
                item.resource_field_ref,
                request.fields,
                field=f"{where}.resourceFieldRef",
                containers=containers,
                reason=REASON,
            ).encode()
        else:
            raise VolumeError(field=where, problem="names neither fieldRef nor resourceFieldRef")
        files[item.path] = FileContent(data=data, mode=_mode(item.mode, default_mode))
    return checked(files, field)


def config_map_files(
    request: SetUp,
    source: ConfigMapVolumeSource | ConfigMapProjection,
    default_mode: int | None,
    field: str,
) -> Files:
    """Return the files of a config map: one for each of its items, or for each key if there are no items.

    Empty if the config map does not exist and is optional. `default_mode`, `field`: as for `downward_files`. Raises
    InvalidPod if it is required and does not exist or the pod's source has no cluster, and `Unread` if it could not
    be fetched.
    """
    data = read(request.objects.config_maps, source.name) if request.objects is not None else None
    optional = bool(source.optional)
    _require(request, data, f'configmap "{source.name}"', optional=optional, field=field)
    return _keys(
        data, source.items, default_mode, f'configmap "{source.name}"', optional=optional, field=field
    )


def secret_files(
    request: SetUp,
    name: str,
    source: SecretVolumeSource | SecretProjection,
    default_mode: int | None,
    field: str,
) -> Files:
    """Return the files of secret `name`, by the rules of `config_map_files`."""
    data = read(request.objects.secrets, name) if request.objects is not None else None
    optional = bool(source.optional)
    _require(request, data, f'secret "{name}"', optional=optional, field=field)
    return _keys(data, source.items, default_mode, f'secret "{name}"', optional=optional, field=field)


def _require(request: SetUp, data: ObjectData | None, what: str, *, optional: bool, field: str) -> None:
    if data is None and not optional:
        if request.objects is None:
            raise VolumeError(field=field, problem=f"{what} cannot be read", fix=_FIX_STATIC)
        raise VolumeError(field=field, problem=f"{what} not found", fix="create it, or mark it optional")


def _keys(
    data: ObjectData | None,
    items: Sequence[KeyToPath],
    default_mode: int | None,
    what: str,
    *,
    optional: bool,
    field: str,
) -> Files:
    content = data.as_bytes() if data is not None else {}
    files: Files = {}
    if not items:
        mode = _mode(None, default_mode)
        files = {key: FileContent(data=value, mode=mode) for key, value in content.items()}
    for index, item in enumerate(items if data is not None else ()):
        if item.key in content:
            files[item.path] = FileContent(data=content[item.key], mode=_mode(item.mode, default_mode))
        elif not optional:
            raise VolumeError(
                field=f"{field}.items[{index}].key",
                problem=f"{what} has no key {item.key!r}",
                fix="add the key, or set optional: true",
            )
    return checked(files, field)


def token_file(
    request: SetUp, source: ServiceAccountTokenProjection, default_mode: int | None, field: str
) -> Files:
    """Return the file with the service account token (docs/kubelet-parity.md, row V6).

    If the manifest sets one user for all containers, this user owns the file. With such a user, or with an fsGroup,
    other users cannot read the file.
    """
    if request.objects is None:
        raise VolumeError(field=field, problem="no service account token can be requested", fix=_FIX_NO_TOKEN)
    seconds = source.expiration_seconds or TOKEN_EXPIRATION_SECONDS
    token = read(
        request.objects.tokens, TokenParameters(audience=source.audience or "", expiration_seconds=seconds)
    )
    if token is None:
        raise Unread(f"{field}: the token was not requested")
    user = only_user(request.pod)
    is_private = user is not None or request.fs_group is not None
    mode = PRIVATE_MODE if is_private else _mode(None, default_mode)
    return checked({source.path: FileContent(data=token, mode=mode, user=user)}, field)


def only_user(pod: Pod) -> int | None:
    """Return the runAsUser that applies to all containers of the pod; None if they differ or none is set."""
    security = pod.spec.security_context
    default = security.run_as_user if security is not None else None
    users = {
        container.security_context.run_as_user
        if container.security_context is not None and container.security_context.run_as_user is not None
        else default
        for container in all_containers(pod)
    }
    return users.pop() if len(users) == 1 else None


def write_volume(
    request: SetUp, kind: str, files: Files, *, in_memory: bool, optional: bool = False
) -> PreparedVolume:
    """Make the directory of the volume contain exactly `files`, and return the prepared volume.

    `kind`: name of the kind's directory, such as ``configmap``. `in_memory`: put the files on a tmpfs, for content that
    must never reach a disk. `optional`: some files may be missing because an optional object does not exist.
    """
    path = layout.volume_dir(request.root_dir, request.pod.uid, kind, request.volume.name)
    make_volume_dir(path, VOLUME_MODE, request.fs_group)
    if in_memory:
        _mount_memory(request, path)
    write_files(path, files, group=request.fs_group)
    return PreparedVolume(name=request.volume.name, source=str(path), read_only=True, optional=optional)


def checked(files: Files, field: str) -> Files:
    """Return `files` unchanged.

    Raises InvalidPod if a path is not allowed or the total size exceeds the limit.
    """
    check_size(size_of(files), field)
    for path in files:
        try:
            check_path(path)
        except ValueError as err:
            raise VolumeError(
                field=f"{field}.items", problem=str(err), fix="use a relative path inside the volume"
            ) from err
    return files


def size_of(files: Files) -> int:
    """Return the size of all files together in bytes; a value that is in several files counts several times."""
    return sum(len(file.data) for file in files.values())


def check_size(size: int, field: str) -> None:
    """Raise InvalidPod if `size` exceeds `MAX_VOLUME_BYTES`."""
    if size > MAX_VOLUME_BYTES:
        raise VolumeError(
            field=field,
            problem=f"has files of {size} bytes together, more than {MAX_VOLUME_BYTES}",
            fix="name fewer of them, or use several volumes",
        )


def _mode(own: int | None, default: int | None) -> int:
    if own is not None:
        return own
    return DEFAULT_MODE if default is None else default


def _mount_memory(request: SetUp, path: Path) -> None:
    if find_mount(request.mounter.mounts(path), path) is None:
        size = memory_size(request.pod, EmptyDirVolumeSource(), request.fields.allocatable)
        mount_tmpfs(request.mounter, path, size_bytes=size, group=request.fs_group)
