"""Decodes manifests: JSON or YAML text to pods and the objects that they refer to. Raises InvalidPod for a mistake.

A manifest may contain Pods, controllers of one pod (`controllers`), config maps, secrets and claims (`objects`), lists
of these, and several YAML documents. Unknown fields are ignored and reported in `unknown`; for null and `status` see
`convert`. Duplicate keys, wrong types, other kinds and manifests over 10 MiB are refused. One mistake refuses the whole
manifest, so that a partly read file does not look as if pods had been removed.

The returned pods have no defaults yet (see `defaults`) and are not validated (see `kubeletx.kube.validation`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple, NoReturn

from kubeletx.api import InvalidPod
from kubeletx.api.text import is_printable, printable

from ..text import yaml
from ..types.core import Pod
from .controllers import CONTROLLERS, documents_of, unknown_of
from .convert import convert
from .describe import describe
from .objects import OBJECT_KINDS, LoadedObject, load_object
from .unknown_fields import unknown_fields

MAX_BYTES: Final = 10 * 1024 * 1024
_LISTS: Final = {"PodList": "Pod", "List": "", **{f"{kind}List": kind for kind in OBJECT_KINDS}}
_VERSIONS: Final = {"Pod": "v1", **dict.fromkeys((*_LISTS, *OBJECT_KINDS), "v1")} | {
    kind: controller.api_version for kind, controller in CONTROLLERS.items()
}
_OTHER_KIND: Final = (
    "write a Pod, a ConfigMap, Secret or PersistentVolumeClaim for it, or a Deployment, ReplicaSet, StatefulSet, "
    "DaemonSet or Job of one pod"
)
_HALF_PAIR: Final = re.compile(r"\\u[dD][89a-fA-F]")
"""Matches an escape that may be half of a surrogate pair."""


class LoadedPod(NamedTuple):
    """One pod of a manifest. `unknown`: paths of fields that a Pod does not have, see `unknown_fields`."""

    pod: Pod
    unknown: tuple[str, ...]


class LoadedManifest(NamedTuple):
    """Content of a manifest, in its order: pods, and other objects (config maps, secrets, claims)."""

    pods: list[LoadedPod]
    objects: list[LoadedObject]


def load_pods(data: bytes, origin: str) -> list[Pod]:
    """Decode all pods of a manifest like `load_manifest`, but return only the pods, not their unknown fields."""
    return [loaded.pod for loaded in load_manifest(data, origin)]


def load_manifest(data: bytes, origin: str) -> list[LoadedPod]:
    """Decode a manifest like `load_all`, but refuse config maps, secrets and claims. Returns the pods."""
    pods, objects = load_all(data, origin)
    for loaded in objects:
        item = loaded.item
        raise InvalidPod(
            obj=describe(origin, item.metadata.name, item.kind),
            field="kind",
            problem=f"{item.kind!r} cannot come from here",
            fix="write it to a file for 'kubeletx apply -f' or of --pod-manifest-path",
        )
    return pods


def load_all(data: bytes, origin: str) -> LoadedManifest:
    """Decode all pods and objects of a manifest, in order. Raises InvalidPod for the first mistake.

    The result is empty only if the manifest is an empty list; a manifest without any document is refused.
    `origin`: file or URL of the manifest, named in errors.
    """
    if len(data) > MAX_BYTES:
        raise too_large(origin, len(data))
    documents = _documents(data, origin)
    if not documents:
        raise InvalidPod(obj=origin, field="", problem="holds no pod", fix="write a v1 Pod")
    loaded = LoadedManifest([], [])
    for document in documents:
        for kind, name, prefix, item in _items_of(document, origin):
            _load(loaded, kind, name, prefix, item, origin)
    return loaded


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


def _items_of(document: Any, origin: str) -> Iterator[tuple[str, str, str, dict[str, Any]]]:
    """Yield kind, name, path in the document, and content of each object; of a list, each of its items."""
    kind, name = _identify(document, origin, "")
    if kind not in _LISTS:
        yield kind, name, "", document
        return
    items = document.get("items")
    if items is not None and not isinstance(items, list):
        raise InvalidPod(obj=origin, field="items", problem="is not a list", fix="write a list of pods")
    for index, item in enumerate(items or ()):
        prefix = f"items[{index}]"
        item_kind, name = _identify(item, origin, prefix, default=_LISTS[kind])
        if item_kind in _LISTS or (_LISTS[kind] and item_kind != _LISTS[kind]):
            raise InvalidPod(
                obj=origin,
                field=f"{prefix}.kind",
                problem=f"{item_kind!r} inside a list",
                fix=f"list only {_LISTS[kind] or 'Pod'}s",
            )
        yield item_kind, name, prefix, item


def _identify(document: Any, origin: str, prefix: str, default: str = "") -> tuple[str, str]:
    """Return kind and name of a document. Raises InvalidPod for a kind that no node runs or holds.

    `prefix`: path of the document in the manifest, for errors. `default`: kind of a document that does not
    name its kind, such as an item of a PodList; empty: the kind is required.
    """
    dot = f"{prefix}." if prefix else ""
    if not isinstance(document, dict):
        raise InvalidPod(
            obj=origin, field=prefix, problem=f"{_short(document)} is not a mapping", fix="write a v1 Pod"
        )
    kind = document.get("kind") or default
    if not isinstance(kind, str) or kind not in _VERSIONS:
        problem = f"{_short(kind)} is not run by a node" if kind else "is missing"
        fix = _OTHER_KIND if kind else "write kind: Pod"
        raise InvalidPod(obj=origin, field=f"{dot}kind", problem=problem, fix=fix)
    version = document.get("apiVersion") or (_VERSIONS[kind] if default else None)
    if version != _VERSIONS[kind]:
        problem = f"{_short(version)} is not a version of {kind}" if version else "is missing"
        fix = f"write apiVersion: {_VERSIONS[kind]}"
        raise InvalidPod(obj=origin, field=f"{dot}apiVersion", problem=problem, fix=fix)
    metadata = document.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    return kind, name if isinstance(name, str) else ""


def _load(
    loaded: LoadedManifest, kind: str, name: str, prefix: str, document: dict[str, Any], origin: str
) -> None:
    """Decode one document and add it to `loaded`; of a controller, its pod and its claims."""
    obj = describe(origin, name, kind)
    if kind in CONTROLLERS:
        claims, pod, where = documents_of(document, kind, obj=obj, prefix=prefix)
        for claim in claims:
            loaded.objects.append(load_object(claim, "PersistentVolumeClaim", obj=obj, prefix=prefix))
        own = (f"{prefix}.{field}".removeprefix(".") for field in unknown_of(document))
        unknown = (*own, *(f"{where}.{field}" for field in unknown_fields(pod, Pod)))
        loaded.pods.append(LoadedPod(convert(pod, Pod, obj=obj, prefix=where), unknown))
    elif kind == "Pod":
        loaded.pods.append(
            LoadedPod(convert(document, Pod, obj=obj, prefix=prefix), unknown_fields(document, Pod))
        )
    else:
        loaded.objects.append(load_object(document, kind, obj=obj, prefix=prefix))


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
