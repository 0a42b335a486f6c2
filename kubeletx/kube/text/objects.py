"""Decoding of API objects from JSON in which a null may stand for an absent field.

Servers in Go write an empty list or map as null if its field has no ``omitempty``.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

T = TypeVar("T")


def decode_object(raw: bytes | msgspec.Raw, decoder: msgspec.json.Decoder[T]) -> T:
    """Decode an object. A null counts as an absent field if the field's type does not accept null.

    Raises msgspec.DecodeError and UnicodeDecodeError as the decoder does.
    """
    try:
        return _decode(raw, decoder)
    except RecursionError as error:
        raise msgspec.DecodeError("it is nested too deep") from error


def _decode(raw: bytes | msgspec.Raw, decoder: msgspec.json.Decoder[T]) -> T:
    try:
        return decoder.decode(raw)
    except msgspec.ValidationError as error:
        # Nulls are rare, so only an object that failed pays for the second reading.
        given = msgspec.json.decode(raw)
        cleaned = without_nulls(given)
        if cleaned == given:
            raise
        try:
            return decoder.decode(msgspec.json.encode(cleaned))
        except msgspec.ValidationError:
            raise error from None


def without_nulls(value: Any) -> Any:
    """Return a copy of decoded JSON without keys whose value is null. Nulls that are items of a list stay."""
    if isinstance(value, dict):
        return {key: without_nulls(inner) for key, inner in value.items() if inner is not None}
    if isinstance(value, list):
        return [without_nulls(item) for item in value]
    return value
