"""Images for `status.images` of the Node object, from the last known list of each image store.

A store that does not answer does not delay the node's status.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from kubeletx.api import ImageStatus, KubeletxError, StoreId
from kubeletx.kube.types.node import ContainerImage
from kubeletx.runtimes.images.store import ImageStore
from kubeletx.runtimes.images.stores import ImageStores

WAIT_SECONDS = 0.3
"""Longest wait for the lists of the stores. A store that takes longer is shown with its last known images."""
LIST_SECONDS = 10.0


class NodeImages:
    """Lists the images of all stores, and keeps the last list of each store.

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
