"""The three patch formats that the API server double accepts: JSON patch, merge patch, strategic merge patch.

The functions never change their arguments; they return a new object. Source: RFC 6902, RFC 7386;
apimachinery, pkg/util/strategicpatch/patch.go with the patchMergeKey tags of
staging/src/k8s.io/api/core/v1/types.go.
"""

from __future__ import annotations

import copy
from typing import Any, Final

from .errors import Json, StatusError, bad_request

JSON_PATCH: Final = "application/json-patch+json"
MERGE_PATCH: Final = "application/merge-patch+json"
STRATEGIC_PATCH: Final = "application/strategic-merge-patch+json"

# Lists whose items are merged: (field of the object that contains the list, field of the list) to merge key.
_MERGE_KEYS: Final[dict[tuple[str, str], str]] = {
    ("metadata", "ownerReferences"): "uid",
    ("spec", "containers"): "name",
    ("spec", "initContainers"): "name",
    ("spec", "ephemeralContainers"): "name",
    ("spec", "volumes"): "name",
    ("spec", "imagePullSecrets"): "name",
    ("spec", "hostAliases"): "ip",
    ("spec", "topologySpreadConstraints"): "topologyKey",
    ("spec", "schedulingGates"): "name",
    ("spec", "resourceClaims"): "name",
    ("spec", "ports"): "port",
    ("status", "conditions"): "type",
    ("status", "podIPs"): "ip",
    ("status", "hostIPs"): "ip",
    ("status", "addresses"): "type",
    ("status", "resourceClaimStatuses"): "name",
    ("", "imagePullSecrets"): "name",
    ("", "secrets"): "name",
}
_CONTAINER_KEYS: Final = {
    "ports": "containerPort",
    "env": "name",
    "volumeMounts": "mountPath",
    "volumeDevices": "devicePath",
}
_CONTAINERS: Final = ("containers", "initContainers", "ephemeralContainers")
_MERGED_PRIMITIVES: Final = (("metadata", "finalizers"), ("spec", "podCIDRs"))


def merge_patch(target: Any, patch: Any) -> Any:
    """Apply a merge patch (RFC 7386) and return the result.

    A null removes a field, an object is merged into the old one, any other value replaces the old one.
    """
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    merged = dict(target) if isinstance(target, dict) else {}
    for name, part in patch.items():
        if part is None:
            merged.pop(name, None)
        else:
            merged[name] = merge_patch(merged.get(name), part)
    return merged


def json_patch(target: Json, operations: Any) -> Json:
    """Apply a JSON patch (RFC 6902) and return the result.

    Raises StatusError 422 for an operation that cannot be applied, 400 if `operations` is not a list or the
    result is not an object.
    """
    if not isinstance(operations, list):
        raise bad_request(
            "error decoding patch: json: cannot unmarshal object into Go value of type jsonpatch.Patch"
        )
    patched: Any = copy.deepcopy(target)
    for operation in operations:
        try:
            patched = _operate(patched, operation)
        except (KeyError, IndexError, ValueError, TypeError) as err:
            message = "the server rejected our request due to an error in our request"
            raise StatusError(422, "Invalid", message, {}) from err
    return _object(patched)


def strategic_patch(target: Json, patch: Json) -> Json:
    """Apply a strategic merge patch and return the result.

    Objects are merged, and so are lists with a merge key. Directives such as $patch are followed. Raises
    StatusError 400 for a list item without its merge key.
    """
    return _object(_merge(target, patch, ""))


def _object(value: Any) -> Json:
    if not isinstance(value, dict):
        raise bad_request("the patch leaves no object")
    return value


def _operate(document: Any, operation: Json) -> Any:
    verb, path = operation["op"], _pointer(operation["path"])
    if verb == "test":
        if _at(document, path) != operation["value"]:
            raise ValueError(f"testing value {operation['path']} failed")
        return document
    if verb == "remove":
        return _take(document, path)
    if verb == "add":
        return _put(document, path, operation["value"], insert=True)
    if verb == "replace":
        _at(document, path)
        return _put(document, path, operation["value"], insert=False)
    source = _pointer(operation["from"])
    value = copy.deepcopy(_at(document, source))
    if verb == "move":
        document = _take(document, source)
    elif verb != "copy":
        raise ValueError(f"unexpected kind: {verb}")
    return _put(document, path, value, insert=True)


def _pointer(text: str) -> list[str]:
    return [part.replace("~1", "/").replace("~0", "~") for part in text.split("/")[1:]]


def _at(document: Any, path: list[str]) -> Any:
    for part in path:
        document = document[int(part)] if isinstance(document, list) else document[part]
    return document


def _put(document: Any, path: list[str], value: Any, insert: bool) -> Any:
    if not path:
        return value
    parent, last = _at(document, path[:-1]), path[-1]
    if isinstance(parent, dict):
        parent[last] = value
    elif last == "-":
        parent.append(value)
    elif insert:
        if not 0 <= int(last) <= len(parent):
            raise IndexError(f"index {last} is out of bounds")
        parent.insert(int(last), value)
    else:
        parent[int(last)] = value
    return document


def _take(document: Any, path: list[str]) -> Any:
    parent, last = _at(document, path[:-1]), path[-1]
    del parent[int(last) if isinstance(parent, list) else last]
    return document


def _merge(target: Any, patch: Json, name: str) -> Any:
    directive = patch.get("$patch")
    if directive == "replace":
        return _plain({key: part for key, part in patch.items() if key != "$patch"})
    if directive == "delete":
        return {}
    merged = dict(target) if isinstance(target, dict) else {}
    if (kept := patch.get("$retainKeys")) is not None:
        merged = {key: part for key, part in merged.items() if key in kept}
    for key, part in patch.items():
        if key.startswith("$deleteFromPrimitiveList/"):
            field = key.partition("/")[2]
            merged[field] = [one for one in merged.get(field, []) if one not in part]
        elif key.startswith("$setElementOrder/") and (field := key.partition("/")[2]) not in patch:
            merged[field] = _ordered(merged.get(field) or [], merged.get(field) or [], part, name, field)
        elif not key.startswith("$"):
            _merge_field(merged, key, part, name, patch.get(f"$setElementOrder/{key}"))
    return merged


def _merge_field(merged: Json, field: str, part: Any, around: str, order: list[Any] | None) -> None:
    if part is None:
        merged.pop(field, None)
    elif isinstance(part, dict):
        merged[field] = _merge(merged.get(field), part, field)
    elif isinstance(part, list):
        before = merged.get(field) or []
        after = _merge_list(before, part, around, field)
        is_merged = merge_key(around, field) is not None or (around, field) in _MERGED_PRIMITIVES
        merged[field] = (
            _ordered(before, after, part if order is None else order, around, field) if is_merged else after
        )
    else:
        merged[field] = part


def merge_key(around: str, field: str) -> str | None:
    """Return the name of the field that identifies the items of a list.

    Returns None for a list that patches replace as a whole. `field`: the field that holds the list. `around`:
    the field of the object that contains `field`.
    """
    if around in _CONTAINERS:
        return _CONTAINER_KEYS.get(field)
    return _MERGE_KEYS.get((around, field))


def _merge_list(target: list[Any], patch: list[Any], around: str, field: str) -> list[Any]:
    if (around, field) in _MERGED_PRIMITIVES:
        return target + [item for item in patch if item not in target]
    if any(isinstance(item, dict) and item.get("$patch") == "replace" for item in patch):
        return [_plain(item) for item in patch if item.get("$patch") != "replace"]
    key = merge_key(around, field)
    if key is None:
        return [_plain(item) for item in patch]
    merged = list(target)
    for item in patch:
        if not isinstance(item, dict) or key not in item:
            raise bad_request(f"map: {item!r} does not contain declared merge key: {key}")
        places = [index for index, entry in enumerate(merged) if entry.get(key) == item[key]]
        if item.get("$patch") == "delete":
            merged = [entry for entry in merged if entry.get(key) != item[key]]
        elif places:
            merged[places[0]] = _merge(merged[places[0]], item, field)
        else:
            merged.append(_merge({}, item, field))
    return merged


def _ordered(before: list[Any], after: list[Any], order: list[Any], around: str, field: str) -> list[Any]:
    """Return the merged list items `after` in the order that the patch demands.

    Items in `order` are put into that order. The other items are placed among them by their positions in
    `before`. `around` and `field`: see `merge_key`. Source: strategicpatch normalizeElementOrder and
    mergeSortedSlice.
    """
    key = merge_key(around, field)

    def value_of(item: Any) -> Any:
        return item.get(key) if isinstance(item, dict) else item

    ranks = {value_of(item): rank for rank, item in enumerate(order)}
    places = {value_of(item): place for place, item in enumerate(before)}
    left = sorted((item for item in after if value_of(item) in ranks), key=lambda item: ranks[value_of(item)])
    right = [item for item in after if value_of(item) not in ranks]
    result: list[Any] = []
    while left and right:
        here, there = places.get(value_of(left[0])), places.get(value_of(right[0]))
        comes_later = here is not None and there is not None and there < here
        result.append((right if comes_later else left).pop(0))
    return [*result, *left, *right]


def _plain(value: Any) -> Any:
    """Return a copy of a value in a patch without directives and nulls."""
    if isinstance(value, dict):
        return {
            name: _plain(part)
            for name, part in value.items()
            if part is not None and not name.startswith("$")
        }
    if isinstance(value, list):
        return [_plain(part) for part in value]
    return value
