"""Conversion between the protobuf and the JSON form of Kubernetes objects. Pure.

    core.Pod ─► to_plain ─► JSON values ─► kubeletx.kube Pod          PodStatus, Node ─► JSON values ─► fill ─► message

Both forms have the same field names, with two exceptions: the protobuf form nests what the JSON form inlines (the
`volumeSource` of a volume), and has messages for times, quantities and numbers that may be text. A Go program writes
every field of a struct that is no pointer, so empty texts and empty times count as not set.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from kubeletx.api import InvalidPod, ObjectData
from kubeletx.kube.text.type_errors import explain
from kubeletx.kube.types.core import Pod
from kubeletx.kube.types.node import Node

from .stubs import k8s_core_v1_pb2 as core

_INLINED: Final = frozenset(
    {
        "volumeSource",
        "handler",
        "localObjectReference",
        "ephemeralContainerCommon",
        "persistentVolumeSource",
    }
)
"""Fields of messages whose own fields are inlined in the JSON form."""
_LEFT_OUT: Final = frozenset({"managedFields"})
_META: Final = "k8s.io.apimachinery.pkg."
_TIME: Final = f"{_META}apis.meta.v1.Time"
_QUANTITY: Final = f"{_META}api.resource.Quantity"
_INT_OR_STRING: Final = f"{_META}util.intstr.IntOrString"
_TEXT: Final = 1
"""Value of `IntOrString.type` for a text; 0: a number."""


def to_plain(message: Message) -> dict[str, Any]:
    """Return the JSON form of a Kubernetes object; bytes and times stay values of Python.

    Fields that are unknown to the stubs are left out. A text that is not UTF-8 is returned as bytes.
    """
    plain: dict[str, Any] = {}
    for field, value in message.ListFields():
        if field.name in _INLINED:
            plain.update(to_plain(value))
        elif field.name not in _LEFT_OUT and not (value == "" and field.type == FieldDescriptor.TYPE_STRING):
            read = _reader(field)
            found = read(value) if read is not None else value
            if found is not None:
                plain[field.name] = found
    return plain


def pod_of(message: core.Pod, origin: str) -> Pod:
    """Return the Pod without status and without defaults. Raises InvalidPod for a field of a wrong type.

    `origin`: sender of the pod, named in the error.
    """
    plain = to_plain(message)
    plain.pop("status", None)
    try:
        return msgspec.convert(plain, Pod, builtin_types=(bytes, datetime))
    except msgspec.ValidationError as error:
        field, problem, fix = explain(str(error), plain)
        raise InvalidPod(obj=origin, field=field, problem=problem, fix=fix) from error


def config_map_data(message: core.ConfigMap) -> ObjectData:
    """Return the content of a config map. Raises InvalidPod for a text that is not UTF-8."""
    plain = to_plain(message)
    return _data({"text": plain.get("data", {}), "binary": plain.get("binaryData", {})}, message)


def secret_data(message: core.Secret) -> ObjectData:
    """Return the content of a secret. Raises InvalidPod for a text that is not UTF-8."""
    plain = to_plain(message)
    if any(isinstance(text, bytes) for text in plain.get("stringData", {}).values()):
        raise InvalidPod(
            obj=f"Secret {message.metadata.name}",
            field="stringData",
            problem="is not UTF-8",
            fix="use data for bytes",
        )
    texts = {key: text.encode() for key, text in plain.get("stringData", {}).items()}
    return _data({"binary": {**plain.get("data", {}), **texts}, "type": plain.get("type", "")}, message)


def node_message(node: Node) -> core.Node:
    """Return the protobuf form of a Node."""
    message = core.Node()
    fill(message, msgspec.to_builtins(node))
    return message


def fill(message: Message, plain: Mapping[str, Any]) -> None:
    """Set fields of the message to the values of the JSON form. Fields that the message type lacks are left out."""
    for name, value in plain.items():
        place = _places(message.DESCRIPTOR).get(name)
        if place is None or value is None:
            continue
        path, field = place
        target = message
        for step in path:
            target = getattr(target, step)
        _set(target, field, value)


def time_of(message: Any) -> datetime | None:
    """Return the time of a Kubernetes Time message; None if it is empty."""
    if not message.HasField("seconds"):
        return None
    try:
        return datetime.fromtimestamp(message.seconds, UTC)
    except (OverflowError, ValueError, OSError):
        return None


def _data(plain: dict[str, Any], message: core.ConfigMap | core.Secret) -> ObjectData:
    try:
        return msgspec.convert(
            {"uid": message.metadata.uid, **plain}, ObjectData, builtin_types=(bytes, datetime)
        )
    except msgspec.ValidationError as error:
        # The text of the error has no value, but msgspec's path may have a key.
        raise InvalidPod(
            obj=f"{message.DESCRIPTOR.name} {message.metadata.name}",
            field="data",
            problem="has a key or text that is not UTF-8",
            fix="send it as UTF-8",
        ) from error


# --- reading ---------------------------------------------------------------------------------------------


@functools.cache
def _reader(field: FieldDescriptor) -> Callable[[Any], Any] | None:
    """Return the function that converts a value of the field; None: the value stays as it is."""
    kind = field.message_type
    if kind is None:
        return list if field.is_repeated else None
    if kind.GetOptions().map_entry:
        value = kind.fields_by_name["value"].message_type
        if value is None:
            return dict
        read = _message_reader(value)
        return lambda entries: {key: read(entry) for key, entry in entries.items()}
    read = _message_reader(kind)
    return (lambda items: [read(item) for item in items]) if field.is_repeated else read


def _message_reader(kind: Descriptor) -> Callable[[Any], Any]:
    special: dict[str, Callable[[Any], Any]] = {
        _TIME: time_of,
        _QUANTITY: lambda quantity: quantity.string or "0",
        _INT_OR_STRING: lambda value: value.strVal if value.type == _TEXT else value.intVal,
    }
    return special.get(kind.full_name, to_plain)


# --- writing ---------------------------------------------------------------------------------------------


@functools.cache
def _places(kind: Descriptor) -> dict[str, tuple[tuple[str, ...], FieldDescriptor]]:
    """Return, by name in the JSON form, the field of a message type and the inlined messages on the way to it."""
    found: dict[str, tuple[tuple[str, ...], FieldDescriptor]] = {}
    for field in kind.fields:
        if field.name in _INLINED:
            for name, (path, inner) in _places(field.message_type).items():
                found[name] = ((field.name, *path), inner)
        else:
            found[field.name] = ((), field)
    return found


def _set(message: Any, field: FieldDescriptor, value: Any) -> None:
    kind = field.message_type
    if kind is None:
        if field.is_repeated:
            getattr(message, field.name).extend(value)
        else:
            setattr(message, field.name, value)
        return
    target = getattr(message, field.name)
    if kind.GetOptions().map_entry:
        if kind.fields_by_name["value"].message_type is None:
            target.update(value)
        else:
            for key, item in value.items():
                _fill_message(target[key], item)
    elif field.is_repeated:
        for item in value:
            _fill_message(target.add(), item)
    else:
        target.SetInParent()
        _fill_message(target, value)


def _fill_message(message: Any, value: Any) -> None:
    kind = message.DESCRIPTOR.full_name
    if kind == _TIME:
        moment = value if isinstance(value, datetime) else datetime.fromisoformat(value)
        message.seconds = int(moment.timestamp())
    elif kind == _QUANTITY:
        message.string = str(value)
    elif kind == _INT_OR_STRING:
        is_text = isinstance(value, str)
        message.type = _TEXT if is_text else 0
        setattr(message, "strVal" if is_text else "intVal", value)
    else:
        fill(message, value)
