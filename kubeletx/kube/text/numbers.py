"""Whole numbers in untrusted texts: annotations, labels, versions of objects.

`int` takes far more than digits (``1_000``, superscripts pass `str.isdigit`), and raises for more than 4300 of them.
"""

from __future__ import annotations

from typing import Final

INT32_MAX: Final = 2**31 - 1
_LONGEST: Final = 39
"""Digits of 128 bits."""


def whole_number(text: str | None, *, at_most: int | None = None) -> int | None:
    """The number; None for what is not written in ASCII digits alone, has more than 39 of them or is beyond
    `at_most`."""
    if not text or len(text) > _LONGEST or not (text.isascii() and text.isdecimal()):
        return None
    number = int(text)
    return number if at_most is None or number <= at_most else None
