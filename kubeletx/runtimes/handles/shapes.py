"""Checks the fields of values that plugins return against the type hints of their classes. Pure.

msgspec checks types when it decodes, not when a plugin calls a constructor, so a field may hold anything. `has_shape`
looks at one value. `have_shape` looks at many values of one class, a whole column of fields at a time; for 100 units it
is several times faster than 100 calls of `has_shape`.
"""

from __future__ import annotations

import enum
import types
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import cache
from itertools import chain
from operator import attrgetter
from typing import Any, Union, cast, get_args, get_origin, get_type_hints

import msgspec


@cache
def hints_of(cls: Hashable) -> Mapping[str, Any]:
    """Return the type hints of the fields of a Struct class, by name; a NewType is replaced by its base."""
    struct = cast("type[msgspec.Struct]", cls)
    return {
        name: _plain(hint)
        for name, hint in get_type_hints(struct).items()
        if name in struct.__struct_fields__
    }


def wrong_field(value: Any) -> str:
    """Return a sentence about the first field of a Struct that does not fit its type hint; empty if all fit."""
    cls: type = type(value)
    for name, hint in hints_of(cls).items():
        field = getattr(value, name, None)
        if not has_shape(field, hint):
            return f"{name} is {describe(field)}; must be {words_of_hint(hint)}"
    return ""


def has_shape(value: Any, hint: Any) -> bool:
    """Return True if the value fits the type hint, with everything inside it."""
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        return any(has_shape(value, member) for member in get_args(hint))
    if origin is tuple:
        return isinstance(value, tuple | list) and all(has_shape(item, get_args(hint)[0]) for item in value)
    if origin is dict:
        key, item = get_args(hint)
        return isinstance(value, dict) and all(
            has_shape(k, key) and has_shape(v, item) for k, v in value.items()
        )
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if isinstance(hint, type):
        return isinstance(value, hint) and (not isinstance(value, msgspec.Struct) or not wrong_field(value))
    return True


def have_shape(cls: type, values: Sequence[Any]) -> bool:
    """Return True if every value has exactly the class `cls` and all its fields fit their type hints.

    False may also mean that a value is of a subclass, or fits in a way that is too rare to be looked at quickly.
    """
    if not values:
        return True
    if set(map(type, values)) != {cls}:
        return False
    names, get, checks = _plan(cls)
    columns = zip(*map(get, values), strict=True) if len(names) > 1 else [tuple(map(get, values))]
    try:
        return all(check(column) for check, column in zip(checks, columns, strict=True))
    except (
        TypeError,
        AttributeError,
    ):  # a join of items that are not text; the items of an object that is not a dict
        return False


def describe(value: Any) -> str:
    """Return a short description of a value that has the wrong type or content, for messages."""
    if value is None or isinstance(value, bool | int | float):
        return repr(value)
    if isinstance(value, str):
        return repr(value if len(value) <= 60 else f"{value[:60]}...")
    return f"a value of type {type(value).__name__}"


def words_of_hint(hint: Any) -> str:
    """Return a type hint as an author would write it, such as ``dict[str, str]``."""
    return hint.__name__ if isinstance(hint, type) and get_origin(hint) is None else str(hint)


def _plain(hint: Any) -> Any:
    base = getattr(hint, "__supertype__", None)
    if base is not None:
        return _plain(base)
    origin, args = get_origin(hint), get_args(hint)
    if not args:
        return hint
    plain = tuple(argument if argument is Ellipsis else _plain(argument) for argument in args)
    return Union[plain] if origin in (Union, types.UnionType) else origin[plain]  # noqa: UP007 - made at run time


@cache
def _plan(cls: Hashable) -> tuple[tuple[str, ...], Callable[[Any], Any], tuple[Callable[[Any], bool], ...]]:
    hints = hints_of(cls)
    return tuple(hints), attrgetter(*hints), tuple(_column_check(hint) for hint in hints.values())


def _column_check(hint: Any) -> Callable[[Any], bool]:
    origin, args = get_origin(hint), get_args(hint)
    if hint is str:
        return _are_texts
    if origin is dict and args == (str, str):
        return _are_labels
    if origin is tuple and args[0] is str:
        return lambda column: _are(column, {tuple}) and _are_texts(list(chain.from_iterable(column)))
    if origin is tuple:
        return lambda column: _are(column, {tuple}) and have_shape(args[0], list(chain.from_iterable(column)))
    scalars = set(args) if origin in (Union, types.UnionType) else {hint}
    if all(isinstance(scalar, type) and _is_scalar(scalar) for scalar in scalars):
        return lambda column: _are(column, scalars)
    return lambda column: all(has_shape(item, hint) for item in column)


def _is_scalar(cls: type) -> bool:
    return cls in (int, bool, float, bytes, str, type(None)) or issubclass(cls, enum.Enum)


def _are(column: Any, allowed: set[Any]) -> bool:
    return set(map(type, column)) <= allowed


def _are_texts(column: Any) -> bool:
    "".join(column)  # raises TypeError for anything but strings, faster than a look at each type
    return True


def _are_labels(column: Any) -> bool:
    "".join(set().union(*column))  # most keys are the same in each dict
    "".join(chain.from_iterable(map(dict.values, column)))
    return True
