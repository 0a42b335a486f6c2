"""`Problems` collects all mistakes in one pod, each with field, found value and fix."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from kubeletx.api import InvalidPod

from ..text.quantity import Quantity, parse
from .words import Check

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1


class Problems:
    """Collects all mistakes in one object in `found`. `obj`: name of the object in the errors, such as a file."""

    def __init__(self, obj: str) -> None:
        self._obj = obj
        self.found: list[InvalidPod] = []

    def add(self, field: str, problem: str, fix: str = "") -> None:
        """Add one problem: what was found in `field`, and what to do about it (`fix`)."""
        self.found.append(InvalidPod(obj=self._obj, field=field, problem=problem, fix=fix))

    def required(self, field: str, value: str | None, fix: str = "set it") -> bool:
        """Add a problem if the value is missing or empty; returns True if it is set."""
        if not value:
            self.add(field, "is missing", fix)
        return bool(value)

    def word(self, field: str, value: str | None, check: Check, fix: str = "correct it") -> None:
        """Add a problem if the text is not empty and `check` refuses it."""
        if value and (problem := check(value)):
            self.add(field, f"{show(value)} {problem}", fix)

    def name(self, field: str, value: str | None, check: Check) -> None:
        """Add a problem if the text is missing, or if `check` refuses it."""
        if self.required(field, value):
            self.word(field, value, check)

    def one_of(self, field: str, value: str | None, allowed: Collection[str]) -> None:
        """Add a problem if the text is set and is not one of `allowed`."""
        if value is not None and value not in allowed:
            self.add(field, f"{show(value)} is not known", f"use {alternatives(allowed)}")

    def between(self, field: str, value: int | None, low: int, high: int = INT32_MAX) -> None:
        """Add a problem if the number is set and is not within the bounds."""
        if value is not None and not low <= value <= high:
            wanted = (
                f"{low} or more" if high in (INT32_MAX, INT64_MAX) and value < low else f"{low} to {high}"
            )
            self.add(field, f"{value} is out of range", f"use {wanted}")

    def unique(self, field: str, value: str, seen: set[str], what: str) -> None:
        """Add a problem if the name `value` is in `seen`; then add the name to `seen`.

        `what`: what has the name, such as "container", for the message.
        """
        if value and value in seen:
            self.add(field, f"{show(value)} is already the name of another {what}", "choose another name")
        seen.add(value)

    def exactly_one(self, field: str, given: list[str], allowed: Iterable[str], what: str) -> None:
        """Add a problem unless exactly one of the fields `allowed` is set.

        `given`: names of the fields that are set. `what`: kind of these fields, such as "source".
        """
        if len(given) > 1:
            self.add(field, f"has {' and '.join(given)}", f"keep exactly one {what}")
        elif not given:
            self.add(field, f"has no {what}", f"set {alternatives(allowed)}")

    def quantity(self, field: str, text: str | None) -> Quantity | None:
        """Parse a quantity of 0 or more. Returns None if it is missing or invalid; an invalid one adds a problem."""
        if text is None:
            return None
        try:
            amount = parse(text)
        except (ValueError, TypeError) as err:
            self.add(field, f"{show(text)} {err}", "write a number with a suffix such as 500m, 64Mi or 1G")
            return None
        if amount.nanos < 0:
            self.add(field, f"{show(text)} is negative", "use 0 or more")
            return None
        return amount


def show(value: object) -> str:
    """Quote a value, shortened so that it fits in one line."""
    text = repr(value)
    return text if len(text) <= 70 else f"{text[:67]}..."


def alternatives(words: Iterable[str]) -> str:
    """Join words as in ``A, B or C``."""
    *head, last = [word or '""' for word in words]
    return f"{', '.join(head)} or {last}" if head else last
