"""WATCH requests: a stream of the events after a resourceVersion.

From version ``""`` or ``"0"`` the stream begins with an ADDED event for every existing object. If a change
makes an object match the selectors, or match them no longer, the change is sent as ADDED or DELETED. A
version older than the history gets one ERROR event with 410. A version newer than the server's gets events
only after the server has reached it. With sendInitialEvents a bookmark marks the end of the initial events.
Source: apiserver, pkg/endpoints/handlers/watch.go, pkg/storage/cacher/{cacher, cache_watcher}.go,
pkg/storage/etcd3/watcher.go; KEP-3157 for initial events.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from .errors import Json, bad_request, expired
from .listing import matcher_of, version_of
from .requests import Asked
from .settings import Settings
from .store import Change, Store, Stored

MIN_TIMEOUT_SECONDS: Final = 1800
INITIAL_END: Final = "k8s.io/initial-events-end"


class Cut(msgspec.Struct, frozen=True):
    """Instruction to close a watch's connection.

    `after_bytes`: number of bytes of the next event's line to send before; None: close at once.
    """

    after_bytes: int | None = None


class End(msgspec.Struct, frozen=True):
    """Instruction to end the stream of a watch properly, as at its timeout."""


class Bookmark(msgspec.Struct, frozen=True):
    """Instruction to send a bookmark event to a watch."""


Order = Change | Cut | End | Bookmark


class Watch:
    """One watch request: collects the matching changes and converts them to lines of the response stream.

    Use it only in the server's event loop. `overrides`: queue of the changes to send, and of instructions from the
    test (`Cut`, `End`, `Bookmark`), in order. The constructor raises StatusError 400 for invalid parameters.
    """

    def __init__(self, asked: Asked, store: Store, settings: Settings) -> None:
        self.asked = asked
        self.overrides: asyncio.Queue[Order] = asyncio.Queue()
        self._matches = matcher_of(asked) or (lambda _obj: True)
        self._store = store
        self._settings = settings
        self._version = version_of(asked)
        self._position = self._version
        self._bookmarks = asked.is_set("allowWatchBookmarks")
        if asked.query.get("sendInitialEvents") and not asked.query.get("resourceVersionMatch"):
            raise bad_request("sendInitialEvents requires setting resourceVersionMatch to NotOlderThan")
        self._stop: Callable[[], None] | None = None
        seconds = int(asked.query.get("timeoutSeconds") or 0)
        self._ends_at = time.monotonic() + (seconds or MIN_TIMEOUT_SECONDS * (1 + random.random()))

    def open(self) -> list[bytes]:
        """Start to collect changes. Returns the lines to send first. Call `close` at the end."""
        lines = list(self._first_lines())
        self._stop = self._store.listen(self._hear)
        return lines

    def close(self) -> None:
        """Stop collecting changes; a second call does nothing."""
        if self._stop is not None:
            self._stop()

    async def next(self) -> Order:
        """Wait for the next change or instruction.

        Returns `Bookmark` when a bookmark is due, and `End` at the watch's timeout.
        """
        left = self._ends_at - time.monotonic()
        wait = min(left, self._settings.bookmark_seconds) if self._bookmarks else left
        try:
            async with asyncio.timeout(max(wait, 0)):
                return await self.overrides.get()
        except TimeoutError:
            return End() if time.monotonic() >= self._ends_at else Bookmark()

    def line(self, change: Change) -> bytes | None:
        """Return the line of the stream for a change; None if the watch must not send this change."""
        self._position = max(self._position, change.revision)
        if change.table != self.asked.resource.full_name:
            return None
        was, now = self._sees(change.before), self._sees(change.after)
        if now and change.after is not None:
            return _line(b"MODIFIED" if was else b"ADDED", change.after.raw)
        if not was or change.before is None:
            return None
        if change.last is not None:
            return _line(b"DELETED", change.last.raw)
        return _line(b"DELETED", _at_version(change.before, change.revision))

    def bookmark(self) -> bytes | None:
        """Return the line of a bookmark event; None if the client did not ask for bookmarks."""
        return self._bookmark({}) if self._bookmarks else None

    def _hear(self, change: Change) -> None:
        if change.revision > self._version:
            self.overrides.put_nowait(change)

    def _sees(self, stored: Stored | None) -> bool:
        if stored is None:
            return False
        namespace = self.asked.namespace
        if namespace and stored.value["metadata"].get("namespace") != namespace:
            return False
        return self._matches(stored.value)

    def _first_lines(self) -> Iterator[bytes]:
        store, wants_all = self._store, self.asked.is_set("sendInitialEvents")
        if self._version == 0 or wants_all:
            self._version = self._position = store.revision
            for stored in store.all(self.asked.resource, self.asked.namespace):
                if self._sees(stored):
                    yield _line(b"ADDED", stored.raw)
            if wants_all and self._bookmarks:
                yield self._bookmark({"annotations": {INITIAL_END: "true"}})
            return
        changes = store.since(self.asked.resource, self._version)
        if changes is None:
            yield _line(b"ERROR", msgspec.json.encode(expired(self._version, store.forgotten).status))
            self.overrides.put_nowait(End())
            return
        for change in changes:
            line = self.line(change)
            if line is not None:
                yield line
        self._version = self._position = max(self._version, store.revision)

    def _bookmark(self, metadata: Json) -> bytes:
        of = self.asked.resource
        empty = {
            "kind": of.kind,
            "apiVersion": of.api_version,
            "metadata": {"resourceVersion": str(self._position), "creationTimestamp": None, **metadata},
        }
        return _line(b"BOOKMARK", msgspec.json.encode(empty))


def _line(kind: bytes, raw: bytes) -> bytes:
    return b'{"type":"' + kind + b'","object":' + raw + b"}\n"


def _at_version(stored: Stored, revision: int) -> bytes:
    metadata = {**stored.value["metadata"], "resourceVersion": str(revision)}
    return msgspec.json.encode({**stored.value, "metadata": metadata})
