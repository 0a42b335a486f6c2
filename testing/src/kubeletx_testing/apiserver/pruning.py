"""Drops the parts of objects that an API server does not store: nulls, and unknown fields of pods and nodes.

A real server drops unknown fields of every resource, unless the client requests strict validation. The double
does so only for pods and nodes; objects of other built-in resources keep all fields. Source: apimachinery,
pkg/runtime/serializer/json.
"""

from __future__ import annotations

from typing import Any, Final

from .core_fields import FIELDS
from .errors import Json


def _parse(text: str) -> dict[str, dict[str, str]]:
    types: dict[str, dict[str, str]] = {}
    for line in text.replace("\n  ", " ").splitlines():
        name, _, fields = line.partition(": ")
        pairs = (field.partition("=") for field in fields.split())
        types[name] = {field: kind for field, _, kind in pairs}
    return types


_TYPES: Final = _parse(FIELDS)


def prune(value: Json, kind: str) -> Json:
    """Return a copy without nulls and without managedFields, which only the server writes.

    If `kind` is Pod or Node, fields that this kind does not have are removed too.
    """
    kept: Json = _known(value, kind) if kind in ("Pod", "Node") else without_nulls(value)
    metadata = kept.get("metadata")
    if isinstance(metadata, dict):
        metadata.pop("managedFields", None)
    return kept


def without_nulls(value: Any) -> Any:
    """Return a deep copy in which objects have no null fields."""
    if isinstance(value, dict):
        return {name: without_nulls(part) for name, part in value.items() if part is not None}
    if isinstance(value, list):
        return [without_nulls(part) for part in value]
    return value


def _known(value: Any, kind: str) -> Any:
    if not kind:
        return without_nulls(value)
    if isinstance(value, list):
        return [_known(part, kind) for part in value]
    if not isinstance(value, dict):
        return value
    if kind.startswith("*"):
        return {name: _known(part, kind[1:]) for name, part in value.items() if part is not None}
    fields = _TYPES[kind]
    return {
        name: _known(part, fields[name])
        for name, part in value.items()
        if name in fields and part is not None
    }
