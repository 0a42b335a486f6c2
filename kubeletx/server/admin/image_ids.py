"""Finds the images that a user names: by id, tag, digest, or prefix of an id as in tables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from kubeletx.api import Conflict, ImageStatus

_SHORT: Final = re.compile(r"[0-9a-f]{4,64}")


def is_short_id(word: str, image_id: str) -> bool:
    """Return True if the word is a prefix of the id's digest with at least four digits."""
    return _SHORT.fullmatch(word) is not None and image_id.rpartition(":")[2].startswith(word)


def meant(word: str, images: Iterable[ImageStatus]) -> Sequence[str]:
    """Return the sorted ids of the images that the word names; a full name is preferred to a prefix of an id.

    Raises Conflict if several images share the prefix.
    """
    images = tuple(images)
    exact = {one.id for one in images if word in (one.id, one.ref, *one.tags, *one.digests)}
    short = exact or {one.id for one in images if is_short_id(word, one.id)}
    if len(short) > 1 and not exact:
        raise Conflict(f"image id {word} means several images: {', '.join(sorted(short))}; give more digits")
    return sorted(short)
