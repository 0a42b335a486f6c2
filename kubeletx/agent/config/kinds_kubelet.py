"""Kinds of values of kubelet settings without effect in kubeletx (`agent.config.kubelet`).

They refuse what a kubelet refuses.
"""

from __future__ import annotations

from typing import Any

import msgspec

from .kinds import Boolean, type_word


class Opaque(msgspec.Struct, frozen=True):
    """Any value, unchecked: the agent does not use it."""

    word: str = "VALUE"

    def from_file(self, value: object) -> object:
        return value

    def from_flag(self, text: str) -> str:
        return text

    def show(self, value: Any) -> object:
        return value


class Switches(msgspec.Struct, frozen=True):
    """A map of names to true or false, such as feature gates; on the command line ``A=true,B=false``."""

    word: str = "NAME=true|false,..."

    def from_file(self, value: object) -> dict[str, bool]:
        """Accept a map of booleans."""
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise ValueError(f"is {type_word(value)}; a map is expected")
        for name, switch in value.items():
            if not isinstance(name, str) or not isinstance(switch, bool):
                raise ValueError(f"has {name!r}: {switch!r}; names to true or false are expected")
        return dict(value)

    def from_flag(self, text: str) -> dict[str, bool]:
        """Split at commas, then at the equals sign."""
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
