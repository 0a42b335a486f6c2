"""`ImageStores`: finds the image store of each runtime, and all image stores of the node."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import structlog

from kubeletx.api import (
    Clock,
    KubeletxError,
    PodUid,
    RuntimeEvent,
    RuntimeName,
    StoreId,
    SupportsImages,
    Unsupported,
)

from ..handles.handle import RuntimeHandle
from ..registry import RuntimeRegistry
from .limits import Shared
from .records import ImageRecords
from .settings import PullSettings
from .store import ImageStore, RegistryCredentials

log = structlog.get_logger(__name__)


class StoreDisk(NamedTuple):
    """File system of an image store. `path`: a directory on it."""

    path: str
    capacity_bytes: int
    available_bytes: int


class ImageStores:
    """Holds all image stores of the node. A store is known once one of its runtimes was reached."""

    def __init__(
        self,
        registry: RuntimeRegistry,
        *,
        clock: Clock,
        records: ImageRecords,
        credentials: RegistryCredentials,
        settings: PullSettings,
    ) -> None:
        self._registry = registry
        self._clock = clock
        self._records = records
        self._credentials = credentials
        self._settings = settings
        self.disks: Mapping[RuntimeName, StoreDisk] = {}
        """Disks by runtime, as the evictor measured them last. A runtime on another machine, or without an answer, has none."""
        self._stores: dict[StoreId, ImageStore] = {}
        self._of_runtime: dict[RuntimeName, tuple[RuntimeHandle, int, ImageStore]] = {}
        self._asking: Shared[ImageStore] = Shared("image store of")
        registry.subscribe(self)

    async def of(self, handle: RuntimeHandle) -> ImageStore:
        """Return the image store of a runtime; the runtime is queried once after each of its connections.

        Raises Unsupported if the runtime has no image store, Unavailable if it was never reached.
        """
        known = self._of_runtime.get(handle.name)
        if known is not None and known[0] is handle and known[1] == handle.opened:
            return known[2]
        return await self._asking.join((handle.name, id(handle)), lambda: self._ask(handle))

    async def _ask(self, handle: RuntimeHandle) -> ImageStore:
        known = self._of_runtime.get(handle.name)
        service = handle.capability(SupportsImages)
        if service is None:
            if known is not None and known[0] is handle:
                return known[2]
            handle.require_reachable()
            raise Unsupported(f"runtime {handle.name} has no image store")
        opened = handle.opened
        try:
            info = await handle.ask("store_info", service.store_info)
        except KubeletxError:
            if known is not None and known[0] is handle:
                return known[2]
            raise
        store = self._stores.get(info.id)
        if store is None:
            store = self._stores[info.id] = ImageStore(
                info.id,
                clock=self._clock,
                records=self._records,
                credentials=self._credentials,
                settings=self._settings,
            )
        if known is not None and known[2] is not store:
            known[2].members.pop(handle.name, None)
        self._of_runtime[handle.name] = (handle, opened, store)
        self._order_members(store)
        return store

    def known_id(self, handle: RuntimeHandle) -> str:
        """Return the id of the runtime's store without a call; empty if it was never queried."""
        known = self._of_runtime.get(handle.name)
        return str(known[2].id) if known is not None and known[0] is handle else ""

    async def all(self) -> tuple[tuple[ImageStore, ...], tuple[RuntimeName, ...]]:
        """Return all stores, in the order of their first runtime, and the names of runtimes that did not answer.

        See rule 7 of docs/architecture.md.
        """
        handles = [h for h in self._registry.handles() if h.traits is None or h.traits.images]
        results = await asyncio.gather(*(self.of(handle) for handle in handles), return_exceptions=True)
        stores: dict[StoreId, ImageStore] = {}
        missing: list[RuntimeName] = []
        for handle, result in zip(handles, results, strict=True):
            match result:
                case ImageStore():
                    stores.setdefault(result.id, result)
                case Unsupported():
                    pass
                case KubeletxError():
                    missing.append(handle.name)
                case BaseException():
                    raise result
        return tuple(stores.values()), tuple(missing)

    async def close(self) -> None:
        """Cancel all running pulls and queries."""
        self._asking.close()
        await asyncio.gather(*(store.close() for store in self._stores.values()))

    # --- RuntimeListener ---

    def runtime_changed(self, name: RuntimeName) -> None:
        """If the runtime was removed, drop it from the members of its store."""
        known = self._of_runtime.get(name)
        if known is not None and self._registry.find(name) is not known[0]:
            del self._of_runtime[name]
            self._order_members(known[2])

    def pod_changed(self, name: RuntimeName, uid: PodUid, event: RuntimeEvent | None) -> None:
        """Do nothing: changes of pods do not affect image stores."""

    def _order_members(self, store: ImageStore) -> None:
        members: Sequence[RuntimeHandle] = self._registry.handles()
        store.members = {
            handle.name: handle
            for handle in members
            if (known := self._of_runtime.get(handle.name)) is not None and known[2] is store
        }
