"""`ImageCollector`: keeps the stores' disks below their thresholds, and prunes on request.

Every five minutes, per store: the images in use are listed over all of its runtimes (foreign containers included); when
the disk is above the high threshold, unused images of this agent are removed until it is below the low one. If any
runtime of the store does not answer, nothing is collected there: no answer does not mean "unused".
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Container, Iterable, Sequence
from datetime import timedelta

import msgspec
import structlog

from kubeletx.api import (
    BoundedThreadPool,
    Clock,
    Conflict,
    EventSink,
    ImageStatus,
    KubeletxError,
    ObjectRef,
    RuntimeName,
    StoreId,
    UnitSummary,
    names,
)

from . import choice
from .choice import FilesystemUsage
from .records import ImageRecords
from .settings import CollectionSettings
from .store import ImageStore
from .stores import ImageStores

log = structlog.get_logger(__name__)

FREE_DISK_SPACE_FAILED = "FreeDiskSpaceFailed"


class Survey(msgspec.Struct, frozen=True, kw_only=True):
    """Result of listing a store and its users. `images`: all its images. `used`: ids of those in use."""

    images: tuple[ImageStatus, ...]
    used: frozenset[str]


class Removed(msgspec.Struct, frozen=True, kw_only=True):
    """Images that were removed from one store. `runtimes`: those that use the store."""

    store: StoreId
    runtimes: tuple[RuntimeName, ...]
    images: tuple[ImageStatus, ...] = ()

    @property
    def freed_bytes(self) -> int:
        """Freed bytes, from the sizes the store reported."""
        return sum(image.size_bytes for image in self.images)


class ImageCollector:
    """Collects unused images. `wanted`: returns references that pods want from the store of these runtimes.

    `node`: the node object, to which its events belong.
    """

    def __init__(
        self,
        stores: ImageStores,
        *,
        records: ImageRecords,
        clock: Clock,
        events: EventSink,
        node: ObjectRef,
        settings: CollectionSettings,
        wanted: Callable[[Container[RuntimeName]], Iterable[str]],
        disk_usage: Callable[[str], FilesystemUsage] | None = None,
    ) -> None:
        self._stores = stores
        self._records = records
        self._clock = clock
        self._events = events
        self._node = node
        self._settings = settings
        self._wanted = wanted
        self._disk_usage = disk_usage or _disk_usage
        self._threads = BoundedThreadPool("image-gc", threads=2)
        self._busy: dict[StoreId, asyncio.Lock] = {}

    def close(self) -> None:
        """End idle threads; no collection runs after this."""
        self._threads.close()

    async def run(self) -> None:
        """Collect periodically until cancelled."""
        while True:
            await self._clock.sleep(self._settings.period_seconds)
            await self.collect_all()

    async def collect_all(self) -> Sequence[Removed]:
        """Collect in every store that answers; failures are events, not exceptions."""
        removed: list[Removed] = []
        stores, _missing = await self._stores.all()
        for store in stores:
            try:
                removed.append(await self.collect(store))
            except KubeletxError as error:
                self._warn(names.Event.IMAGE_GC_FAILED, f"image store of {_names(store)}: {error}")
        return removed

    async def collect(self, store: ImageStore) -> Removed:
        """Remove unused images of this agent: all above the maximum age, and as many as the disk's thresholds demand.

        A disk that stays too full is an event.
        """
        async with self._lock(store):
            before = self._records.access.known(store.id)
            survey = await self.survey(store)
            self._records.access.settle(store.id, before, survey.images)
            now = self._clock.now()
            self._records.used(store.id, survey.used, now)
            records = self._records.of_store(store.id)
            self._forget_vanished(store.id, survey, records)
            candidates = self._candidates(store, survey)
            old: list[ImageStatus] = []
            if self._settings.max_age_seconds > 0:
                max_age = timedelta(seconds=self._settings.max_age_seconds)
                old = choice.too_old(candidates, records, max_age=max_age, now=now)
            wanted = await self._bytes_to_free(store)
            chosen = choice.choose([image for image in candidates if image not in old], wanted)
            removed = await self._remove(store, [*old, *chosen])
            if wanted > 0 and removed.freed_bytes < wanted:
                self._warn(
                    FREE_DISK_SPACE_FAILED,
                    f"image store of {_names(store)}: wanted to free {wanted} bytes, "
                    f"found {removed.freed_bytes} bytes of unused images of ours",
                )
            return removed

    async def prune(self, store: ImageStore, *, all_unused: bool = False) -> Removed:
        """Remove every unused image of this agent or, with `all_unused`, of all clients; pinned ones stay."""
        async with self._lock(store):
            survey = await self.survey(store)
            if all_unused:
                chosen = [i for i in survey.images if i.id not in survey.used and not i.pinned]
            else:
                chosen = self._candidates(store, survey, min_age=timedelta(0))
            return await self._remove(store, chosen)

    async def relieve(self, store: ImageStore) -> Removed:
        """Remove every unused image of this agent above the minimum age, for a full disk. A failure is an event."""
        try:
            async with self._lock(store):
                survey = await self.survey(store)
                return await self._remove(store, self._candidates(store, survey))
        except KubeletxError as error:
            self._warn(names.Event.IMAGE_GC_FAILED, f"image store of {_names(store)}: {error}")
            return Removed(store=store.id, runtimes=tuple(store.members))

    async def remove(self, store: ImageStore, image: ImageStatus) -> None:
        """Remove one image on request. Raises Conflict while it is in use or pinned."""
        async with self._lock(store):
            survey = await self.survey(store)
            if image.id in survey.used:
                raise Conflict(f"image {image.id} is in use by a container or wanted by a pod")
            if image.pinned:
                raise Conflict(f"image {image.id} is pinned in its store")
            await store.remove(image)

    async def survey(self, store: ImageStore) -> Survey:
        """List a store's images and their users. Raises if any of its runtimes does not answer."""
        handles = tuple(store.members.values())
        units = await asyncio.gather(*(handle.list_units({}) for handle in handles))
        images = await store.list()
        everything: list[UnitSummary] = [unit for listed in units for unit in listed]
        used = choice.used_images(images, everything, self._wanted(store.members))
        return Survey(images=tuple(images), used=used)

    # --- private ---

    def _lock(self, store: ImageStore) -> asyncio.Lock:
        return self._busy.setdefault(store.id, asyncio.Lock())

    def _candidates(
        self, store: ImageStore, survey: Survey, *, min_age: timedelta | None = None
    ) -> list[ImageStatus]:
        age = timedelta(seconds=self._settings.min_age_seconds) if min_age is None else min_age
        return choice.deletable(
            survey.images,
            used=survey.used | self._pulling(store, survey),
            records=self._records.of_store(store.id),
            min_age=age,
            now=self._clock.now(),
        )

    def _pulling(self, store: ImageStore, survey: Survey) -> frozenset[str]:
        """Ids of images that a running pull is fetching."""
        return choice.used_images(survey.images, (), (key.partition("|")[0] for key in store.pulls))

    def _forget_vanished(self, store: StoreId, survey: Survey, records: Iterable[str]) -> None:
        present = {image.id for image in survey.images}
        for image_id in records:
            if image_id not in present:
                self._records.removed(store, image_id)

    async def _bytes_to_free(self, store: ImageStore) -> int:
        if any(h.traits is not None and h.traits.remote for h in store.members.values()):
            return 0  # not our disk
        info = await store.info()
        wanted = 0
        for filesystem in info.filesystems:
            try:
                usage = await self._threads.run(self._disk_usage, filesystem.mountpoint)
            except OSError as error:
                self._warn(names.Event.IMAGE_GC_FAILED, f"{filesystem.mountpoint}: {error.strerror}")
                continue
            if usage.capacity_bytes <= 0:
                self._warn(
                    names.Event.INVALID_DISK_CAPACITY,
                    f"invalid capacity {usage.capacity_bytes} on image filesystem {filesystem.mountpoint}",
                )
                continue
            wanted = max(wanted, choice.bytes_to_free(usage, self._settings))
        return wanted

    async def _remove(self, store: ImageStore, images: Iterable[ImageStatus]) -> Removed:
        done: list[ImageStatus] = []
        for image in images:
            try:
                await store.remove(image)
            except KubeletxError as error:
                log.warning("Failed to remove image", image=image.id, store=store.id, err=str(error))
                continue
            log.info(
                "Removed image", image=(image.tags or (image.id,))[0], store=store.id, bytes=image.size_bytes
            )
            done.append(image)
        return Removed(store=store.id, runtimes=tuple(store.members), images=tuple(done))

    def _warn(self, reason: str, message: str) -> None:
        self._events.record(self._node, type="Warning", reason=reason, message=message)


def _names(store: ImageStore) -> str:
    return ", ".join(store.members)


def _disk_usage(path: str) -> FilesystemUsage:
    found = os.statvfs(path)
    return FilesystemUsage(
        capacity_bytes=found.f_blocks * found.f_frsize, available_bytes=found.f_bavail * found.f_frsize
    )
