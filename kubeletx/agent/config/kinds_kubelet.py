"""Kinds of values that only kubelet settings without effect in kubeletx have (see `agent.config.kubelet`)."""

from __future__ import annotations

from typing import Any

import msgspec

from .kinds import Boolean, type_word


class Opaque(msgspec.Struct, frozen=True):
    """Kind of a setting whose value is not checked, since the agent does not use it."""

    word: str = "VALUE"

    def from_file(self, value: object) -> object:
        return value

    def from_flag(self, text: str) -> str:
        return text

    def show(self, value: Any) -> object:
        return value


class Switches(msgspec.Struct, frozen=True):
    """Kind of a map from names to true or false, such as feature gates; on the command line ``A=true,B=false``."""

    word: str = "NAME=true|false,..."

    def from_file(self, value: object) -> dict[str, bool]:
        """Return the map from names to booleans; an empty one for null. Raises ValueError for any other value."""
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise ValueError(f"is {type_word(value)}; a map is expected")
        for name, switch in value.items():
            if not isinstance(name, str) or not isinstance(switch, bool):
                raise ValueError(f"has {name!r}: {switch!r}; names to true or false are expected")
        return dict(value)

    def from_flag(self, text: str) -> dict[str, bool]:
        """Split the text at commas, and each item into name and boolean at its first equals sign.

        Raises ValueError for an item without an equals sign or a boolean.
        """
        found = {}
        for part in text.split(","):
            if not part.strip():
                continue
            name, sign, switch = part.partition("=")
            if not sign:
                raise ValueError(f"has {part.strip()!r} without '='; write NAME=true")
            try:
                found[name.strip()] = Boolean().from_flag(switch.strip())
            except ValueError as error:
                raise ValueError(f"has {part.strip()!r}, which {error}") from None
        return found

    def show(self, value: Any) -> object:
        return dict(value)
