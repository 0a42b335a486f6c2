"""Expansion of ``$(NAME)`` references in commands, arguments, environment values and subPathExpr.

``$$`` is one dollar sign, so ``$$(NAME)`` is the text ``$(NAME)``. `expand` leaves a reference to an unknown name as it
is. `expand_strictly`, for subPathExpr, raises an error. Source: core/v1 EnvVar.value.

Each variable can refer to the one before it twice, so sizes can double with every variable. The result is therefore
measured while it is built and never grows beyond its limit. `least_size` measures without building the result. Time is
linear in the length of the text.
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

MAX_POD_BYTES: Final = 16 * 1024 * 1024
"""Maximum bytes of the arguments and variables of all containers of a pod: what a CRI server takes in one message."""

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
    """Return the number of bytes of a text in UTF-8."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def expand(text: str, values: Mapping[str, str], *, at_most: int = MAX_STRING_BYTES) -> str:
    """Replace every reference to a known name; other references stay as they are written.

    Raises TooLong if the result has more than `at_most` bytes.
    """
    return _put_together(text, values.get, at_most)


def expand_strictly(text: str, values: Mapping[str, str], *, at_most: int = MAX_STRING_BYTES) -> str:
    """Replace every reference. Raises UnknownName for the first name that is not in `values`.

    Raises TooLong if the result has more than `at_most` bytes.
    """

    def value_of(name: str, _: str) -> str:
        if name not in values:
            raise UnknownName(name)
        return values[name]

    return _put_together(text, value_of, at_most)


def least_size(text: str, sizes: Mapping[str, int]) -> int:
    """Return the minimum number of bytes of the expanded text, without expanding it.

    `sizes`: number of bytes of each known value, by name. A reference to another name counts as 0 bytes.
    """
    if "$" not in text:
        return size_of(text)
    return sum(
        size_of(literal) + (sizes.get(name, 0) if name is not None else 0)
        for literal, name, _ in _parts(text)
    )


def _put_together(text: str, value_of: Callable[[str, str], str], at_most: int) -> str:
    pieces: list[str] = []
    size = 0
    for literal, name, written in _parts(text):
        value = literal if name is None else literal + value_of(name, written)
        size += len(value)
        if size > at_most:
            raise TooLong(at_most)
        pieces.append(value)
    whole = "".join(pieces)
    if size_of(whole) > at_most:
        raise TooLong(at_most)
    return whole


def _parts(text: str) -> Iterator[tuple[str, str | None, str]]:
    """Yield tuples of literal text, the name of the reference that follows it, and that reference as written.

    If no reference follows, the name is None and the reference is empty.
    """
    at = 0
    for match in _tokens(text):
        literal, name = text[at : match.start()], match[1] if match.lastindex else None
        yield (literal, name, match[0]) if name is not None else (f"{literal}$", None, "")
        at = match.end()
    yield text[at:], None, ""


def _tokens(text: str) -> Iterator[re.Match[str]]:
    """Yield matches of references and of doubled dollar signs, in order.

    References are searched only up to the last ``)``. After it, a search for the end of each ``$(`` would take
    quadratic time.
    """
    last = text.rfind(")") + 1
    yield from _TOKEN.finditer(text, 0, last)
    yield from _DOUBLED.finditer(text, last)
