"""`ImageRecords`: which images this agent pulled, and when each was last used. Image stores do not record that."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime

import msgspec
import structlog
from sqlalchemy import Column, String, Table, delete, select
from sqlalchemy.engine import Connection, RowMapping

from kubeletx.api import StoreId, Unavailable
from kubeletx.store import Store, checked, moment_of, read_rows, upsert

from .access_records import METADATA as METADATA
from .access_records import AccessRecords

log = structlog.get_logger(__name__)

IMAGES = Table(
    "image_records",
    METADATA,
    Column("store", String, primary_key=True),
    Column("image", String, primary_key=True),
    Column("requested", String, nullable=False),
    Column("pulled_at", String, nullable=False),
    Column("used_at", String, nullable=False),
)
_UPSERT = upsert(IMAGES)


class ImageRecord(msgspec.Struct, frozen=True, kw_only=True):
    """An image that this agent pulled. `image`: id of the image in its store; `requested`: the pulled reference."""

    store: StoreId
    image: str
    requested: str
    pulled_at: datetime
    used_at: datetime


class ImageRecords:
    """Records of the images that this agent pulled, in memory and on disk.

    If they are lost, images pulled earlier are never garbage-collected and count as preloaded. `access`: records of the
    credentials with which pods may use the images.
    """

    def __init__(self, store: Store) -> None:
        self.access = AccessRecords(store)
        self._store = store
        self._records: dict[tuple[StoreId, str], ImageRecord] = {}
        self._listeners: list[Callable[[], None]] = []

    def subscribe(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call the listener when an image was pulled or removed; return a function that ends the subscription."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def _tell(self) -> None:
        for listener in tuple(self._listeners):
            listener()

    async def load(self) -> None:
        """Load the stored records; if the database cannot be read now, log that and load none."""
        await self.access.load()
        try:
            records = await self._store.read(_select_all)
        except Unavailable as error:
            log.warning("Failed to read the image records", err=str(error))
            return
        for record in records:
            self._records.setdefault((record.store, record.image), record)

    def find(self, store: StoreId, image: str) -> ImageRecord | None:
        """Return the record of an image; None if this agent did not pull it."""
        return self._records.get((store, image))

    def of_store(self, store: StoreId) -> dict[str, ImageRecord]:
        """Return the records of one store by image id."""
        return {record.image: record for record in self._records.values() if record.store == store}

    def pulled(self, store: StoreId, image: str, requested: str, now: datetime) -> None:
        """Record that this agent pulled the image at `now`; the time of an earlier pull is kept."""
        old = self.find(store, image)
        self._put(
            ImageRecord(
                store=store,
                image=image,
                requested=requested,
                pulled_at=old.pulled_at if old is not None else now,
                used_at=now,
            )
        )
        self._tell()

    def used(self, store: StoreId, images: Iterable[str], now: datetime) -> None:
        """Record that the images with these ids were in use at `now`; images without a record are ignored."""
        for image in images:
            if (record := self.find(store, image)) is not None:
                self._put(msgspec.structs.replace(record, used_at=now))

    def removed(self, store: StoreId, image: str) -> None:
        """Delete all records of an image that is gone."""
        self.access.removed(store, image)
        self.forget(store, image)

    def forget(self, store: StoreId, image: str) -> None:
        """Delete the record that this agent pulled the image; those in `access` stay."""
        if self._records.pop((store, image), None) is not None:
            match = (IMAGES.c.store == store) & (IMAGES.c.image == image)
            self._store.write_later(lambda connection: connection.execute(delete(IMAGES).where(match)))
        self._tell()

    def _put(self, record: ImageRecord) -> None:
        self._records[record.store, record.image] = record
        self._store.write_later(lambda connection: _insert(connection, record))


def _insert(connection: Connection, record: ImageRecord) -> None:
    row = {
        "store": record.store,
        "image": record.image,
        "requested": record.requested,
        "pulled_at": record.pulled_at.isoformat(),
        "used_at": record.used_at.isoformat(),
    }
    connection.execute(_UPSERT, row)


def _select_all(connection: Connection) -> list[ImageRecord]:
    return read_rows(connection, select(IMAGES), _from_row)


def _from_row(row: RowMapping) -> ImageRecord:
    record = ImageRecord(
        store=StoreId(row["store"]),
        image=row["image"],
        requested=row["requested"],
        pulled_at=moment_of(row["pulled_at"]),
        used_at=moment_of(row["used_at"]),
    )
    return checked(record)
