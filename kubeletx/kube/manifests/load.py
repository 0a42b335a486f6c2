"""Decodes pod manifests: JSON or YAML text to `Pod` values. Raises InvalidPod for the first mistake.

A manifest may contain a Pod, a PodList or List of Pods, or several YAML documents of these. Unknown fields are
ignored and reported in `LoadedPod.unknown`. `status` is ignored, since only the node writes it. null means "not
given"; in a list, or as the value of a map, it is an empty value (zero, for a quantity). Duplicate keys, wrong types, other kinds and manifests over 10 MiB are refused. One mistake refuses the whole
manifest, so that a partly read file does not look as if pods had been removed.

The returned pods have no defaults yet (see `defaults`) and are not validated (see `kubeletx.kube.validation`).
"""

from __future__ import annotations

import functools
import json
import re
import types
import typing
from collections.abc import Callable
from typing import Any, Final, NamedTuple, NoReturn

import msgspec

from kubeletx.api import InvalidPod
from kubeletx.api.text import is_printable, printable

from ..text import yaml
from ..text.type_errors import explain
from ..types.core import Pod
from .unknown_fields import unknown_fields

MAX_BYTES: Final = 10 * 1024 * 1024
_LISTS: Final = {"PodList": "Pod", "List": ""}
_QUANTITY_MAPS: Final = frozenset({"limits", "requests", "overhead", "resourcesAllocated"})
_QUANTITIES: Final = frozenset({"sizeLimit", "divisor"})
_HALF_PAIR: Final = re.compile(r"\\u[dD][89a-fA-F]")
"""Matches an escape that may be half of a surrogate pair."""


class LoadedPod(NamedTuple):
    """One pod of a manifest. `unknown`: paths of fields that a Pod does not have, see `unknown_fields`."""

    pod: Pod
    unknown: tuple[str, ...]


def load_pods(data: bytes, origin: str) -> list[Pod]:
    """Decode all pods of a manifest like `load_manifest`, but return only the pods, not their unknown fields."""
    return [loaded.pod for loaded in load_manifest(data, origin)]


def load_manifest(data: bytes, origin: str) -> list[LoadedPod]:
    """Decode all pods of a manifest, in order. Raises InvalidPod for the first mistake.

    The result is empty only if the manifest is an empty list; a manifest without any document is refused.
    `origin`: file or URL of the manifest, named in errors.
    """
    if len(data) > MAX_BYTES:
        raise too_large(origin, len(data))
    pods: list[LoadedPod] = []
    documents = _documents(data, origin)
    if not documents:
        raise InvalidPod(obj=origin, field="", problem="holds no pod", fix="write a v1 Pod")
    for document in documents:
        pods.extend(_pods_of(document, origin))
    return pods


def too_large(origin: str, size: int) -> InvalidPod:
    """Return the error for a manifest of `size` bytes, more than `MAX_BYTES`. `origin`: its file or URL.

    Callers use it when they check the size before they read a file.
    """
    return InvalidPod(
        obj=origin,
        field="",
        problem=f"has {size} bytes, more than the {MAX_BYTES} that a manifest may have",
        fix="split it into several files",
    )


def _documents(data: bytes, origin: str) -> list[Any]:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as err:
        raise InvalidPod(
            obj=origin,
            field=f"byte {err.start}",
            problem=f"{data[err.start : err.start + 1]!r} is not UTF-8",
            fix="save the file as UTF-8",
        ) from err
    if text.lstrip()[:1] == "{":
        try:
            document = json.loads(text, object_pairs_hook=_unique, parse_constant=_refuse, parse_int=_integer)
            return _checked([document], text)
        except json.JSONDecodeError as err:
            if text.lstrip()[1:].lstrip()[:1] == '"':
                problem = f"is not JSON: {err.msg} at column {err.colno}"
                raise InvalidPod(
                    obj=origin, field=f"line {err.lineno}", problem=problem, fix="correct it"
                ) from err
            # else a YAML flow mapping, which starts like JSON but does not quote its keys
        except (_TextError, RecursionError) as err:
            problem = str(err) if isinstance(err, _TextError) else "is nested too deep"
            raise InvalidPod(obj=origin, field="", problem=problem, fix="correct the JSON") from err
    try:
        return _checked(yaml.parse_documents(text), text)
    except _TextError as err:
        raise InvalidPod(obj=origin, field="", problem=str(err), fix="correct the YAML") from err
    except yaml.YamlError as err:
        field = f"line {err.line}" if err.line else ""
        raise InvalidPod(obj=origin, field=field, problem=err.problem, fix=err.fix) from err


class _TextError(ValueError):
    pass


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise _TextError(f"has the key {twice!r} twice")
    return fields


def _checked(documents: list[Any], text: str) -> list[Any]:
    """Return the documents unchanged. Raises _TextError if a string in them cannot be encoded as UTF-8.

    Only escapes for half of a surrogate pair can make such a string, so other texts are not searched.
    """
    if _HALF_PAIR.search(text) is not None:
        for document in documents:
            _refuse_half_pairs(document, "")
    return documents


def _refuse_half_pairs(value: Any, path: str) -> None:
    """Raise _TextError for a string with half of a surrogate pair: it can be neither stored nor sent as UTF-8."""
    if isinstance(value, str) and not is_printable(value):
        where = f" in {path}" if path else ""
        raise _TextError(f"has half of a surrogate pair{where}, which is not a character")
    if isinstance(value, dict):
        for key, inner in value.items():
            _refuse_half_pairs(key, path)
            _refuse_half_pairs(inner, f"{path}.{printable(key)}".lstrip("."))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            _refuse_half_pairs(inner, f"{path}[{index}]")


def _integer(text: str) -> int | str:
    return yaml.integer("-" if text[0] == "-" else "", text.lstrip("-"), 10, text)


def _refuse(word: str) -> NoReturn:
    raise _TextError(f"has the value {word}, which is not JSON")


def _pods_of(document: Any, origin: str) -> list[LoadedPod]:
    kind, name = _identify(document, origin, "")
    if kind == "Pod":
        return [_load(document, origin, "", name)]
    items = document.get("items")
    if items is None:
        return []
    if not isinstance(items, list):
        raise InvalidPod(obj=origin, field="items", problem="is not a list", fix="write a list of pods")
    pods = []
    for index, item in enumerate(items):
        prefix = f"items[{index}]"
        item_kind, name = _identify(item, origin, prefix, default=_LISTS[kind])
        if item_kind != "Pod":
            raise InvalidPod(
                obj=origin,
                field=f"{prefix}.kind",
                problem=f"{item_kind!r} inside a list",
                fix="list only Pods",
            )
        pods.append(_load(item, origin, prefix, name))
    return pods


def _identify(document: Any, origin: str, prefix: str, default: str = "") -> tuple[str, str]:
    """Return kind and name of a document. Raises InvalidPod for anything but a v1 Pod or a list of Pods.

    `prefix`: path of the document in the manifest, for errors. `default`: kind of a document that does not
    name its kind, such as an item of a PodList; empty: the kind is required.
    """
    dot = f"{prefix}." if prefix else ""
    if not isinstance(document, dict):
        raise InvalidPod(
            obj=origin, field=prefix, problem=f"{_short(document)} is not a mapping", fix="write a v1 Pod"
        )
    kind = document.get("kind") or default
    if not isinstance(kind, str) or (kind != "Pod" and kind not in _LISTS):
        problem = f"{_short(kind)} is not run by a node" if kind else "is missing"
        raise InvalidPod(obj=origin, field=f"{dot}kind", problem=problem, fix="write kind: Pod")
    version = document.get("apiVersion") or ("v1" if default else None)
    if version != "v1":
        problem = f"{_short(version)} is not a version of {kind}" if version else "is missing"
        raise InvalidPod(obj=origin, field=f"{dot}apiVersion", problem=problem, fix="write apiVersion: v1")
    metadata = document.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    return kind, name if isinstance(name, str) else ""


def _load(document: dict[str, Any], origin: str, prefix: str, name: str) -> LoadedPod:
    pod = _pod(document, origin, prefix, name)
    return LoadedPod(pod, unknown_fields(document, Pod))


def _pod(document: dict[str, Any], origin: str, prefix: str, name: str) -> Pod:
    obj = describe(origin, name)
    try:
        raw = _tidy({key: value for key, value in document.items() if key != "status"}, Pod)
        raw["apiVersion"], raw["kind"] = "v1", "Pod"
        return msgspec.convert(raw, Pod)
    except RecursionError as err:
        raise InvalidPod(obj=obj, field=prefix, problem="is nested too deep", fix="flatten it") from err
    except msgspec.ValidationError as err:
        field, problem, fix = explain(str(err), raw)
        path = ".".join(part for part in (prefix, field) if part)
        raise InvalidPod(obj=obj, field=path, problem=problem, fix=fix) from err


def describe(origin: str, name: str) -> str:
    """Return the name of a pod in errors: its file or URL, followed by the pod's name if it has one."""
    return f"{origin} (pod {name})" if name else origin


Tidy = Callable[[Any], Any]


def _tidy(mapping: dict[str, Any], kind: type[msgspec.Struct]) -> dict[str, Any]:
    """Return a copy of a decoded object of this API type without nulls and unknown fields.

    null in a list or as the value of a map becomes an empty value. Quantities become text without space around it,
    as the API type expects them.
    """
    fields = _fields(kind)
    return {key: fields[key](value) for key, value in mapping.items() if value is not None and key in fields}


@functools.cache
def _fields(kind: type[msgspec.Struct]) -> dict[str, Tidy]:
    return {
        field.encode_name: _tidy_field(field.encode_name, field.type)
        for field in msgspec.structs.fields(kind)
    }


def _tidy_field(name: str, annotation: Any) -> Tidy:
    """Return the function that tidies the values of a field."""
    if name in _QUANTITIES:
        return _quantity
    given = [argument for argument in typing.get_args(annotation) if argument is not type(None)]
    if typing.get_origin(annotation) is tuple:
        return functools.partial(_tidy_list, _tidy_field("", given[0]), _empty(given[0]))
    if isinstance(annotation, types.UnionType):
        return _tidy_field("", given[0]) if len(given) == 1 else _same
    if typing.get_origin(annotation) is dict:
        if given[1] is not str:
            return _same
        return functools.partial(_tidy_map, *((_quantity, "0") if name in _QUANTITY_MAPS else (_same, "")))
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        return functools.partial(_tidy_struct, annotation)
    return _same


def _empty(kind: Any) -> Any:
    return {} if issubclass(kind, msgspec.Struct) else kind()


def _tidy_list(tidy: Tidy, empty: Any, value: Any) -> Any:
    return [empty if item is None else tidy(item) for item in value] if isinstance(value, list) else value


def _tidy_map(tidy: Tidy, empty: str, value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return {key: empty if item is None else tidy(item) for key, item in value.items()}


def _tidy_struct(kind: type[msgspec.Struct], value: Any) -> Any:
    return _tidy(value, kind) if isinstance(value, dict) else value


def _same(value: Any) -> Any:
    return value


def _quantity(value: Any) -> Any:
    if isinstance(value, str):
        return value.strip()
    return repr(value) if type(value) in (int, float) else value


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
