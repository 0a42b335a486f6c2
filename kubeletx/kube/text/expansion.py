"""``$(NAME)`` references in commands, arguments, environment values and subPathExpr.

``$$`` is one dollar sign, so ``$$(NAME)`` is the text ``$(NAME)``. A reference to an unknown name
stays as it is, except where the caller asks for an error (subPathExpr). Source: core/v1 EnvVar.value.

References can double a text with every variable, so a result is measured while it is put together and never
grows beyond its limit. `least_size` measures without building the result. Work is linear in the text.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Final

MAX_STRING_BYTES: Final = 32 * os.sysconf("SC_PAGE_SIZE")
"""Maximum bytes of an argument or ``NAME=value``, with its final NUL, in execve(2)."""

MAX_TOTAL_BYTES: Final = 6 * 1024 * 1024
"""Maximum bytes of all arguments and variables together, whatever the stack limit. Source: execve(2)."""

MAX_PATH_BYTES: Final = 4095
"""Maximum bytes of a path. Source: limits.h, PATH_MAX."""

_TOKEN: Final = re.compile(r"\$(?:\$|\(([^)]*)\))", re.DOTALL)
_DOUBLED: Final = re.compile(r"\$\$")


class UnknownName(LookupError):
    """The text refers to a name that has no value. `name`: that name."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


class TooLong(ValueError):
    """The text has, or would have after expansion, more bytes than allowed."""

    def __init__(self, at_most: int) -> None:
        super().__init__(f"has more than {at_most} bytes")
        self.at_most = at_most


def size_of(text: str) -> int:
    """Number of bytes of a text in UTF-8."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def expand(text: str, values: Mapping[str, str], *, at_most: int = MAX_STRING_BYTES) -> str:
    """Replace every reference to a known name; unknown references stay as they are written. Raises TooLong."""
    return _put_together(text, values.get, at_most)


def expand_strictly(text: str, values: Mapping[str, str], *, at_most: int = MAX_STRING_BYTES) -> str:
    """Replace every reference. Raises UnknownName for the first name without a value, and TooLong."""

    def value_of(name: str, _: str) -> str:
        if name not in values:
            raise UnknownName(name)
        return values[name]

    return _put_together(text, value_of, at_most)


def least_size(text: str, sizes: Mapping[str, int]) -> int:
    """Return the least number of bytes that the expanded text can have, without expanding it.

    `sizes`: bytes of the values that are known; other values count as empty.
    """
    return sum(
        size_of(literal) + (sizes.get(name, 0) if name is not None else 0)
        for literal, name, _ in _parts(text)
    )


def _put_together(text: str, value_of: Callable[[str, str], str], at_most: int) -> str:
    found: list[str] = []
    size = 0
    for literal, name, written in _parts(text):
        value = literal if name is None else literal + value_of(name, written)
        size += len(value)
        if size > at_most:
            raise TooLong(at_most)
        found.append(value)
    whole = "".join(found)
    if size_of(whole) > at_most:
        raise TooLong(at_most)
    return whole


def _parts(text: str) -> Iterator[tuple[str, str | None, str]]:
    """Yield (literal text, name of the reference after it, that reference as written).

    Literal text that no reference follows comes with None and an empty text.
    """
    at = 0
    for match in _tokens(text):
        literal, name = text[at : match.start()], match[1] if match.lastindex else None
        yield (literal, name, match[0]) if name is not None else (f"{literal}$", None, "")
        at = match.end()
    yield text[at:], None, ""


def _tokens(text: str) -> Iterator[re.Match[str]]:
    """Yield references and doubled dollar signs.

    The search ends at the last ``)``: looking for an end from each ``$(`` after it would take quadratic time.
    """
    last = text.rfind(")") + 1
    yield from _TOKEN.finditer(text, 0, last)
    yield from _DOUBLED.finditer(text, last)
