"""Finds unknown fields of a manifest: fields that the API type does not have.

They are misspelt, belong to another kind of object, or are at the wrong level. They have no effect, so their paths are
reported, as kubectl shows them: ``spec.containers[0].imagee``. Fields that a cluster writes to every object
(`managedFields`, `selfLink`) and the whole `status` count as known.
"""

from __future__ import annotations

import functools
import typing
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Final

import msgspec

from kubeletx.api.text import printable

from ..types.meta import ObjectMeta

MOST: Final = 20
"""Maximum number of unknown fields that are reported for one object."""
_LONGEST: Final = 200
_UNREAD: Final[dict[type[msgspec.Struct], tuple[str, ...]]] = {ObjectMeta: ("managedFields", "selfLink")}


def unknown_fields(document: Mapping[str, Any], kind: type[msgspec.Struct]) -> tuple[str, ...]:
    """Return the paths of the unknown fields of `document`, in order, at most `MOST`. `kind`: its API type."""
    written = {key: value for key, value in document.items() if key != "status"}
    return tuple(islice(_below(written, kind, ""), MOST))


def strict_error(fields: tuple[str, ...], kind: str = "Pod") -> str:
    """Return the message with which an API server's strict validation refuses an object with unknown fields.

    `fields`: paths of the unknown fields.
    """
    named = ", ".join(unknown(field) for field in fields)
    return f'{kind} in version "v1" cannot be handled as a {kind}: strict decoding error: {named}'


def unknown(field: str) -> str:
    """Return the API server's message for one unknown field. `field`: its path."""
    return f'unknown field "{field}"'


def _below(written: Mapping[str, Any], kind: type[msgspec.Struct], path: str) -> Iterator[str]:
    known = _known(kind)
    for key, value in written.items():
        here = f"{path}.{key}" if path else key
        if key not in known:
            yield printable(here[:_LONGEST])
            continue
        inner = known[key]
        if inner is None:
            continue
        if isinstance(value, dict):
            yield from _below(value, inner, here)
        elif isinstance(value, list):
            for index, item in enumerate(value):
                if isinstance(item, dict):
                    yield from _below(item, inner, f"{here}[{index}]")


@functools.cache
def _known(kind: type[msgspec.Struct]) -> dict[str, type[msgspec.Struct] | None]:
    """Map each JSON field name of the type to the Struct type of its value, or of its list's items; None: no Struct."""
    fields = {field.encode_name: _struct_in(field.type) for field in msgspec.structs.fields(kind)}
    return fields | dict.fromkeys(_UNREAD.get(kind, ()))


def _struct_in(annotation: Any) -> type[msgspec.Struct] | None:
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        return annotation
    if typing.get_origin(annotation) is dict:
        return None
    return next(
        (struct for argument in typing.get_args(annotation) if (struct := _struct_in(argument))), None
    )
