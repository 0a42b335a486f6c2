"""Image commands of the admin socket: list, watch, pull, remove, prune.

An image store that several runtimes share is listed once.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

from kubeletx.api import Clock, ImageSpec, ImageStatus, KubeletxError, NotFound, PullProgress, StoreId
from kubeletx.kube.types.node import ContainerImage
from kubeletx.pods import PodManager
from kubeletx.runtimes.images.gc import ImageCollector
from kubeletx.runtimes.images.records import ImageRecords
from kubeletx.runtimes.images.store import ImageStore
from kubeletx.runtimes.images.stores import ImageStores
from kubeletx.runtimes.registry import RuntimeRegistry
from kubeletx.server.admin.image_ids import meant
from kubeletx.server.views import ImageListing, ImageView, PruneResult, PullUpdate

from .runtimes import one_of
from .watching import Latest

LIST_SECONDS = 10.0
WAIT_SECONDS = 0.3
"""Longest wait for the lists of the stores. A store that takes longer is shown with its last known images."""
WATCH_SECONDS = 5.0
"""Interval at which a watch lists the images again: other clients (crictl, a kubelet) change stores without an
event.
"""


class ImageBackend:
    """Carries out the image commands of the admin socket, in the image stores of all runtimes.

    Implements `ImageVerbs`.
    """

    def __init__(
        self,
        *,
        registry: RuntimeRegistry,
        manager: PodManager,
        stores: ImageStores,
        collector: ImageCollector,
        records: ImageRecords,
        clock: Clock,
    ) -> None:
        self._clock = clock
        self._registry = registry
        self._manager = manager
        self._stores = stores
        self._node_images = NodeImages(stores)
        self._collector = collector
        self._records = records

    async def list_images(self) -> ImageListing:
        listed, missing = await self._listed(None)
        items = [self._view(store, image) for store, images in listed for image in sorted(images, key=_order)]
        return ImageListing(items=tuple(items), missing=tuple(missing))

    async def watch_images(self) -> AsyncIterator[ImageListing]:
        news: Latest[None] = Latest()
        unsubscribe = self._records.subscribe(lambda: news.put("all", None))
        looks = asyncio.create_task(self._look_again(news), name="watch-images")
        try:
            shown = await self.list_images()
            yield shown
            async for _ in news:
                listing = await self.list_images()
                if listing != shown:
                    shown = listing
                    yield shown
        finally:
            unsubscribe()
            looks.cancel()
            await asyncio.gather(looks, return_exceptions=True)

    async def _look_again(self, news: Latest[None]) -> None:
        while True:
            await self._clock.sleep(WATCH_SECONDS)
            news.put("all", None)

    async def node_images(self) -> tuple[ContainerImage, ...]:
        return await self._node_images.current()

    async def pull_image(self, image: str, runtime: str | None) -> AsyncIterator[PullUpdate]:
        handle = one_of(self._registry, runtime)
        store = await self._stores.of(handle)
        updates: asyncio.Queue[PullUpdate | None] = asyncio.Queue()

        def on_progress(progress: PullProgress) -> None:
            updates.put_nowait(
                PullUpdate(
                    runtime=handle.name,
                    done_bytes=progress.done_bytes,
                    total_bytes=progress.total_bytes,
                    message=progress.message,
                )
            )

        async def pull() -> ImageStatus:
            try:
                return await store.pull(
                    ImageSpec(requested=image), via=handle, on_progress=on_progress, force=True
                )
            finally:
                updates.put_nowait(None)

        task = asyncio.create_task(pull(), name=f"pull {image}")
        try:
            yield PullUpdate(runtime=handle.name, message="pulling")
            while (update := await updates.get()) is not None:
                yield update
            status = await task
            yield PullUpdate(runtime=handle.name, message="pulled", ref=status.ref or status.id)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def remove_image(self, image: str, runtime: str | None) -> Sequence[str]:
        listed, _ = await self._listed(runtime)
        ids = meant(image, (stored for _, images in listed for stored in images))
        removed = []
        for store, images in listed:
            for stored in images:
                if stored.id in ids:
                    await self._collector.remove(store, stored)
                    removed.append(str(store.id))
        if not removed:
            raise NotFound(f"no store has image {image}; 'kubeletx get images' lists all")
        return removed

    async def prune_images(self, runtime: str | None, all_unused: bool) -> PruneResult:
        stores, missing = await self._chosen(runtime)
        views: list[ImageView] = []
        for store in stores:
            try:
                removed = await self._collector.prune(store, all_unused=all_unused)
            except KubeletxError:
                missing.extend(str(name) for name in store.members)
                continue
            views += [self._view(store, image) for image in removed.images]
        return PruneResult(
            removed=tuple(views), freed_bytes=sum(v.size_bytes for v in views), missing=tuple(missing)
        )

    # --- private ------------------------------------------------------------------------------------

    async def _chosen(self, runtime: str | None) -> tuple[list[ImageStore], list[str]]:
        if runtime is not None:
            return [await self._stores.of(self._registry.get(runtime))], []
        stores, missing = await self._stores.all()
        return list(stores), [str(name) for name in missing]

    async def _listed(
        self, runtime: str | None
    ) -> tuple[list[tuple[ImageStore, Sequence[ImageStatus]]], list[str]]:
        """List the images of each store; also return the names of the runtimes that did not answer."""
        stores, missing = await self._chosen(runtime)
        listed = []
        answers = await asyncio.gather(*(_list(store) for store in stores))
        for store, images in zip(stores, answers, strict=True):
            if images is None:
                missing.extend(str(name) for name in store.members)
            else:
                listed.append((store, images))
        return listed, missing

    def _view(self, store: ImageStore, image: ImageStatus) -> ImageView:
        record = self._records.find(store.id, image.id)
        return ImageView(
            store=str(store.id),
            runtimes=tuple(store.members),
            id=image.id,
            ref=image.ref,
            tags=image.tags,
            digests=image.digests,
            size_bytes=image.size_bytes,
            pinned=image.pinned,
            default_for=self._default_for(store),
            used_by=self._users(store, image),
            pulled_by_us=record is not None,
        )

    def _default_for(self, store: ImageStore) -> tuple[str, ...]:
        """Return the workload types whose default runtime uses this store, in the order of the runtimes."""
        types = dict.fromkeys(handle.workload_type for handle in self._registry.handles())
        defaults = {workload_type: self._registry.default_for(workload_type) for workload_type in types}
        return tuple(
            workload_type
            for workload_type, handle in defaults.items()
            if handle and handle.name in store.members
        )

    def _users(self, store: ImageStore, image: ImageStatus) -> tuple[str, ...]:
        names = {image.id, image.ref, *image.tags, *image.digests}
        refs: dict[str, None] = {}
        for worker in self._manager.workers.values():
            snapshot = worker.facts.snapshot
            if worker.facts.runtime not in store.members or snapshot is None:
                continue
            if any({unit.image, unit.image_id} & names for unit in snapshot.units):
                refs[worker.desired.ref] = None
        return tuple(sorted(refs))


async def _list(store: ImageStore) -> Sequence[ImageStatus] | None:
    try:
        async with asyncio.timeout(LIST_SECONDS):
            return await store.list()
    except (KubeletxError, TimeoutError):  # the listing names this store's runtimes as missing
        return None


def _order(image: ImageStatus) -> tuple[str, ...]:
    return image.tags or image.digests or (image.id,)


class NodeImages:
    """Images for `status.images` of the Node object: the last list of each store, which it keeps.

    At most one list call per store runs at a time.
    """

    def __init__(self, stores: ImageStores) -> None:
        self._stores = stores
        self._known: dict[StoreId, Sequence[ImageStatus]] = {}
        self._asking: dict[StoreId, asyncio.Task[None]] = {}

    async def current(self) -> tuple[ContainerImage, ...]:
        """List the images of every store, and return them; each image id appears once.

        Waits at most `WAIT_SECONDS`. A store that has not answered by then is shown with its last known images; its
        call continues.
        """
        stores, _ = await self._stores.all()
        begun = [self._ask(store) for store in stores if store.id not in self._asking]
        if begun:
            await asyncio.wait(begun, timeout=WAIT_SECONDS)
        images = {image.id: image for store in stores for image in self._known.get(store.id, ())}
        return tuple(
            ContainerImage(names=(*image.digests, *image.tags), size_bytes=image.size_bytes or None)
            for image in images.values()
        )

    def _ask(self, store: ImageStore) -> asyncio.Task[None]:
        task = asyncio.create_task(self._list(store), name=f"node-images-{store.id}")
        self._asking[store.id] = task
        task.add_done_callback(lambda _done: self._asking.pop(store.id, None))
        return task

    async def _list(self, store: ImageStore) -> None:
        try:
            async with asyncio.timeout(LIST_SECONDS):
                self._known[store.id] = await store.list()
        except (KubeletxError, TimeoutError):
            pass  # the store's last list stays
