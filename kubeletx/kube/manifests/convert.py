"""Converts a decoded document to an API type. null means "not given", and quantities may be numbers.

In a list, or as the value of a map, null is an empty value (zero, for a quantity). `status` is left out, since only
the node writes it.
"""

from __future__ import annotations

import functools
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import msgspec

from kubeletx.api import InvalidPod

from ..text.type_errors import explain

T = TypeVar("T", bound=msgspec.Struct)

_CONSTANT: Final = ("apiVersion", "kind", "status")
_QUANTITY_MAPS: Final = frozenset({"limits", "requests", "overhead", "resourcesAllocated"})
_QUANTITIES: Final = frozenset({"sizeLimit", "divisor"})


def convert(document: Mapping[str, Any], kind: type[T], *, obj: str, prefix: str = "") -> T:
    """Convert a document to API type `kind`. Raises InvalidPod for the first mistake.

    `obj`: name of the document in errors. `prefix`: path of the document in its file, for errors.
    """
    try:
        raw = _tidied({key: value for key, value in document.items() if key not in _CONSTANT}, kind)
        return msgspec.convert(raw, kind)
    except RecursionError as err:
        raise InvalidPod(obj=obj, field=prefix, problem="is nested too deep", fix="flatten it") from err
    except msgspec.ValidationError as err:
        field, problem, fix = explain(str(err), raw)
        path = ".".join(part for part in (prefix, field) if part)
        raise InvalidPod(obj=obj, field=path, problem=problem, fix=fix) from err


Tidy = Callable[[Any], Any]


def _tidied(mapping: dict[str, Any], kind: type[msgspec.Struct]) -> dict[str, Any]:
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
    return _tidied(value, kind) if isinstance(value, dict) else value


def _same(value: Any) -> Any:
    return value


def _quantity(value: Any) -> Any:
    if isinstance(value, str):
        return value.strip()
    return repr(value) if type(value) in (int, float) else value
