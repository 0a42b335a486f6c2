"""Resolve a user's word to images: an id, a tag, a digest, or the prefix of an id as tables show it."""

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
    """Ids of the images that the word means; a full name goes before the beginning of an id.

    Raises Conflict for a beginning that several images share.
    """
    images = tuple(images)
    exact = {one.id for one in images if word in (one.id, one.ref, *one.tags, *one.digests)}
    short = exact or {one.id for one in images if is_short_id(word, one.id)}
    if len(short) > 1 and not exact:
        raise Conflict(f"image id {word} means several images: {', '.join(sorted(short))}; give more digits")
    return sorted(short)
