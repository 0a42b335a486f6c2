"""Structural schemas: the form that a CustomResourceDefinition's schema must have.

Checked are types, items of lists, and the fields that exclude each other. Source: apiextensions-apiserver,
pkg/apiserver/schema/validation.go and pkg/apis/apiextensions/validation/validation.go.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from .errors import Json

Cause = tuple[str, str, str]

_ROOT: Final = "at the root"
_FIELDS: Final = "for specified object fields"
_ITEMS: Final = "for specified array items"
_UNTYPED: Final = ("x-kubernetes-int-or-string", "x-kubernetes-preserve-unknown-fields")


def not_structural(schema: Json, path: str) -> Iterator[Cause]:
    """Yield one (field, reason, message) for each violation. `path`: path of the schema in its definition.

    Violations of one kind hide those of the other, as in a real server.
    """
    yield from list(_exclusions(schema, path)) or _untyped(schema, path, _ROOT)


def _exclusions(schema: Json, path: str) -> Iterator[Cause]:
    others = schema.get("additionalProperties")
    if others is not None and others is not True and schema.get("properties"):
        problem = "Forbidden: additionalProperties and properties are mutual exclusive"
        yield f"{path}.additionalProperties", "FieldValueForbidden", problem
    if schema.get("uniqueItems"):
        problem = (
            "Forbidden: uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
        )
        yield f"{path}.uniqueItems", "FieldValueForbidden", problem
    for inner, inner_path, _ in _inner(schema, path):
        yield from _exclusions(inner, inner_path)


def _untyped(schema: Json, path: str, level: str) -> Iterator[Cause]:
    if not schema.get("type") and not any(schema.get(field) for field in _UNTYPED):
        yield f"{path}.type", "FieldValueRequired", f"Required value: must not be empty {level}"
    elif level == _ROOT and schema.get("type") != "object":
        yield (
            f"{path}.type",
            "FieldValueInvalid",
            f'Invalid value: "{schema.get("type", "")}": must be object at the root',
        )
    if schema.get("type") == "array" and not isinstance(schema.get("items"), dict):
        yield f"{path}.items", "FieldValueRequired", "Required value: must be specified"
    for inner, inner_path, inner_level in _inner(schema, path):
        yield from _untyped(inner, inner_path, inner_level)


def _inner(schema: Json, path: str) -> Iterator[tuple[Json, str, str]]:
    """Yield the schemas directly inside a schema, with their path and level."""
    for name, inner in (schema.get("properties") or {}).items():
        yield inner, f"{path}.properties[{name}]", _FIELDS
    others, items = schema.get("additionalProperties"), schema.get("items")
    if isinstance(others, dict):
        yield others, f"{path}.additionalProperties", _FIELDS
    if isinstance(items, dict):
        yield items, f"{path}.items", _ITEMS
