"""Whole numbers in untrusted texts: annotations, labels, versions of objects.

`int` takes far more than digits (``1_000``, superscripts pass `str.isdigit`), and raises for more than 4300 of them.
"""

from __future__ import annotations

from typing import Final

INT32_MAX: Final = 2**31 - 1
_LONGEST: Final = 39
"""Digits of a number with 128 bits."""


def whole_number(text: str | None, *, at_most: int | None = None) -> int | None:
    """Parse a whole number; None unless it is ASCII digits only, at most 39 of them, and at most `at_most`."""
    if not text or len(text) > _LONGEST or not (text.isascii() and text.isdecimal()):
        return None
    number = int(text)
    return number if at_most is None or number <= at_most else None
