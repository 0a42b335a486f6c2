"""One-line variants of valid pods: each field of a Pod once, with the values that authors get wrong.

The fields come from `PodSpec` and `ObjectMeta`, so a new field is covered as soon as a pod of ``pod_samples.yaml`` sets it.
"""

from __future__ import annotations

import json
import types
import typing
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import yaml

from kubeletx.kube.types.core import IntOrString, ObjectMeta, PodSpec

SAMPLES: Final = Path(__file__).with_name("pod_samples.yaml")
EXTENSIONS: Final = frozenset({"virtualMachine", "vpc", "nics", "runtimeServiceName"})
"""Fields of our Pod that no other Pod has."""
REFUSED: Final = frozenset(
    [
        "ephemeralContainers",
        "schedulingGates",
        "serviceAccountName",
        "serviceAccount",
        "imagePullSecrets",
        "resourceClaims",
        "claims",
        "envFrom",
        "secret",
        "configMap",
        "persistentVolumeClaim",
        "ephemeral",
        "csi",
        "azureFile",
        "glusterfs",
        "secretRef",
        "configMapKeyRef",
        "secretKeyRef",
        "serviceAccountToken",
        "clusterTrustBundle",
        "podCertificate",
        "volumeDevices",
    ]
)
"""Fields that a manifest may never set, whatever their values."""
_QUANTITIES: Final = frozenset({"sizeLimit", "divisor"})
_AMOUNTS: Final = frozenset({"limits", "requests", "overhead"})

Step = str | int
Value = tuple[str, Any]

WRONG_KIND: Final = "wrong kind: "
"""Start of the word of a variant whose value is of another kind than the field."""


class Variant(NamedTuple):
    """One changed pod. `field`: path of the changed value; `word`: what it is changed to; `manifest`: JSON."""

    field: str
    word: str
    manifest: bytes


_STRINGS: Final[tuple[Value, ...]] = (
    ("empty", ""),
    ("64", "x" * 64),
    ("254", "x" * 254),
    ("UPPER", "XY"),
    ("wrong", "wrong"),
    ("x_y", "x_y"),
    ("x/y", "x/y"),
    ("/x", "/x"),
    ("../x", "../x"),
    ("x:y", "x:y"),
)
_INTEGERS: Final[tuple[Value, ...]] = (
    ("0", 0),
    ("-1", -1),
    ("1", 1),
    ("101", 101),
    ("512", 512),
    ("65536", 65536),
    ("2^31-1", 2**31 - 1),
    ("2^31", 2**31),
    ("2^63-1", 2**63 - 1),
    ("2^63", 2**63),
    ("1.0", 1.0),
)
_BOOLEANS: Final[tuple[Value, ...]] = (
    ("true", True),
    ("false", False),
)
_QUANTITY: Final[tuple[Value, ...]] = (
    ("0", 0),
    ("'0'", "0"),
    ("empty", ""),
    ("_1", " 1"),
    ("1_", "1 "),
    ("1", 1),
    ("-1", -1),
    ("3", "3"),
    ("1.5", 1.5),
    ("1e3", "1e3"),
    ("1x", "1x"),
    ("1K", "1K"),
    ("1k", "1k"),
    ("1Ki", "1Ki"),
    ("100m", "100m"),
    ("1Gi", "1Gi"),
    ("1n", "1n"),
    ("0x1", "0x1"),
)
_PORTS: Final[tuple[Value, ...]] = (
    *_INTEGERS,
    ("65535", 65535),
    ("'80'", "80"),
    ("name", "http"),
    ("UPPER", "HTTP"),
    ("x_y", "x_y"),
    ("_x", " x"),
    ("16", "x" * 16),
)
_TIMES: Final[tuple[Value, ...]] = (
    ("date", "2026-01-01"),
    ("no zone", "2026-01-01T00:00:00"),
    ("offset", "2026-01-01T00:00:00+01:00"),
    ("fraction", "2026-01-01T00:00:00.5Z"),
    ("empty", ""),
    ("word", "now"),
)
_LISTS: Final[tuple[Value, ...]] = (("[]", []), ("[null]", [None]))
_STRUCTS: Final[tuple[Value, ...]] = (("{}", {}),)
_MAPS: Final[tuple[Value, ...]] = (
    ("{}", {}),
    ("{a: null}", {"a": None}),
    ("{a: ''}", {"a": ""}),
    ("{a: ' b'}", {"a": " b"}),
    ("{a: 64}", {"a": "x" * 64}),
    ("{a: b/c}", {"a": "b/c"}),
    ("{'': b}", {"": "b"}),
    ("{' a': b}", {" a": "b"}),
    ("{a/b/c: d}", {"a/b/c": "d"}),
    ("{A/b: d}", {"A/b": "d"}),
    ("{A: d}", {"A": "d"}),
    ("{/b: d}", {"/b": "d"}),
    ("{k8s.io/a: d}", {"k8s.io/a": "d"}),
    ("{64: d}", {"x" * 64: "d"}),
)
_RESOURCES: Final[tuple[Value, ...]] = (
    ("{}", {}),
    ("{cpu: null}", {"cpu": None}),
    ("{cpu: 0}", {"cpu": 0}),
    ("{cpu: -1}", {"cpu": -1}),
    ("{cpu: ' 1'}", {"cpu": " 1"}),
    ("{cpu: 1.5}", {"cpu": 1.5}),
    ("{cpu: 1u}", {"cpu": "1u"}),
    ("{CPU: 1}", {"CPU": 1}),
    ("{memory: 64Mi}", {"memory": "64Mi"}),
    ("{memory: 1.5}", {"memory": 1.5}),
    ("{memory: 100m}", {"memory": "100m"}),
    ("{memroy: 64Mi}", {"memroy": "64Mi"}),
    ("{'': 1}", {"": 1}),
    ("{foo: 1}", {"foo": 1}),
    ("{pods: 1}", {"pods": 1}),
    ("{storage: 1}", {"storage": 1}),
    ("{requests.cpu: 1}", {"requests.cpu": 1}),
    ("{ephemeral-storage: 1}", {"ephemeral-storage": 1}),
    ("{hugepages-2Mi: 2Mi}", {"hugepages-2Mi": "2Mi"}),
    ("{hugepages-2Mi: 3Mi, cpu: 1}", {"hugepages-2Mi": "3Mi", "cpu": 1}),
    ("{hugepages-x: 2Mi, cpu: 1}", {"hugepages-x": "2Mi", "cpu": 1}),
    ("{hugepages-2Mi: 2Mi, cpu: 1}", {"hugepages-2Mi": "2Mi", "cpu": 1}),
    ("{a.b/c: 1}", {"a.b/c": 1}),
    ("{a.b/c: 1.5}", {"a.b/c": 1.5}),
    ("{a/b/c: 1}", {"a/b/c": 1}),
    ("{kubernetes.io/c: 1}", {"kubernetes.io/c": 1}),
    ("{requests.a.b/c: 1}", {"requests.a.b/c": 1}),
    ("{attachable-volumes-a: 1}", {"attachable-volumes-a": 1}),
)

_WRONG_KINDS: Final[dict[str, tuple[Value, ...]]] = {
    "string": (("number", 5), ("true", True), ("map", {})),
    "quantity": (("true", True), ("list", []), ("map", {})),
    "integer": (("1.5", 1.5), ("text", "1"), ("true", True), ("list", [])),
    "boolean": (("text", "true"), ("number", 1), ("list", [])),
    "port": (("1.5", 1.5), ("true", True), ("list", [])),
    "time": (("number", 5), ("list", [])),
    "list": (("text", "x"), ("number", 5), ("map", {})),
    "struct": (("text", ""), ("number", 5), ("list", [])),
    "map": (("text", ""), ("list", []), ("{a: 5}", {"a": 5}), ("{a: true}", {"a": True})),
    "amounts": (("text", ""), ("list", []), ("{cpu: ''}", {"cpu": ""}), ("{cpu: true}", {"cpu": True})),
}


def variants() -> list[Variant]:
    """Return all variants; the first of each sample is the sample itself, with an empty field."""
    found: list[Variant] = []
    seen: set[str] = set()
    for number, sample in enumerate(samples()):
        found.append(Variant(f"sample {number}", "", json.dumps(sample).encode()))
        for kind, key in ((ObjectMeta, "metadata"), (PodSpec, "spec")):
            for path, annotation in _fields(kind, sample.get(key), (key,)):
                field = _written(path)
                if _unindexed(path) in seen:
                    continue
                seen.add(_unindexed(path))
                for word, value in _values(path, annotation, sample):
                    found.append(Variant(field, word, _changed(sample, path, value)))
                for word, value in _WRONG_KINDS[_kind(path, annotation)]:
                    found.append(Variant(field, f"{WRONG_KIND}{word}", _changed(sample, path, value)))
                found.append(Variant(field, "left out", _without(sample, path)))
    return found


def samples() -> list[dict[str, Any]]:
    """Return the valid pods of which all others are variants."""
    common = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}}
    return [{**common, **document} for document in yaml.safe_load_all(SAMPLES.read_text())]


def missing_fields() -> set[str]:
    """Return the fields of our Pod that no sample sets, as ``Type.field``."""
    used = {one for sample in samples() for one in _used(PodSpec, sample["spec"])}
    used |= {one for sample in samples() for one in _used(ObjectMeta, sample["metadata"])}
    return {*_all_fields(ObjectMeta), *_all_fields(PodSpec)} - used


def _used(kind: type[msgspec.Struct], value: dict[str, Any]) -> Iterator[str]:
    for field in msgspec.structs.fields(kind):
        if field.encode_name in value:
            yield f"{kind.__name__}.{field.encode_name}"
            inner = _struct(field.type)
            below = value[field.encode_name]
            for one in below if isinstance(below, list) else [below]:
                if inner is not None and isinstance(one, dict):
                    yield from _used(inner, one)


def _all_fields(kind: type[msgspec.Struct], above: frozenset[type] = frozenset()) -> Iterator[str]:
    for field in msgspec.structs.fields(kind):
        if field.encode_name in EXTENSIONS | REFUSED:
            continue
        yield f"{kind.__name__}.{field.encode_name}"
        inner = _struct(field.type)
        if inner is not None and inner not in above:
            yield from _all_fields(inner, above | {kind})


def _fields(
    kind: type[msgspec.Struct], value: Any, path: tuple[Step, ...]
) -> Iterator[tuple[tuple[Step, ...], Any]]:
    if not isinstance(value, dict):
        return
    for field in msgspec.structs.fields(kind):
        if field.encode_name not in value or field.encode_name in EXTENSIONS:
            continue
        here, below = (*path, field.encode_name), value[field.encode_name]
        yield here, field.type
        inner = _struct(field.type)
        if isinstance(below, list):
            item = _item(field.type)
            for index, one in enumerate(below):
                yield (*here, index), item
                if inner is not None:
                    yield from _fields(inner, one, (*here, index))
        elif inner is not None:
            yield from _fields(inner, below, here)


_VALUES: Final[dict[str, tuple[Value, ...]]] = {
    "string": _STRINGS,
    "quantity": _QUANTITY,
    "integer": _INTEGERS,
    "boolean": _BOOLEANS,
    "port": _PORTS,
    "time": _TIMES,
    "list": _LISTS,
    "struct": _STRUCTS,
    "map": _MAPS,
    "amounts": _RESOURCES,
}


def _values(path: tuple[Step, ...], annotation: Any, sample: dict[str, Any]) -> tuple[Value, ...]:
    kind = _kind(path, annotation)
    present = _at(sample, path)
    spaced = (("_v", f" {present}"), ("v_", f"{present} ")) if kind in ("string", "quantity") else ()
    return (("null", None), *spaced, *_VALUES[kind])


def _kind(path: tuple[Step, ...], annotation: Any) -> str:
    name = next(step for step in reversed(path) if isinstance(step, str))
    kind = _plain(annotation)
    if typing.get_origin(kind) is tuple:
        return "list"
    if typing.get_origin(kind) is dict:
        return "amounts" if name in _AMOUNTS else "map"
    if kind == IntOrString:
        return "port"
    if issubclass(kind, msgspec.Struct):
        return "struct"
    if kind is str:
        return "quantity" if name in _QUANTITIES else "string"
    return {int: "integer", bool: "boolean", datetime: "time"}[kind]


def _plain(annotation: Any) -> Any:
    if annotation == IntOrString:
        return annotation
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        return next(one for one in typing.get_args(annotation) if one is not type(None))
    return annotation


def _item(annotation: Any) -> Any:
    return typing.get_args(_plain(annotation))[0]


def _struct(annotation: Any) -> type[msgspec.Struct] | None:
    kind = _plain(annotation)
    if typing.get_origin(kind) is tuple:
        kind = typing.get_args(kind)[0]
    return kind if isinstance(kind, type) and issubclass(kind, msgspec.Struct) else None


def _at(value: Any, path: tuple[Step, ...]) -> Any:
    for step in path:
        value = value[step]
    return value


def _changed(sample: dict[str, Any], path: tuple[Step, ...], value: Any) -> bytes:
    holder, last = _at(sample, path[:-1]), path[-1]
    before, holder[last] = holder[last], value
    text = json.dumps(sample)
    holder[last] = before
    return text.encode()


def _without(sample: dict[str, Any], path: tuple[Step, ...]) -> bytes:
    holder, last = _at(sample, path[:-1]), path[-1]
    before = holder.copy()
    del holder[last]
    text = json.dumps(sample)
    if isinstance(holder, list):
        holder[:] = before
    else:
        holder.update(before)
    return text.encode()


def _written(path: tuple[Step, ...]) -> str:
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).lstrip(".")


def _unindexed(path: tuple[Step, ...]) -> str:
    return ".".join("*" if isinstance(step, int) else step for step in path)
