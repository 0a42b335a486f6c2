"""`ImageCollector`: removes unused images when the disk of an image store is too full, and on request.

Every five minutes each store is checked: the images in use are found on all runtimes of the store, including containers
of other clients. If the disk usage is above the high threshold, unused images of this agent are removed until it is
below the low threshold. If one of the runtimes does not answer, no image is removed from its store, since the runtime
may use any of them.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
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
from kubeletx.api.counting import Metric, counter

from . import choice
from .choice import FilesystemUsage
from .records import ImageRecord, ImageRecords
from .settings import CollectionSettings
from .store import ImageStore
from .stores import ImageStores

log = structlog.get_logger(__name__)

FREE_DISK_SPACE_FAILED = "FreeDiskSpaceFailed"


class Survey(msgspec.Struct, frozen=True, kw_only=True):
    """Result of `ImageCollector.survey`. `images`: all images of the store. `used`: ids of the images in use."""

    images: tuple[ImageStatus, ...]
    used: frozenset[str]


class Removed(msgspec.Struct, frozen=True, kw_only=True):
    """Images that were removed from one store. `runtimes`: the runtimes that share the store."""

    store: StoreId
    runtimes: tuple[RuntimeName, ...]
    images: tuple[ImageStatus, ...] = ()

    @property
    def freed_bytes(self) -> int:
        """Sum of the sizes that the store reported for the removed images."""
        return sum(image.size_bytes for image in self.images)


class ImageCollector:
    """Removes unused images from the image stores.

    `node`: reference to the Node, to which the collector's events belong. `wanted`: returns the image references of the
    pods of the given runtimes. `disk_usage`: returns the usage of the filesystem at a path.
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
        self._removed = 0

    def metrics(self) -> Iterator[Metric]:
        """Yield the number of unused images that were removed."""
        yield counter(
            "kubelet_image_garbage_collected_total",
            "Unused images that were removed: by collection, by prune, or when the disk was full.",
            lambda: self._removed,
        )

    def close(self) -> None:
        """Let the idle threads end; call it once no method runs any more."""
        self._threads.close()

    async def run(self) -> None:
        """Collect unused images in all stores periodically, until cancelled."""
        while True:
            await self._clock.sleep(self._settings.period_seconds)
            await self.collect_all()

    async def collect_all(self) -> Sequence[Removed]:
        """Collect unused images in every store that answers; a failure is recorded as an event and not raised."""
        removed: list[Removed] = []
        stores, _missing = await self._stores.all()
        for store in stores:
            try:
                removed.append(await self.collect(store))
            except KubeletxError as error:
                self._warn(names.Event.IMAGE_GC_FAILED, f"image store of {_names(store)}: {error}")
        return removed

    async def collect(self, store: ImageStore) -> Removed:
        """Remove unused images of this agent from one store.

        All images above the maximum age are removed, and as many others as the disk thresholds demand. If too few can
        be removed, an event is recorded. Raises KubeletxError if one of the store's runtimes does not answer.
        """
        async with self._lock(store):
            before, records = self._records.access.known(store.id), self._records.of_store(store.id)
            survey = await self.survey(store)
            self._records.access.settle(store.id, before, survey.images)
            self._forget_vanished(store.id, survey, records)  # before `used`, which replaces the records
            now = self._clock.now()
            self._records.used(store.id, survey.used, now)
            records = self._records.of_store(store.id)
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
                    f"image store of {_names(store)}: {wanted} bytes should be freed, "
                    f"but the unused images pulled by the agent have only {removed.freed_bytes} bytes",
                )
            return removed

    async def prune(self, store: ImageStore, *, all_unused: bool = False) -> Removed:
        """Remove every unused image of this agent or, with `all_unused`, of all clients; pinned images are kept."""
        async with self._lock(store):
            survey = await self.survey(store)
            if all_unused:
                chosen = [i for i in survey.images if i.id not in survey.used and not i.pinned]
            else:
                chosen = self._candidates(store, survey, min_age=timedelta(0))
            return await self._remove(store, chosen)

    async def relieve(self, store: ImageStore) -> Removed:
        """Remove every unused image of this agent above the minimum age, because the disk is full.

        A failure is recorded as an event and not raised.
        """
        try:
            async with self._lock(store):
                survey = await self.survey(store)
                return await self._remove(store, self._candidates(store, survey))
        except KubeletxError as error:
            self._warn(names.Event.IMAGE_GC_FAILED, f"image store of {_names(store)}: {error}")
            return Removed(store=store.id, runtimes=tuple(store.members))

    async def remove(self, store: ImageStore, image: ImageStatus) -> None:
        """Remove one image on request of an operator. Raises Conflict if it is in use or pinned."""
        async with self._lock(store):
            survey = await self.survey(store)
            if image.id in survey.used:
                raise Conflict(f"image {image.id} is in use by a container or a pod; remove that first")
            if image.pinned:
                raise Conflict(
                    f"image {image.id} is pinned in its store; unpin it with the tool that pinned it"
                )
            await store.remove(image)

    async def survey(self, store: ImageStore) -> Survey:
        """List the images of a store and find the used ones. Raises if one of the store's runtimes does not answer."""
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
        """Return the ids of the images that running pulls fetch."""
        return choice.used_images(survey.images, (), (key.partition("|")[0] for key in store.pulls))

    def _forget_vanished(self, store: StoreId, survey: Survey, before: Mapping[str, ImageRecord]) -> None:
        """Delete the records of images that the survey lacks, except those of pulls that ended during the survey."""
        present = {image.id for image in survey.images}
        for image_id, record in before.items():
            if image_id not in present and self._records.find(store, image_id) is record:
                self._records.forget(store, image_id)  # `settle` decides about the access records

    async def _bytes_to_free(self, store: ImageStore) -> int:
        if any(h.traits is not None and h.traits.remote for h in store.members.values()):
            return 0  # the disk of another machine
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
        self._removed += len(done)
        return Removed(store=store.id, runtimes=tuple(store.members), images=tuple(done))

    def _warn(self, reason: str, message: str) -> None:
        self._events.record(self._node, type="Warning", reason=reason, message=message)


def _names(store: ImageStore) -> str:
    return ", ".join(store.members)


def _disk_usage(path: str) -> FilesystemUsage:
    fs = os.statvfs(path)
    return FilesystemUsage(
        capacity_bytes=fs.f_blocks * fs.f_frsize, available_bytes=fs.f_bavail * fs.f_frsize
    )
