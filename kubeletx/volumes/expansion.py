"""``$(NAME)`` references in commands, arguments, environment values and subPathExpr.

``$$`` stands for one dollar sign, so ``$$(NAME)`` is the text ``$(NAME)``. A reference to an unknown name
stays as it is, except where the caller asks for an error (subPathExpr). Source: core/v1 EnvVar.value.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

_TOKEN: Final = re.compile(r"\$(?:\$|\(([^)]*)\))", re.DOTALL)


class UnknownName(LookupError):
    """A reference to a name that has no value."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


def expand(text: str, values: Mapping[str, str]) -> str:
    """`text` with every known reference replaced; unknown ones stay as they are written."""
    if "$" not in text:
        return text

    def replace(match: re.Match[str]) -> str:
        name = match[1]
        return "$" if name is None else values.get(name, match[0])

    return _TOKEN.sub(replace, text)


def expand_strictly(text: str, values: Mapping[str, str]) -> str:
    """`text` with every reference replaced. Raises UnknownName for the first one without a value."""

    def replace(match: re.Match[str]) -> str:
        name = match[1]
        if name is None:
            return "$"
        if name not in values:
            raise UnknownName(name)
        return values[name]

    return _TOKEN.sub(replace, text)
