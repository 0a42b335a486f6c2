"""`AccessRecords`: which credentials pulled each image for pods, in memory and on disk (see `verification`).

The begin of a pull is stored on disk before the pull, so that an image whose pull a crash interrupted never counts as
preloaded. Such an image gets a record without credentials, so that every pod must pull it itself to prove its right.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

import msgspec
import structlog
from sqlalchemy import Column, MetaData, String, Table, delete, select
from sqlalchemy.dialects.sqlite import insert
from sqlalchemy.engine import Connection, RowMapping

from kubeletx.api import ImageStatus, StoreId, Unavailable, is_same_image, without_credentials
from kubeletx.store import Store, read_rows, upsert

from .verification import Access, Origin

log = structlog.get_logger(__name__)

METADATA = MetaData()
ACCESS = Table(
    "image_access",
    METADATA,
    Column("store", String, primary_key=True),
    Column("image", String, primary_key=True),
    Column("repository", String, primary_key=True),
    Column("access", String, nullable=False),
)
_UPSERT = upsert(ACCESS)
PULLS = Table(
    "image_pulls",
    METADATA,
    Column("store", String, primary_key=True),
    Column("requested", String, primary_key=True),
)

_Image = tuple[StoreId, str]
_Pull = tuple[StoreId, str]


class _Row(msgspec.Struct, frozen=True, kw_only=True):
    store: StoreId
    image: str
    repository: str
    access: Access


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """Records of one store at one moment.

    `images`: the access records by image id. `pulls`: references whose pull was begun, has no result and does not run.
    """

    images: Mapping[str, Mapping[str, Access]]
    pulls: frozenset[str]


class AccessRecords:
    """Records with which credentials each image was pulled for pods, and which pulls have no result yet.

    An image without such a record counts as preloaded.

    Parameters of the methods: `store`: id of the image store. `image`: id of the image in the store. `repository`:
    image reference without tag and digest. `requested`: image reference as in the pod.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._records: dict[_Image, dict[str, Access]] = {}
        self._begun: set[_Pull] = set()
        self._running: dict[_Pull, int] = {}

    async def load(self) -> None:
        """Load the stored records. If the database cannot be read, every image counts as preloaded."""
        try:
            rows, begun = await self._store.read(_select_all)
        except Unavailable as error:
            log.warning("Failed to read the records of image credentials", err=str(error))
            return
        for row in rows:
            self._records.setdefault((row.store, row.image), {}).setdefault(row.repository, row.access)
        self._begun.update(begun)

    def find(self, store: StoreId, image: str, repository: str) -> Access | None:
        """Return the access record of the image under this repository; None if no pull of it is recorded."""
        return self._records.get((store, image), {}).get(_key(repository))

    def is_pulled(self, store: StoreId, image: str, requested: str) -> bool:
        """Return True if a pull for a pod fetched the image, or may have: the begin of a pull is recorded."""
        return (store, image) in self._records or (store, _key(requested)) in self._begun

    async def begin(self, store: StoreId, requested: str) -> None:
        """Write to disk that a pull begins. Raises Unavailable if the database cannot be written."""
        pull = (store, _key(requested))
        # Before the write, so that the end of another pull of this reference does not delete the row.
        self._running[pull] = self._running.get(pull, 0) + 1
        if pull in self._begun:
            return
        row = {"store": store, "requested": pull[1]}
        statement = insert(PULLS).values(row).on_conflict_do_nothing()
        try:
            await self._store.write(lambda connection: connection.execute(statement))
        except BaseException:
            self.fail(store, requested, is_known_absent=False)
            raise
        self._begun.add(pull)

    async def succeed(
        self, store: StoreId, image: str, repository: str, requested: str, origin: Origin
    ) -> None:
        """Record that a pull succeeded with the credential of this origin."""
        row = self._put(store, image, repository, origin)
        pull = (store, _key(requested))
        is_last = self._leave(pull)

        def write(connection: Connection) -> None:
            _insert(connection, row)
            if is_last:
                _delete_pull(connection, *pull)

        try:
            await self._store.write(write)
        except Unavailable as error:  # the record of its begin stays on disk, so pods verify after a restart
            log.warning("Failed to write the record of an image pull", image=pull[1], err=str(error))

    def fail(self, store: StoreId, requested: str, *, is_known_absent: bool) -> None:
        """Record that a pull failed.

        `is_known_absent`: True if the failure shows that the pull left no image in the store; False if it may have.
        """
        pull = (store, _key(requested))
        count = self._running.get(pull, 1) - 1
        if count > 0:
            self._running[pull] = count
            return
        self._running.pop(pull, None)
        if is_known_absent:
            self._forget_pull(pull)

    def add(self, store: StoreId, image: str, repository: str, origin: Origin) -> None:
        """Record one more credential with which pods may use the image, or newer content of a known secret."""
        before = self.find(store, image, repository)
        row = self._put(store, image, repository, origin)
        if row.access != before:
            self._store.write_later(lambda connection: _insert(connection, row))

    def removed(self, store: StoreId, image: str) -> None:
        """Delete the records of an image that is gone."""
        if self._records.pop((store, image), None) is not None:
            match = (ACCESS.c.store == store) & (ACCESS.c.image == image)
            self._store.write_later(lambda connection: connection.execute(delete(ACCESS).where(match)))

    def known(self, store: StoreId) -> Known:
        """Return the records of a store. The caller then lists the images of the store and passes both to `settle`."""
        return Known(
            images={image: records for (record, image), records in self._records.items() if record == store},
            pulls=frozenset(
                requested
                for begun_store, requested in self._begun
                if begun_store == store and (begun_store, requested) not in self._running
            ),
        )

    def settle(self, store: StoreId, before: Known, images: Sequence[ImageStatus]) -> None:
        """Delete records of images that are gone, and of interrupted pulls.

        `before`: result of `known`. `images`: all images of the store, listed after that. An image that an interrupted
        pull may have fetched gets a record without credentials. Records that changed since `known` are kept.
        """
        present = {image.id for image in images}
        for image, records in before.images.items():
            if image not in present and self._records.get((store, image)) is records:
                self.removed(store, image)
        for requested in before.pulls:
            if (store, requested) in self._running:
                continue
            for status in images:
                if (store, status.id) not in self._records and _has_name(status, requested):
                    self._note_cut_off(store, status.id, requested)
            self._forget_pull((store, requested))

    def _note_cut_off(self, store: StoreId, image: str, requested: str) -> None:
        row = _Row(store=store, image=image, repository=requested, access=Access())
        self._records.setdefault((store, image), {})[requested] = row.access
        self._store.write_later(lambda connection: _insert(connection, row))

    def _put(self, store: StoreId, image: str, repository: str, origin: Origin) -> _Row:
        repository = _key(repository)
        by_name = self._records.get((store, image), {})
        access = by_name.get(repository, Access()).with_origin(origin)
        self._records[store, image] = {**by_name, repository: access}  # a new dict: see `settle`
        return _Row(store=store, image=image, repository=repository, access=access)

    def _leave(self, pull: _Pull) -> bool:
        """Decrease the number of running pulls of this reference; return True if it was the last one."""
        count = self._running.get(pull, 1) - 1
        if count > 0:
            self._running[pull] = count
            return False
        self._running.pop(pull, None)
        self._begun.discard(pull)
        return True

    def _forget_pull(self, pull: _Pull) -> None:
        self._begun.discard(pull)
        self._store.write_later(lambda connection: _delete_pull(connection, *pull))


def _insert(connection: Connection, row: _Row) -> None:
    values = {
        "store": row.store,
        "image": row.image,
        "repository": row.repository,
        "access": msgspec.json.encode(row.access).decode(),
    }
    connection.execute(_UPSERT, values)


def _delete_pull(connection: Connection, store: StoreId, requested: str) -> None:
    connection.execute(delete(PULLS).where((PULLS.c.store == store) & (PULLS.c.requested == requested)))


def _select_all(connection: Connection) -> tuple[list[_Row], list[_Pull]]:
    return read_rows(connection, select(ACCESS), _from_row), read_rows(connection, select(PULLS), _pull_of)


def _from_row(row: RowMapping) -> _Row:
    """Decode a row; one that cannot be decoded becomes a record without credentials."""
    try:
        access = msgspec.json.decode(row["access"], type=Access)
    except msgspec.DecodeError:
        access = Access()
    return _Row(store=StoreId(row["store"]), image=row["image"], repository=row["repository"], access=access)


def _pull_of(row: RowMapping) -> _Pull:
    return StoreId(row["store"]), row["requested"]


def _key(name: str) -> str:
    """Return the database key of an image reference.

    The key is the reference itself. If that contains a credential, as the URL of a machine's image may, the key is the
    reference without the credential, followed by a hash of the whole reference.
    """
    shown = without_credentials(name)
    return name if shown == name else f"{shown}#{hashlib.sha256(name.encode()).hexdigest()}"


def _has_name(image: ImageStatus, requested: str) -> bool:
    names = (image.id, image.ref, *image.tags, *image.digests)
    return any(is_same_image(requested, name) for name in names if name)
