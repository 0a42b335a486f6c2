"""Structural schemas of custom resources: prune unknown fields, fill in defaults, find invalid values.

Supported are types, properties, required, items, additionalProperties, enum, bounds of numbers, lengths and
lists, pattern, format date-time, nullable, default, int-or-string, embedded resources and preserved unknown
fields. CEL rules, other formats and combinations (such as allOf) are not checked. Source: apiextensions-apiserver,
pkg/apiserver/schema and pkg/apiserver/validation.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Iterator
from typing import Any, Final

from .errors import Json

Cause = tuple[str, str, str]

_PRESERVES: Final = "x-kubernetes-preserve-unknown-fields"
_EMBEDS: Final = "x-kubernetes-embedded-resource"
_INT_OR_STRING: Final = "x-kubernetes-int-or-string"
_MOMENT: Final = r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)"
_OBJECT_FIELDS: Final = ("apiVersion", "kind", "metadata")


def pruned(value: Any, schema: Json, is_object: bool = True) -> Any:
    """Return a copy without the fields that the schema does not have.

    `is_object`: `value` is a whole API object, so apiVersion, kind and metadata are kept.
    """
    if isinstance(value, list):
        items = schema.get("items")
        return [pruned(item, items, False) for item in value] if isinstance(items, dict) else value
    if not isinstance(value, dict):
        return value
    properties, others = schema.get("properties") or {}, schema.get("additionalProperties")
    keeps = is_object or schema.get(_EMBEDS)
    made = {}
    for field, part in value.items():
        if keeps and field in _OBJECT_FIELDS:
            made[field] = part
        elif field in properties:
            made[field] = pruned(part, properties[field], False)
        elif isinstance(others, dict):
            made[field] = pruned(part, others, False)
        elif others or schema.get(_PRESERVES):
            made[field] = part
    return made


def defaulted(value: Any, schema: Json) -> Any:
    """Return a copy in which missing fields have the defaults of the schema."""
    if isinstance(value, list):
        items = schema.get("items")
        return [defaulted(item, items) for item in value] if isinstance(items, dict) else value
    if not isinstance(value, dict):
        return value
    made, properties = dict(value), schema.get("properties") or {}
    for field, inner in properties.items():
        if field not in made and "default" in inner:
            made[field] = copy.deepcopy(inner["default"])
        if field in made:
            made[field] = defaulted(made[field], inner)
    others = schema.get("additionalProperties")
    if isinstance(others, dict):
        made |= {field: defaulted(part, others) for field, part in made.items() if field not in properties}
    return made


def wrong_values(value: Any, schema: Json, path: str = "") -> Iterator[Cause]:
    """Yield one (field, reason, message) for each violation of the schema.

    `path`: path of `value` in the object; empty for the object itself.
    """
    if value is None and schema.get("nullable"):
        return
    if not _has_type(value, schema):
        kind = _type_of(value)
        wanted = "integer,string" if schema.get(_INT_OR_STRING) else schema["type"]
        message = f'Invalid value: "{kind}": {path or "<nil>"} in body must be of type {wanted}: "{kind}"'
        yield path, "FieldValueTypeInvalid", message
        return
    if "enum" in schema and value not in schema["enum"]:
        known = ", ".join(json.dumps(allowed) for allowed in schema["enum"])
        message = f"Unsupported value: {json.dumps(value)}: supported values: {known}"
        yield path, "FieldValueNotSupported", message
    for bound, is_broken, words in _BOUNDS:
        if bound in schema and is_broken(value, schema[bound]):
            problem = f"{path} in body {words.format(schema[bound])}"
            yield path, "FieldValueInvalid", f"Invalid value: {json.dumps(value)}: {problem}"
    if schema.get("format") == "date-time" and isinstance(value, str) and not _is_moment(value):
        problem = f"{path} in body must be of type date-time: {json.dumps(value)}"
        yield path, "FieldValueInvalid", f"Invalid value: {json.dumps(value)}: {problem}"
    if isinstance(value, dict):
        yield from _wrong_fields(value, schema, path)
    elif isinstance(value, list) and isinstance(schema.get("items"), dict):
        for index, item in enumerate(value):
            yield from wrong_values(item, schema["items"], f"{path}[{index}]")


def _wrong_fields(value: Json, schema: Json, path: str) -> Iterator[Cause]:
    properties, others = schema.get("properties") or {}, schema.get("additionalProperties")
    for field in schema.get("required") or ():
        if field not in value:
            yield _join(path, field), "FieldValueRequired", "Required value"
    for field, part in value.items():
        inner = properties.get(field, others)
        if isinstance(inner, dict) and (path or field not in _OBJECT_FIELDS):
            yield from wrong_values(part, inner, _join(path, field))


def _is_moment(text: str) -> bool:
    return re.fullmatch(_MOMENT, text) is not None


def _join(path: str, field: str) -> str:
    return f"{path}.{field}" if path else field


def _has_type(value: Any, schema: Json) -> bool:
    if schema.get(_INT_OR_STRING):
        return isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool))
    match schema.get("type"):
        case "object":
            return isinstance(value, dict)
        case "array":
            return isinstance(value, list)
        case "string":
            return isinstance(value, str)
        case "boolean":
            return isinstance(value, bool)
        case "integer":
            return not isinstance(value, bool) and isinstance(value, int | float) and value == int(value)
        case "number":
            return not isinstance(value, bool) and isinstance(value, int | float)
        case _:
            return True


def _type_of(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
        case _:
            return "object"


def _number(test: Callable[[float, Any], bool]) -> Callable[[Any, Any], bool]:
    return lambda value, bound: (
        isinstance(value, int | float) and not isinstance(value, bool) and test(value, bound)
    )


def _sized(kind: type[str] | type[list[Any]], test: Callable[[int, Any], bool]) -> Callable[[Any, Any], bool]:
    return lambda value, bound: isinstance(value, kind) and test(len(value), bound)


_BOUNDS: Final[tuple[tuple[str, Callable[[Any, Any], bool], str], ...]] = (
    ("minimum", _number(lambda value, bound: value < bound), "should be greater than or equal to {}"),
    ("maximum", _number(lambda value, bound: value > bound), "should be less than or equal to {}"),
    ("minLength", _sized(str, lambda size, bound: size < bound), "should be at least {} chars long"),
    ("maxLength", _sized(str, lambda size, bound: size > bound), "should be at most {} chars long"),
    ("minItems", _sized(list, lambda size, bound: size < bound), "should have at least {} items"),
    ("maxItems", _sized(list, lambda size, bound: size > bound), "should have at most {} items"),
    (
        "pattern",
        lambda value, bound: isinstance(value, str) and re.search(bound, value) is None,
        "should match '{}'",
    ),
)
