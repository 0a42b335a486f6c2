"""Chooses the images that garbage collection deletes. Pure. Source: kubelet, pkg/kubelet/images/image_gc_manager.go.

Only images that this agent pulled are chosen, and never an image that is pinned, in use, or younger than the minimum
age. The image that has been unused for the longest time is chosen first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from kubeletx.api import ImageReference, ImageStatus, UnitSummary, find_image_reference

from .records import ImageRecord
from .settings import CollectionSettings


class FilesystemUsage(msgspec.Struct, frozen=True, kw_only=True):
    """Size of one filesystem and the space available to unprivileged users, from statvfs."""

    capacity_bytes: int
    available_bytes: int


def bytes_to_free(usage: FilesystemUsage, settings: CollectionSettings) -> int:
    """Return the number of bytes to free to reach the low threshold; 0 if the usage is below the high threshold."""
    if usage.capacity_bytes <= 0:
        return 0
    used_percent = 100 - usage.available_bytes * 100 // usage.capacity_bytes
    if used_percent < settings.high_percent:
        return 0
    return max(0, usage.capacity_bytes * (100 - settings.low_percent) // 100 - usage.available_bytes)


def used_images(
    images: Iterable[ImageStatus], units: Iterable[UnitSummary], wanted: Iterable[str]
) -> frozenset[str]:
    """Return the ids of those `images` that a container or machine uses, or that a pod of this node refers to.

    `units`: containers and machines of all clients of the runtimes. `wanted`: image references as written in pods; each
    text is parsed once, since there may be thousands of pods.
    """
    words = set(wanted)
    for unit in units:
        words.update(word for word in (unit.image, unit.image_id) if word)
    canonical = {
        reference.canonical for word in words if (reference := find_image_reference(word)) is not None
    }
    return frozenset(image.id for image in images if _is_named(image, words, canonical))


def deletable(
    images: Iterable[ImageStatus],
    *,
    used: frozenset[str],
    records: Mapping[str, ImageRecord],
    min_age: timedelta,
    now: datetime,
) -> list[ImageStatus]:
    """Return the images that may be removed: pulled by this agent, unused, not pinned, and old enough.

    The image that has been unused for the longest time comes first. `used`: ids of images in use. `records`: this
    agent's records by image id. `min_age`: minimum time since the pull and since the last use.
    """
    free = [
        image
        for image in images
        if image.id not in used
        and not image.pinned
        and (record := records.get(image.id)) is not None
        and _age(record.pulled_at, now) >= min_age
        and _age(record.used_at, now) >= min_age
    ]
    return sorted(free, key=lambda i: (records[i.id].used_at, records[i.id].pulled_at, i.id))


def choose(candidates: Sequence[ImageStatus], wanted_bytes: int) -> list[ImageStatus]:
    """Return the first candidates that together free at least `wanted_bytes`; all if they are not enough."""
    chosen: list[ImageStatus] = []
    freed = 0
    for image in candidates:
        if freed >= wanted_bytes:
            break
        chosen.append(image)
        freed += image.size_bytes
    return chosen


def too_old(
    candidates: Iterable[ImageStatus],
    records: Mapping[str, ImageRecord],
    *,
    max_age: timedelta,
    now: datetime,
) -> list[ImageStatus]:
    """Return the candidates that have been unused for more than `max_age`."""
    return [image for image in candidates if _age(records[image.id].used_at, now) > max_age]


def _age(since: datetime, now: datetime) -> timedelta:
    """Return the time from `since` to `now`; zero if the clock was set back in between."""
    return max(timedelta(0), now - since)


def _is_named(image: ImageStatus, words: set[str], canonical: set[ImageReference]) -> bool:
    names = (image.id, image.ref, *image.tags, *image.digests)
    if any(name in words for name in names):
        return True
    named = map(find_image_reference, (*image.tags, *image.digests))
    return any(reference is not None and reference.canonical in canonical for reference in named)
