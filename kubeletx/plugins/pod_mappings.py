"""Reads the mappings with which plugins set pods, before they are decoded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def key_of(pod: Any) -> tuple[str, str]:
    """Return the namespace and name in the mapping's metadata; "default" and "" if they are missing."""
    metadata = pod.get("metadata") if isinstance(pod, Mapping) else None
    if not isinstance(metadata, Mapping):
        return "default", ""
    return str(metadata.get("namespace") or "default"), str(metadata.get("name") or "")


def plain(value: Any) -> Any:
    """Convert a value that the JSON encoder does not support. Raises TypeError if it is not a mapping."""
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is not a JSON value")
