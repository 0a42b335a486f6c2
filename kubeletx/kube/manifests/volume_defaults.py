"""Defaults of volumes, such as file modes, and of imagePullPolicy. A volume without a source becomes an emptyDir.

Source: kubernetes, pkg/apis/core/v1/defaults.go.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from kubeletx.api import find_image_reference

from ..types.core import (
    DownwardAPIProjection,
    DownwardAPIVolumeFile,
    EmptyDirVolumeSource,
    ISCSIVolumeSource,
    ProjectedVolumeSource,
    Volume,
    VolumeProjection,
    VolumeSource,
)

FILE_MODE: Final = 0o644
TOKEN_EXPIRATION_SECONDS: Final = 3600
SOURCES: Final = VolumeSource.__struct_fields__
"""Attributes of `Volume` that hold a source."""


def source_names(volume: Volume) -> list[str]:
    """Return the names of the source attributes that are set, such as ``empty_dir``; a valid volume has exactly one."""
    return [name for name in SOURCES if getattr(volume, name) is not None]


def volume_defaults(volume: Volume) -> Volume:
    """Return the volume with every default set."""
    sources = source_names(volume)
    if not sources:
        return msgspec.structs.replace(volume, empty_dir=EmptyDirVolumeSource())
    changed: dict[str, Any] = {}
    if volume.config_map is not None and volume.config_map.default_mode is None:
        changed["config_map"] = msgspec.structs.replace(volume.config_map, default_mode=FILE_MODE)
    if volume.secret is not None and volume.secret.default_mode is None:
        changed["secret"] = msgspec.structs.replace(volume.secret, default_mode=FILE_MODE)
    if volume.downward_api is not None:
        changed["downward_api"] = msgspec.structs.replace(
            volume.downward_api,
            default_mode=FILE_MODE
            if volume.downward_api.default_mode is None
            else volume.downward_api.default_mode,
            items=_files(volume.downward_api.items),
        )
    if volume.projected is not None:
        changed["projected"] = _projected(volume.projected)
    if volume.iscsi is not None:
        changed["iscsi"] = _iscsi(volume.iscsi)
    if volume.image is not None and not volume.image.pull_policy:
        policy = pull_policy(volume.image.reference or "")
        changed["image"] = msgspec.structs.replace(volume.image, pull_policy=policy)
    return msgspec.structs.replace(volume, **changed) if changed else volume


def _projected(projected: ProjectedVolumeSource) -> ProjectedVolumeSource:
    mode = FILE_MODE if projected.default_mode is None else projected.default_mode
    sources = tuple(_projection(source) for source in projected.sources)
    return msgspec.structs.replace(projected, default_mode=mode, sources=sources)


def _projection(source: VolumeProjection) -> VolumeProjection:
    if source.downward_api is not None:
        files = DownwardAPIProjection(items=_files(source.downward_api.items))
        return msgspec.structs.replace(source, downward_api=files)
    token = source.service_account_token
    if token is not None and token.expiration_seconds is None:
        token = msgspec.structs.replace(token, expiration_seconds=TOKEN_EXPIRATION_SECONDS)
        return msgspec.structs.replace(source, service_account_token=token)
    return source


def _files(items: tuple[DownwardAPIVolumeFile, ...]) -> tuple[DownwardAPIVolumeFile, ...]:
    return tuple(
        msgspec.structs.replace(item, field_ref=msgspec.structs.replace(item.field_ref, api_version="v1"))
        if item.field_ref is not None and not item.field_ref.api_version
        else item
        for item in items
    )


def _iscsi(iscsi: ISCSIVolumeSource) -> ISCSIVolumeSource:
    if iscsi.iscsi_interface:
        return iscsi
    return msgspec.structs.replace(iscsi, iscsi_interface="default")


def pull_policy(image: str) -> str:
    """Return the default imagePullPolicy: Always for the tag ``latest``, written or implied, else IfNotPresent.

    The result is Always, too, if `image` is not an image reference, such as the URL of a virtual machine's
    disk. A prefix ``oci:`` is ignored.
    """
    reference = find_image_reference(image.removeprefix("oci:"))
    return "Always" if reference is None or reference.tag == "latest" else "IfNotPresent"
