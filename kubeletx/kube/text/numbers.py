"""Whole numbers in untrusted texts: annotations, labels, versions of objects.

`int` accepts more than ASCII digits, such as ``1_000``, and raises for more than 4300 digits. `str.isdigit` accepts
superscripts.
"""

from __future__ import annotations

from typing import Final

INT32_MAX: Final = 2**31 - 1
_LONGEST: Final = 39
"""Maximum number of digits; a number with 128 bits has as many."""


def whole_number(text: str | None, *, at_most: int | None = None) -> int | None:
    """Parse a whole number of 1 to 39 ASCII digits. Returns None for other texts, and for numbers above `at_most`.

    `at_most` None: no upper bound.
    """
    if not text or len(text) > _LONGEST or not (text.isascii() and text.isdecimal()):
        return None
    number = int(text)
    return number if at_most is None or number <= at_most else None
