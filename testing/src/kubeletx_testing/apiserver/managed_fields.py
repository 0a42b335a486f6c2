"""metadata.managedFields: which client (manager) wrote which field last.

Each write assigns the fields that it changed to its manager: the query's ``fieldManager``, or else the
User-Agent up to the slash. There is one entry for each manager, operation and subresource. An item of a list
with a merge key is named by the value of this key; any other list counts as one field. A write that changes
nothing leaves the entries unchanged. As in a real server, an update adds no entries to an object that has
none. Server-side apply is not served. Source: apimachinery, pkg/util/managedfields (fieldmanager.go,
updatemanager); apiserver, pkg/endpoints/handlers (managerOrUserAgent).
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any, Final

from .errors import Json
from .patches import merge_key
from .settings import timestamp

Path = tuple[str, ...]

_NO_FIELDS: Final = frozenset({"kind", "apiVersion"})
_NO_METADATA: Final = frozenset(
    {
        "name",
        "generateName",
        "namespace",
        "uid",
        "resourceVersion",
        "generation",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "selfLink",
        "managedFields",
    }
)
_MAX_MANAGER: Final = 128


def manager_of(field_manager: str, user_agent: str) -> str:
    """Return the manager's name: `field_manager`, or if it is empty the program name in `user_agent`."""
    return (field_manager or user_agent.partition("/")[0])[:_MAX_MANAGER]


def with_managers(old: Json | None, new: Json, manager: str, subresource: str, now: datetime) -> Json:
    """Return the object `new` with updated managedFields.

    `old`: the stored object; None for a creation. `manager`: name of the writing client; empty means a
    controller of the server, which gets no entry.
    """
    entries: list[Json] = ((old or {}).get("metadata") or {}).get("managedFields") or []
    before, after = _flat(old or {}), _flat(new)
    written = {path for path, value in after.items() if path not in before or before[path] != value}
    lost = written | (before.keys() - after.keys())
    if lost and (old is None or entries):
        entries = _given(entries, new["apiVersion"], manager, subresource, written, lost, now)
    metadata = {key: part for key, part in new["metadata"].items() if key != "managedFields"}
    return {**new, "metadata": {**metadata, **({"managedFields": entries} if entries else {})}}


def _given(
    entries: list[Json],
    api_version: str,
    manager: str,
    subresource: str,
    written: set[Path],
    lost: set[Path],
    now: datetime,
) -> list[Json]:
    kept, own = [], None
    for entry in entries:
        is_own = (entry["manager"], entry.get("subresource", "")) == (manager, subresource)
        paths = _paths(entry["fieldsV1"]) - lost | (written if is_own else set())
        if paths:
            made = {**entry, "fieldsV1": _nested(paths)}
            kept.append(made)
            own = made if is_own else own
    if not manager or not written:
        return kept
    if own is None:
        own = {"manager": manager, "operation": "Update", "apiVersion": api_version, "fieldsType": "FieldsV1"}
        own |= {"fieldsV1": _nested(written)} | ({"subresource": subresource} if subresource else {})
        kept.append(own)
    own["time"] = timestamp(now)
    return kept


def _flat(value: Json) -> dict[Path, Any]:
    """Return the values of all leaf fields by path; metadata that the server sets is left out."""
    leaves: dict[Path, Any] = {}
    for field, part in value.items():
        if field == "metadata":
            for name, leaf in part.items():
                if name not in _NO_METADATA:
                    _add(leaves, (f"f:{field}", f"f:{name}"), leaf, field, name)
        elif field not in _NO_FIELDS:
            _add(leaves, (f"f:{field}",), part, "", field)
    return leaves


def _add(leaves: dict[Path, Any], path: Path, value: Any, around: str, name: str) -> None:
    if isinstance(value, dict) and value:
        for field, part in value.items():
            _add(leaves, (*path, f"f:{field}"), part, name, field)
        return
    key = merge_key(around, name) if isinstance(value, list) else None
    if key is None or not all(isinstance(entry, dict) and key in entry for entry in value):
        leaves[path] = value
        return
    for entry in value:
        item = (*path, "k:" + json.dumps({key: entry[key]}, separators=(",", ":")))
        leaves[(*item, ".")] = {}
        for field, part in entry.items():
            _add(leaves, (*item, f"f:{field}"), part, name, field)


def _paths(fields: Json, path: Path = ()) -> set[Path]:
    """Return the field paths in an entry's ``fieldsV1``; the inverse of `_nested`."""
    if not fields:
        return {path} if path else set()
    return {inner for field, part in fields.items() for inner in _paths(part, (*path, field))}


def _nested(paths: set[Path]) -> Json:
    fields: Json = {}
    for path in sorted(paths):
        place = fields
        for part in path:
            place = place.setdefault(part, {})
    return fields
