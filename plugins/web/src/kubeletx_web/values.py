"""Reads plain JSON of the agent, perhaps of another version: what is missing or of another type is left out."""

from __future__ import annotations

from base64 import b64decode
from typing import Any, TypeVar

T = TypeVar("T")


def field(answer: object, name: str, default: T) -> T:
    """Return a field of plain JSON; `default` if it is missing or of another type."""
    value = answer.get(name) if isinstance(answer, dict) else None
    return value if isinstance(value, type(default)) else default


def number(answer: object, name: str) -> float:
    """Return a number of plain JSON; 0 if it is missing, of another type, or out of all proportion."""
    value = answer.get(name) if isinstance(answer, dict) else None
    return value if isinstance(value, (int, float)) and abs(value) < 2**63 else 0


def samples(answer: object, name: str) -> list[int | None]:
    """Return the whole numbers in a list of plain JSON; None for anything else."""
    some: list[object] = field(answer, name, [])
    return [each if isinstance(each, int) and 0 <= each < 2**63 else None for each in some]


def listed(answer: object, name: str = "items") -> list[dict[str, Any]]:
    """Return the objects in a list of plain JSON, a field of `answer`."""
    some: list[object] = field(answer, name, [])
    return [each for each in some if isinstance(each, dict)]


def picture_of(panel: object) -> bytes | None:
    """Return the picture in a panel's content; None if it has none. Shape: `kubeletx.api.Png` as JSON."""
    try:
        return b64decode(field(panel, "data", "")) if field(panel, "type", "") == "png" else None
    except ValueError:
        return None
