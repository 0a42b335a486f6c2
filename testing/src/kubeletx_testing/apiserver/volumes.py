"""PersistentVolumes and PersistentVolumeClaims: defaults, validation, immutable fields.

Both get a finalizer when they are created; see `protection`. There are no storage classes here: a claim that names one
may grow. Source: kubernetes, pkg/apis/core/v1/defaults.go, pkg/apis/core/validation/validation.go
ValidatePersistentVolume and ValidatePersistentVolumeClaim, plugin/pkg/admission/storage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from kubeletx.kube.text.quantity import to_bytes

from .errors import Json, forbidden, invalid
from .resources import resource

VOLUMES: Final = resource("persistentvolumes")
CLAIMS: Final = resource("persistentvolumeclaims")
VOLUME_FINALIZER: Final = "kubernetes.io/pv-protection"
CLAIM_FINALIZER: Final = "kubernetes.io/pvc-protection"
MODES: Final = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
_POLICIES: Final = ("Delete", "Recycle", "Retain")
_VOLUME_MODES: Final = ("Block", "Filesystem")
_RESERVED: Final = (".kubernetes.io", ".k8s.io")
_SOURCES: Final = (
    "hostPath",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "glusterfs",
    "flocker",
    "nfs",
    "rbd",
    "quobyte",
    "cephfs",
    "iscsi",
    "cinder",
    "fc",
    "flexVolume",
    "azureFile",
    "vsphereVolume",
    "photonPersistentDisk",
    "portworxVolume",
    "azureDisk",
    "scaleIO",
    "local",
    "storageos",
    "csi",
)
"""Kinds of a PersistentVolume, in the order in which a server looks for them."""

Cause = tuple[str, str, str]


def new_volume(made: Json) -> Json:
    """Return a new PersistentVolume with its defaults. Raises StatusError 422 if it is invalid."""
    spec = {"volumeMode": "Filesystem", "persistentVolumeReclaimPolicy": "Retain", **(made.get("spec") or {})}
    made = _protected({**made, "spec": spec, "status": {"phase": "Pending"}}, VOLUME_FINALIZER)
    if causes := list(_volume_causes(spec)):
        raise invalid(VOLUMES, made["metadata"]["name"], causes)
    return made


def new_claim(made: Json) -> Json:
    """Return a new PersistentVolumeClaim with its defaults. Raises StatusError 422 if it is invalid."""
    spec = {"volumeMode": "Filesystem", **(made.get("spec") or {})}
    made = _protected({**made, "spec": spec, "status": {"phase": "Pending"}}, CLAIM_FINALIZER)
    if causes := list(_claim_causes(spec)):
        raise invalid(CLAIMS, made["metadata"]["name"], causes)
    return made


def change_volume(old: Json, new: Json) -> Json:
    """Return the PersistentVolume to store when `old` is changed to `new`; the status of `old` is kept.

    Raises StatusError 422 if it is invalid, or its source or mode changes.
    """
    before, spec = old["spec"], {"volumeMode": "Filesystem", **(new.get("spec") or {})}
    causes = list(_volume_causes(spec))
    if _source(spec) != _source(before):
        problem = "Forbidden: spec.persistentvolumesource is immutable after creation"
        causes.append(("spec.persistentvolumesource", "FieldValueForbidden", problem))
    causes += _changed_mode(before, spec)
    if causes:
        raise invalid(VOLUMES, old["metadata"]["name"], causes)
    return {**new, "spec": spec, "status": old.get("status", {})}


def change_claim(old: Json, new: Json) -> Json:
    """Return the claim to store when `old` is changed to `new`; the status of `old` is kept.

    Its volume can be set once, and a bound claim can grow; nothing else of the spec changes. Raises StatusError 403 or
    422.
    """
    before, spec = old["spec"], {"volumeMode": "Filesystem", **(new.get("spec") or {})}
    is_bound = old.get("status", {}).get("phase") == "Bound"
    causes = list(_claim_causes(spec))
    if not causes and _comparable(before, before, is_bound) != _comparable(spec, before, is_bound):
        problem = (
            "Forbidden: spec is immutable after creation except resources.requests and volumeAttributesClassName for "
            "bound claims"
        )
        causes.append(("spec", "FieldValueForbidden", problem))
    if not causes and to_bytes(_requested(spec)) < to_bytes(_requested(before)):
        causes += _shrunk(old, spec)
    causes += _changed_mode(before, spec)
    name = old["metadata"]["name"]
    if causes:
        raise invalid(CLAIMS, name, causes)
    if to_bytes(_requested(spec)) > to_bytes(_requested(before)) and not spec.get("storageClassName"):
        problem = (
            "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must "
            "support resize"
        )
        raise forbidden(CLAIMS, name, problem)
    return {**new, "spec": spec, "status": old.get("status", {})}


def _protected(made: Json, finalizer: str) -> Json:
    metadata = made["metadata"]
    known = metadata.get("finalizers") or []
    if finalizer in known:
        return made
    return {**made, "metadata": {**metadata, "finalizers": [*known, finalizer]}}


def _volume_causes(spec: Json) -> Iterator[Cause]:
    yield from _wrong_modes(spec, "")
    capacity = spec.get("capacity") or {}
    if not capacity:
        yield "spec.capacity", "FieldValueRequired", "Required value"
    if set(capacity) != {"storage"}:
        problem = f'Unsupported value: {capacity}: supported values: "storage"'
        yield "spec.capacity", "FieldValueNotSupported", problem
    for name, value in capacity.items():
        yield from _not_positive(f"spec.capacity[{name}]", value)
    yield from _not_one_of(spec, "persistentVolumeReclaimPolicy", _POLICIES)
    yield from _not_one_of(spec, "volumeMode", _VOLUME_MODES)
    kinds = [kind for kind in _SOURCES if spec.get(kind) is not None]
    for kind in kinds[1:]:
        if kind == "flexVolume":  # a server does not count what it has found before
            continue
        yield f"spec.{kind}", "FieldValueForbidden", "Forbidden: may not specify more than 1 volume type"
    if not kinds:
        yield "spec", "FieldValueRequired", "Required value: must specify a volume type"
    if "flexVolume" in kinds:
        yield from flex_causes(spec["flexVolume"], "spec.flexVolume")


def flex_causes(source: Json, path: str) -> Iterator[Cause]:
    """Yield a cause for each violated rule of a FlexVolume source. `path`: path of the source in its object."""
    if not source.get("driver"):
        yield f"{path}.driver", "FieldValueRequired", "Required value"
    for key in source.get("options") or {}:
        if f".{key.partition('/')[0].lower()}".endswith(_RESERVED):
            problem = f'Invalid value: "{key}": kubernetes.io and k8s.io namespaces are reserved'
            yield f"{path}.options[{key}]", "FieldValueInvalid", problem


def _claim_causes(spec: Json) -> Iterator[Cause]:
    yield from _wrong_modes(spec, ": at least 1 access mode is required")
    requested = _requested(spec)
    if not requested:
        yield "spec.resources[storage]", "FieldValueRequired", "Required value"
    else:
        yield from _not_positive("spec.resources[storage]", requested)
    yield from _not_one_of(spec, "volumeMode", _VOLUME_MODES)


def _wrong_modes(spec: Json, words: str) -> Iterator[Cause]:
    modes: Sequence[str] = spec.get("accessModes") or ()
    if not modes:
        yield "spec.accessModes", "FieldValueRequired", f"Required value{words}"
    for mode in modes:
        if mode not in MODES:
            yield "spec.accessModes", "FieldValueNotSupported", _unsupported(mode, MODES)
    known = set(modes) & set(MODES)
    if "ReadWriteOncePod" in known and len(known) > 1:
        problem = "Forbidden: may not use ReadWriteOncePod with other access modes"
        yield "spec.accessModes", "FieldValueForbidden", problem


def _not_positive(path: str, value: object) -> Iterator[Cause]:
    if to_bytes(str(value)) <= 0:
        problem = f'Invalid value: "{value}": must be greater than zero'
        yield path, "FieldValueInvalid", problem


def _not_one_of(spec: Json, field: str, known: Sequence[str]) -> Iterator[Cause]:
    value = spec.get(field)
    if value and value not in known:
        yield f"spec.{field}", "FieldValueNotSupported", _unsupported(value, known)


def _unsupported(value: str, known: Sequence[str]) -> str:
    words = ", ".join(f'"{one}"' for one in known)
    return f'Unsupported value: "{value}": supported values: {words}'


def _changed_mode(before: Json, spec: Json) -> list[Cause]:
    if before.get("volumeMode") == spec.get("volumeMode"):
        return []
    problem = f'Invalid value: "{spec.get("volumeMode")}": field is immutable'
    return [("volumeMode", "FieldValueInvalid", problem)]


def _shrunk(old: Json, spec: Json) -> list[Cause]:
    """Return the cause for a claim that is made smaller than its volume is."""
    has = (old.get("status", {}).get("capacity") or {}).get("storage", "0")
    if to_bytes(_requested(spec)) > to_bytes(str(has)):
        return []
    problem = "Forbidden: field can not be less than status.capacity"
    return [("spec.resources.requests.storage", "FieldValueForbidden", problem)]


def _comparable(spec: Json, before: Json, is_bound: bool) -> Json:
    """Return the part of a claim's spec that must be that of `before`."""
    made = dict(spec)
    if not before.get("volumeName"):
        made.pop("volumeName", None)
    if is_bound:
        made.pop("volumeAttributesClassName", None)
        resources: Mapping[str, Any] = spec.get("resources") or {}
        requests = {**(resources.get("requests") or {}), "storage": ""}
        made["resources"] = {**resources, "requests": requests}
    return made


def _requested(spec: Json) -> str:
    requests = (spec.get("resources") or {}).get("requests") or {}
    return str(requests.get("storage", ""))


def _source(spec: Json) -> Json:
    return {kind: spec[kind] for kind in _SOURCES if spec.get(kind) is not None}


NEW: Final[dict[str, Callable[[Json], Json]]] = {VOLUMES.plural: new_volume, CLAIMS.plural: new_claim}
CHANGE: Final[dict[str, Callable[[Json, Json], Json]]] = {
    VOLUMES.plural: change_volume,
    CLAIMS.plural: change_claim,
}
