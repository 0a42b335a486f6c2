"""Names of the objects of manifests in errors."""

from __future__ import annotations


def describe(origin: str, name: str, kind: str = "Pod") -> str:
    """Return the name of an object in errors: its file or URL, followed by its kind and name if it has a name."""
    return f"{origin} ({kind.lower()} {name})" if name else origin
