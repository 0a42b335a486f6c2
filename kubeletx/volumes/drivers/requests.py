"""Builds the requests that volume drivers get, from a pod's volumes and persistent volumes. Pure.

A volume's source is read as JSON values: ``fsType``, ``readOnly`` and the reference to a secret have the same names in
all sources that have them.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from kubeletx.api import ClusterVolume, VolumePod, VolumeRequest
from kubeletx.kube.types.core import Pod, Volume
from kubeletx.kube.types.meta import json_name
from kubeletx.kube.validation.volumes import options_problem

from .. import layout
from ..prepared import VolumeError
from ..references import service_account_of
from .table import NAMED_DRIVERS

_OPTIONS: Final = {"flexVolume": "options", "csi": "volumeAttributes"}
"""Fields with the driver's own options; all other fields of other sources are options."""
_SECRET: Final = {"csi": "nodePublishSecretRef"}
_COMMON: Final = frozenset({"fsType", "readOnly", "secretRef"})


class SecretRef(msgspec.Struct, frozen=True, kw_only=True):
    """Secret that a volume's source names. `type`: type that it must have; empty: any. `field`: for errors."""

    namespace: str
    name: str
    type: str = ""
    field: str = ""


class DriverVolume(msgspec.Struct, frozen=True, kw_only=True):
    """One volume of a pod that a volume driver prepares.

    `request` has no secrets yet. `field`: path of the volume's source in the manifest, for errors.
    """

    request: VolumeRequest
    field: str
    secret: SecretRef | None = None
    claim_bytes: int = 0
    """Size in the status of the claim; 0: unknown, or there is no claim."""


def inline_request(pod: Pod, volume: Volume, attribute: str, root_dir: Path, field: str) -> DriverVolume:
    """Return the request for a volume that is written in the pod.

    `attribute`: the attribute of `Volume` that is set. `field`: path of the volume, such as ``spec.volumes[0]``.
    Raises VolumeError if the source is invalid.
    """
    source = json_name(attribute)
    values = msgspec.to_builtins(getattr(volume, attribute))
    where = f"{field}.{source}"
    return _request(pod, volume.name, source, values, root_dir, where)


def claimed_request(
    pod: Pod, volume: Volume, bound: ClusterVolume, root_dir: Path, field: str
) -> DriverVolume:
    """Return the request for the persistent volume that a claim of the pod is bound to. Raises VolumeError."""
    claim = volume.persistent_volume_claim
    values = dict(bound.source)
    if bound.kind == "nfs":
        values |= {"server": bound.server, "path": bound.path}
    if bound.read_only or (claim is not None and claim.read_only):
        values["readOnly"] = True
    return _request(pod, volume.name, bound.kind, values, root_dir, field, bound)


def _request(
    pod: Pod,
    name: str,
    source: str,
    values: Mapping[str, Any],
    root_dir: Path,
    field: str,
    bound: ClusterVolume | None = None,
) -> DriverVolume:
    driver = values.get("driver", "") if source in NAMED_DRIVERS else ""
    if not isinstance(driver, str) or (source in NAMED_DRIVERS and not driver):
        raise VolumeError(field=f"{field}.driver", problem=f"{driver!r} is not a driver name")
    options = _options(source, values, field)
    security = pod.spec.security_context
    volume_name, is_block = (bound.name, bound.is_block) if bound is not None else (name, False)
    if bound is None and source == layout.FLEX_VOLUME:
        is_block = _is_used_as_device(pod, name)
    target = layout.driver_volume_dir(root_dir, pod.uid, source, driver, volume_name, is_block=is_block)
    request = VolumeRequest(
        pod=VolumePod(
            uid=pod.uid,
            name=pod.name,
            namespace=pod.namespace,
            service_account=service_account_of(pod),
        ),
        name=name,
        source=source,
        driver=driver,
        target=str(target),
        persistent_volume=bound.name if bound is not None else "",
        persistent_volume_uid=bound.uid if bound is not None else "",
        claim=bound.claim if bound is not None else "",
        options=options,
        fs_type=_text(values, "fsType", field),
        read_only=values.get("readOnly") is True,
        is_block=is_block,
        access_modes=bound.access_modes if bound is not None else (),
        mount_options=bound.mount_options if bound is not None else (),
        capacity_bytes=bound.capacity_bytes if bound is not None else 0,
        fs_group=security.fs_group if security is not None else None,
        fs_group_change_policy=(security.fs_group_change_policy or "") if security is not None else "",
    )
    return DriverVolume(
        request=request,
        field=field,
        secret=_secret(pod, source, driver, values, field),
        claim_bytes=bound.claim_bytes if bound is not None else 0,
    )


def _is_used_as_device(pod: Pod, name: str) -> bool:
    """Return True if the pod's volumeDevices have the volume.

    A volume that a pod describes itself has no volumeMode.
    """
    spec = pod.spec
    machine = (spec.virtual_machine,) if spec.virtual_machine is not None else ()
    units = (*machine, *spec.init_containers, *spec.containers)
    return any(device.name == name for unit in units for device in unit.volume_devices)


def _options(source: str, values: Mapping[str, Any], field: str) -> dict[str, Any]:
    if (key := _OPTIONS.get(source)) is None:
        return {name: value for name, value in values.items() if name not in _COMMON}
    options = values.get(key) or {}
    if not isinstance(options, dict):
        raise VolumeError(field=f"{field}.{key}", problem="is not a mapping of options")
    _check_options(source, options, f"{field}.{key}")
    if source == "csi" and values.get("volumeHandle"):
        return {"volumeHandle": values["volumeHandle"], **options}
    return dict(options)


def _check_options(source: str, options: Mapping[str, Any], field: str) -> None:
    """Raise VolumeError for an option that the API server would refuse; manifest files do not pass through it."""
    if source == layout.FLEX_VOLUME and (wrong := options_problem(options)) is not None:
        where, problem, fix = wrong
        raise VolumeError(field=f"{field}{where}", problem=problem, fix=fix)
    for key, value in options.items():
        if not isinstance(value, str):
            raise VolumeError(field=f"{field}[{key}]", problem="is not a string", fix="write a string")


def _secret(pod: Pod, source: str, driver: str, values: Mapping[str, Any], field: str) -> SecretRef | None:
    key = _SECRET.get(source, "secretRef")
    ref = values.get(key)
    name = ref.get("name") if isinstance(ref, Mapping) else None
    if not isinstance(ref, Mapping) or not isinstance(name, str) or not name:
        return None
    namespace = ref.get("namespace")
    return SecretRef(
        namespace=namespace if isinstance(namespace, str) and namespace else pod.namespace,
        name=name,
        type=driver if source == layout.FLEX_VOLUME else "",
        field=f"{field}.{key}",
    )


def _text(values: Mapping[str, Any], key: str, field: str) -> str:
    value = values.get(key) or ""
    if not isinstance(value, str):
        raise VolumeError(field=f"{field}.{key}", problem=f"{value!r} is not a string")
    return value
