"""`ReturnedEntries`: removes entries of this node that no volume of it belongs to, once after a start.

Such entries are of an earlier boot, after which everything is detached, or of a journal that was lost. In the latter
case the device may exist: the volume is dropped first. Records of images come last, when the volumes are dropped.
"""

from __future__ import annotations

from collections.abc import Callable

import structlog

from kubeletx.api import KubeletxError

from .deadlines import within
from .editing import RecordEditor
from .guard import VolumeGuard
from .list_worker import DROP_SECONDS, OwnNode, known_volume
from .listing import all_pages, origins_of
from .local import LocalVolumes
from .record import AttachmentEntry, Entries, find_entry, is_image_record, without

log = structlog.get_logger(__name__)


class ReturnedEntries:
    """Removes entries of this node that no volume belongs to: of earlier boots, and of lost journals."""

    def __init__(
        self,
        own: OwnNode,
        *,
        editor: RecordEditor,
        local: Callable[[], LocalVolumes],
        guard: VolumeGuard,
        drop_seconds: float = DROP_SECONDS,
    ) -> None:
        self._own = own
        self._editor = editor
        self._local = local
        self._guard = guard
        self._drop_seconds = drop_seconds

    async def clean(self) -> int:
        """Look through all records once, and return from how many of them entries were removed."""
        names = await self._names()
        cleaned = 0
        for name in names:
            try:
                cleaned += await self._record(name)
            except KubeletxError as error:
                log.warning("Failed to remove an old entry of this node", volume=name, err=str(error))
        return cleaned

    async def _names(self) -> list[str]:
        """Return the names of the records that have entries of this node."""
        found: list[str] = []
        async for page in all_pages(self._editor.records):
            found += [one.name for one in page if any(e.node == self._own.name for e in origins_of(one))]
        found.sort(key=is_image_record)
        return found

    async def _record(self, name: str) -> bool:
        with self._guard.clearing(name, "an entry without a volume is removed") as is_free:
            old = self._old(await self._editor.items(name)) if is_free else []
            if is_image_record(name):  # an entry that its volume still has could not be removed
                left = [find_entry(await self._editor.items(one.volume_name), one.key) for one in old]
                old = [one for one, stays in zip(old, left, strict=True) if stays is None]
            if not old:
                return False
            here = self._local().find(name) is not None
            if (
                not here
                and any(one.boot_id == self._own.boot_id for one in old)
                and not is_image_record(name)
            ):
                volume = known_volume(self._local(), old[0].volume(name))
                async with within(self._drop_seconds, f"volume {name} was not removed from this node"):
                    await self._local().drop(volume, why="this node has no journal of it")

            def change(entries: Entries) -> Entries:
                return without(entries, {one.key for one in self._old(entries)} & {one.key for one in old})

            await self._editor.change(name, change)
        log.info("Removed old entries of this node", volume=name, entries=len(old))
        return True

    def _old(self, entries: Entries) -> list[AttachmentEntry]:
        used = {holder.key for one in self._local().volumes() for holder in one.holders}
        return [one for one in entries if one.node == self._own.name and one.key not in used]
