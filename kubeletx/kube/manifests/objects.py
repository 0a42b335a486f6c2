"""Config maps, secrets and claims in manifests: objects that pods of this node refer to without a cluster.

`load_object` decodes and validates one as an API server would: keys, base64, at most 1 MiB of content, `stringData`.
Values never appear in an error, since a secret may be the wrong value. `shown` is the form that users see.
Source: core/v1 ConfigMap, Secret, PersistentVolumeClaim; kubernetes, pkg/apis/core/validation.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from kubeletx.api import InvalidPod, ObjectData
from kubeletx.api.text import printable

from ..text.quantity import to_bytes
from ..types.meta import ObjectMeta
from ..types.objects import ConfigMap, PersistentVolumeClaim, Secret
from ..validation import words
from ..validation.metadata import check_metadata
from ..validation.problems import Problems
from .convert import convert
from .defaults import DEFAULT_NAMESPACE
from .unknown_fields import unknown_fields

LocalObject = ConfigMap | Secret | PersistentVolumeClaim
Key = tuple[str, str, str]
"""Kind, namespace and name of an object."""

OBJECT_KINDS: Final[Mapping[str, type[LocalObject]]] = {
    "ConfigMap": ConfigMap,
    "Secret": Secret,
    "PersistentVolumeClaim": PersistentVolumeClaim,
}
CHANGED_VALUE: Final = "*** (after)"
"""What `shown` has for a changed value of a secret, as in ``kubectl diff``."""
MAX_CONTENT_BYTES: Final = 1024 * 1024
STORAGE_AGENT_CLASS: Final = "kubeletx.io/storage"
"""Storage class of claims that the storage agent provides; the empty class is a directory of the node."""
_ACCESS_MODES: Final = ("ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod")
_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
_REQUIRED: Final = {
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
}
"""Keys that a secret of this type must have."""


class LoadedObject(NamedTuple):
    """One object of a manifest. `unknown`: paths of fields that its kind does not have."""

    item: LocalObject
    unknown: tuple[str, ...]


def key_of(item: LocalObject) -> Key:
    """Return the object's kind, namespace and name."""
    return item.kind, item.metadata.namespace, item.metadata.name


def named(key: Key) -> str:
    """Return the object's name in messages, such as ``configmap "default/web"``, as a kubelet writes it."""
    kind, namespace, name = key
    return f'{kind.lower()} "{namespace}/{name}"'


def load_object(document: Mapping[str, Any], kind: str, *, obj: str, prefix: str) -> LoadedObject:
    """Decode and validate an object of kind `kind`. Raises InvalidPod for the first mistake.

    `obj`: name of the object in errors. `prefix`: path of the object in its file, for errors.
    """
    plain = {key: value for key, value in document.items() if key not in ("data", "binaryData", "stringData")}
    item: LocalObject = convert(plain, OBJECT_KINDS[kind], obj=obj, prefix=prefix)
    namespace = item.metadata.namespace or DEFAULT_NAMESPACE
    item = replace(item, metadata=replace(item.metadata, namespace=namespace))
    problems = Problems(obj)
    check_metadata(item.metadata, problems)
    if isinstance(item, PersistentVolumeClaim):
        _check_claim(item, problems)
        if not problems.found:
            item = replace(item, spec=replace(item.spec, volume_name=""))
        unknown = unknown_fields(document, type(item))
    else:
        texts = _texts(document, "stringData" if kind == "Secret" else "data", problems)
        blobs = _decoded(document, "data" if kind == "Secret" else "binaryData", problems)
        _check_content(texts, blobs, problems, is_secret=kind == "Secret")
        if isinstance(item, Secret):
            item = replace(item, data=blobs | {key: text.encode() for key, text in texts.items()})
            _check_type(item, problems)
        else:
            item = replace(item, data=texts, binary_data=blobs)
        unknown = unknown_fields({key: document[key] for key in document if key != "stringData"}, type(item))
    for problem in problems.found:
        field = ".".join(part for part in (prefix, problem.field) if part)
        raise InvalidPod(obj=obj, field=field, problem=problem.problem, fix=problem.fix)
    return LoadedObject(item, unknown)


def data_of(item: ConfigMap | Secret) -> ObjectData:
    """Convert a config map or secret to `ObjectData`."""
    if isinstance(item, ConfigMap):
        return ObjectData(text=item.data, binary=item.binary_data, uid=str(item.metadata.uid))
    return ObjectData(binary=item.data, uid=str(item.metadata.uid), type=item.type)


def shown(item: LocalObject, before: LocalObject | None = None) -> dict[str, Any]:
    """Return the object's JSON form for users: each value of a secret is replaced by its size.

    `before`: the object that `item` is to replace; a secret's changed values are replaced by `CHANGED_VALUE`.
    """
    built: dict[str, Any] = msgspec.to_builtins(item)
    if isinstance(item, Secret):
        old = before.data if isinstance(before, Secret) else item.data
        built["data"] = {
            key: f"<{len(value)} bytes>" if old.get(key, value) == value else CHANGED_VALUE
            for key, value in item.data.items()
        }
        built["metadata"].get("annotations", {}).pop(_LAST_APPLIED, None)  # kubectl's copy has the values
    return built


def content_of(item: LocalObject) -> LocalObject:
    """Return the object without metadata: what an immutable object may not change."""
    return replace(item, metadata=ObjectMeta())


def requested_bytes(claim: PersistentVolumeClaim) -> int:
    """Return the size that the claim requests, in bytes."""
    return to_bytes(claim.spec.resources.requests["storage"])


def _texts(document: Mapping[str, Any], field: str, problems: Problems) -> dict[str, str]:
    """Return the texts of a field; a value of another type, or a field that is no mapping, is a problem."""
    given = document.get(field)
    if given is not None and not isinstance(given, dict):
        problems.add(field, "is not a mapping", "write key: value pairs")
        return {}
    found = {}
    for key, value in (given or {}).items():
        if isinstance(value, str) or value is None:
            found[key] = value or ""
        else:
            problems.add(f"{field}[{printable(key)}]", "is not a string", "put the value in quotes")
    return found


def _decoded(document: Mapping[str, Any], field: str, problems: Problems) -> dict[str, bytes]:
    found = {}
    for key, text in _texts(document, field, problems).items():
        try:
            found[key] = base64.b64decode("".join(text.split()), validate=True)
        except (binascii.Error, ValueError):
            problems.add(f"{field}[{printable(key)}]", "is not base64", "encode it with base64")
    return found


def _check_content(
    texts: Mapping[str, str], blobs: Mapping[str, bytes], problems: Problems, *, is_secret: bool
) -> None:
    for key in (*texts, *blobs):
        problems.word(f"data[{printable(key)}]", key, words.config_key, "rename the key")
        if not key:
            problems.add("data", "has an empty key", "name the key")
    for key in () if is_secret else texts.keys() & blobs.keys():
        problems.add(f"binaryData[{printable(key)}]", "is a key of data, too", "keep one of them")
    size = sum(len(text.encode()) for text in texts.values()) + sum(len(blob) for blob in blobs.values())
    if size > MAX_CONTENT_BYTES:
        fix = "split it into several objects"
        problems.add("data", f"has {size} bytes, more than {MAX_CONTENT_BYTES}", fix)


def _check_type(secret: Secret, problems: Problems) -> None:
    for key in _REQUIRED.get(secret.type, ()):
        if key not in secret.data:
            problems.add(f"data[{key}]", "is missing", f"add it; type {secret.type} requires it")


def _check_claim(claim: PersistentVolumeClaim, problems: Problems) -> None:
    """Check a claim that is bound on this node: to a directory, or to a volume of the storage agent."""
    spec = claim.spec
    if not spec.access_modes:
        problems.add("spec.accessModes", "is missing", "write [ReadWriteOnce]")
    for index, mode in enumerate(spec.access_modes):
        problems.one_of(f"spec.accessModes[{index}]", mode, _ACCESS_MODES)
    size = problems.quantity("spec.resources.requests[storage]", spec.resources.requests.get("storage"))
    if size is None or size.nanos == 0:
        problems.add("spec.resources.requests[storage]", "is missing", "write the size, such as 1Gi")
    if spec.storage_class_name not in (None, "", STORAGE_AGENT_CLASS):
        problems.add(
            "spec.storageClassName",
            f"{spec.storage_class_name!r} has no provisioner on this node",
            f"leave it out for a directory of this node, or write {STORAGE_AGENT_CLASS} for the storage agent",
        )
    elif spec.volume_mode == "Block" and spec.storage_class_name != STORAGE_AGENT_CLASS:
        problems.add("spec.volumeMode", "Block needs a device", "write Filesystem, or leave it out")
    for field, value in (
        ("volumeName", spec.volume_name),
        ("selector", spec.selector),
        ("dataSource", spec.data_source),
        ("dataSourceRef", spec.data_source_ref),
    ):
        if value:
            fix = "remove it; the node itself makes the volume"
            problems.add(f"spec.{field}", "names an object of a cluster", fix)
