"""Finds the images that a user names: by id, tag, digest, or the short id that tables show."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from kubeletx.api import Conflict, ImageStatus

_SHORT: Final = re.compile(r"[0-9a-f]{4,64}")


def is_short_id(word: str, image_id: str) -> bool:
    """Return True if `word` is the beginning, at least four hex digits, of the digest in `image_id`."""
    return _SHORT.fullmatch(word) is not None and image_id.rpartition(":")[2].startswith(word)


def meant(word: str, images: Iterable[ImageStatus]) -> Sequence[str]:
    """Return the sorted ids of the images that `word` names; empty if it names none.

    `word`: an id, reference, tag or digest. If no image has it, it is taken as the beginning of an id; raises
    Conflict if several ids begin with it.
    """
    images = tuple(images)
    exact = {image.id for image in images if word in (image.id, image.ref, *image.tags, *image.digests)}
    short = exact or {image.id for image in images if is_short_id(word, image.id)}
    if len(short) > 1 and not exact:
        raise Conflict(f"image id {word} means several images: {', '.join(sorted(short))}; give more digits")
    return sorted(short)
