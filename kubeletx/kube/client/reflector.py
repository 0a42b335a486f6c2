"""`Reflector`: lists the objects of one query, then follows their changes with a watch.

    list (any version the server has cached) ─► watch from there ─► ended: watch on from the last version seen
                    ▲                                  │
                    └── failed: list, not older ───────┤
                    └── Expired: list, the newest ─────┘

- The sink gets every object that appears, changes or disappears. After an interruption it gets all objects again and
  computes which ones disappeared meanwhile. It never gets an incomplete list.
- Bookmarks advance the version while nothing changes, so that the next watch starts from a version the server has. If
  bookmarks stop, the connection counts as dead.
- A watch that breaks in the middle of a line loses nothing: only complete events advance the version.
- A server that was restored from an older state does not have the reflector's version: all objects are listed again.
- An object that cannot be decoded is reported to the sink and does not stop the others.
- An answer that is not a list, or a list with an object whose name cannot be read, changes nothing: objects that are
  missing from it may still exist.

Source: client-go, tools/cache/reflector.go; Kubernetes API concepts, "Efficient detection of changes".
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Sequence
from typing import Generic, Protocol, TypeVar

import msgspec
import structlog

from kubeletx.api import Clock, KubeletxError, TimedOut, Unavailable

from ..text.objects import decode_object
from ..types.api_status import Status
from ..types.meta import ApiStruct, ListMeta, ObjectMeta
from .backoff import server_backoff
from .errors import ConnectionLost, Expired, error_of, least_seconds
from .lists import selectors
from .requests import KubeClient, decode
from .resources import Resource

log = structlog.get_logger(__name__)

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)

PAGE = 500
DECODE_BATCH = 50
"""Number of objects decoded before other tasks run."""
SHORT_SECONDS = 1.0


class WatchTimes(msgspec.Struct, frozen=True, kw_only=True):
    """Time limits of watches, in seconds."""

    watch: tuple[int, int] = (300, 600)
    """Range of the watch timeout, drawn at random, so that nodes do not reconnect all at once."""
    late: float = 30.0
    """The connection counts as dead this long after the watch timeout."""
    silent: float = 200.0
    """Silence after which a watch counts as dead if the server sends bookmarks.

    Servers send one a minute. Source: apiserver, storage/cacher.
    """


_TIMES = WatchTimes()
LIST_SECONDS = 300.0
"""Deadline of one LIST request."""
MAX_LINE_BYTES = 32 << 20


class ReflectorSink(Protocol[T_contra]):
    """Receiver of the objects that a reflector reads. The methods run on the event loop and must not block."""

    def replace(self, items: Sequence[T_contra], unreadable: Sequence[ObjectMeta]) -> None:
        """Replace all known objects by `items`. `unreadable`: further objects, which exist but cannot be decoded."""
        ...

    def put(self, item: T_contra) -> None:
        """Add or replace the object. The same version may be passed several times."""
        ...

    def drop(self, item: T_contra) -> None:
        """Remove the object: it was deleted, or no longer matches the query."""
        ...

    def undecodable(self, meta: ObjectMeta, problem: str) -> None:
        """Handle one object that exists on the server but cannot be decoded. `meta`: its identity and version only."""
        ...


class _Page(ApiStruct, frozen=True, kw_only=True):
    kind: str = ""
    metadata: ListMeta = ListMeta()
    items: tuple[msgspec.Raw, ...] | None = ()


class _Event(msgspec.Struct, frozen=True, gc=False):
    type: str = ""
    object: msgspec.Raw = msgspec.Raw(b"{}")


class _Identity(ApiStruct, frozen=True, kw_only=True):
    """Name, namespace, UID and version of an object. Decoded separately, because other fields may be invalid."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""


class _Bare(ApiStruct, frozen=True, kw_only=True):
    metadata: _Identity = _Identity()


class Reflector(Generic[T]):
    """Passes the objects of one query, and then their changes, to a sink.

    The caller runs `run` as a task. `synced` is set once the first complete list has reached the sink.
    """

    def __init__(  # noqa: PLR0913 - selectors of a list, by keyword
        self,
        client: KubeClient,
        resource: Resource,
        type_: type[T],
        sink: ReflectorSink[T],
        *,
        clock: Clock,
        namespace: str = "",
        field_selector: str = "",
        label_selector: str = "",
        turns: asyncio.Semaphore | None = None,
        draw: random.Random | None = None,
        times: WatchTimes = _TIMES,
    ) -> None:
        """`type_`: Struct class of the decoded objects. `namespace` empty: all namespaces.

        `field_selector`: such as ``spec.nodeName=one``. `label_selector`: such as ``app=web``.

        `turns`: semaphore that limits how many reflectors list at the same time, when hundreds start
        together; None: no limit. `draw`: source of randomness for jitter and watch timeouts.
        """
        self._client = client
        self._path = resource.path(namespace)
        self._what = resource.plural
        self._times = times
        self._type = type_
        self._decoder = msgspec.json.Decoder(type_)
        self._sink = sink
        self._clock = clock
        self._query = selectors(label_selector, field_selector)
        self._turns = turns if turns is not None else contextlib.nullcontext()
        self._random = draw or random.Random()
        self._backoff = server_backoff(draw=self._random.random)
        self._version = ""
        self._problem = ""
        self._is_bookmarked = False
        self._listed_at = float("-inf")
        self.synced = asyncio.Event()

    @property
    def problem(self) -> str:
        """Reason why the sink's objects may be outdated; empty if they are current."""
        return self._problem

    async def run(self) -> None:
        wanted = "0"  # any state that the server has cached; later none older than the last seen
        while True:
            try:
                await self._list(wanted)
                wanted = self._version
                while True:
                    await self._watch()
            except Expired as error:
                log.info("Listing again", resource=self._what, err=str(error))
                is_again = not wanted or self._clock.monotonic() - self._listed_at < SHORT_SECONDS
                wanted, self._problem = "", str(error)
                if is_again:  # do not spin
                    await self._client.pause(self._backoff.next(self._clock.monotonic()))
            except KubeletxError as error:
                wanted = self._version or "0"
                await self._wait(error)

    async def _wait(self, error: KubeletxError) -> None:
        is_end = isinstance(error, ConnectionLost)  # perhaps a proxy cut the watch; the next list shows it
        if not is_end and not self._problem and not self._client.problem:
            log.warning("Watch failed", resource=self._what, err=str(error))
        self._problem = "" if is_end else str(error)
        least = least_seconds(error)
        await self._client.pause(self._backoff.next(self._clock.monotonic(), at_least=least))

    # --- list ---

    async def _list(self, version: str) -> None:
        """List all objects and pass them to the sink at once.

        `version` is the resourceVersion of the request. Empty: the newest state; "0": any state that the
        server has cached; any other: a state that is not older.
        """
        async with self._turns:
            try:
                items, unreadable, list_version = await self._pages(version, paged=not version)
            except Expired:
                if version:
                    raise
                items, unreadable, list_version = await self._pages(version, paged=False)
        self._sink.replace(items, unreadable)
        self._version = list_version
        self._listed_at = self._clock.monotonic()
        self._problem = ""
        self.synced.set()

    async def _pages(self, version: str, *, paged: bool) -> tuple[list[T], list[ObjectMeta], str]:
        items: list[T] = []
        unreadable: list[ObjectMeta] = []
        params = {**self._query, **({"resourceVersion": version} if version else {})}
        if paged:
            params["limit"] = str(PAGE)
        while True:
            body = await self._client.request("GET", self._path, params=params, longest_seconds=LIST_SECONDS)
            page = decode(body, _Page, self._path)
            self._check(page)
            for number, raw in enumerate(page.items or ()):
                if number % DECODE_BATCH == DECODE_BATCH - 1:
                    await asyncio.sleep(0)
                try:
                    items.append(decode_object(raw, self._decoder))
                except (msgspec.DecodeError, UnicodeDecodeError) as error:
                    unreadable.append(self._skip_undecodable(raw, error))
            if not page.metadata.continue_:
                return items, unreadable, page.metadata.resource_version
            params = {**self._query, "limit": str(PAGE), "continue": page.metadata.continue_}

    def _check(self, page: _Page) -> None:
        """Raise Unavailable if the answer is not a list: objects that it lacks would otherwise look deleted."""
        if not page.kind.endswith("List") or not page.metadata.resource_version:
            described = f"kind {page.kind!r}, resourceVersion {page.metadata.resource_version!r}"
            raise Unavailable(f"{self._path}: the answer is not a list of {self._what}: {described}")

    # --- watch ---

    async def _watch(self) -> None:
        """Run one watch until the server ends it.

        Raises an error if the watch fails, or ends at once without an event.
        """
        seconds = self._random.randint(*self._times.watch)
        params = {
            **self._query,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._version,
            "timeoutSeconds": str(seconds),
        }
        began = self._clock.monotonic()
        try:
            async with asyncio.timeout(seconds + self._times.late) as deadline:
                seen = await self._follow(params, deadline)
        except TimeoutError as error:
            self._is_bookmarked = False  # the next server may send no bookmarks
            raise TimedOut(f"the watch of {self._what} is silent and does not end") from error
        if seen:
            self._backoff.reset()
        elif self._clock.monotonic() - began < SHORT_SECONDS:
            raise Unavailable(f"the watch of {self._what} ended at once, without an event")

    async def _follow(self, params: dict[str, str], deadline: asyncio.Timeout) -> int:
        """Read the events of one watch until it ends; returns how many there were.

        `deadline`: the caller's timeout of this watch. Once the server has sent a bookmark, the timeout also
        expires after `WatchTimes.silent` without an event.
        """
        loop, end, seen = asyncio.get_running_loop(), deadline.when() or 0.0, 0
        async with self._client.stream(self._path, params=params) as content:
            if self._is_bookmarked:
                deadline.reschedule(min(end, loop.time() + self._times.silent))
            async for line in _lines(content.iter_any()):
                event = decode(line, _Event, self._what)
                self._take(event)
                seen += 1
                self._is_bookmarked |= event.type == "BOOKMARK"
                if self._is_bookmarked:
                    deadline.reschedule(min(end, loop.time() + self._times.silent))
        return seen

    def _take(self, event: _Event) -> None:
        if event.type == "ERROR":
            status = decode(bytes(event.object), Status, self._what)
            raise error_of(status.code or 500, status, f"watch of {self._what}")
        if event.type == "BOOKMARK":
            self._version = (
                decode(bytes(event.object), _Bare, self._what).metadata.resource_version or self._version
            )
            return
        try:
            item = decode_object(event.object, self._decoder)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            if event.type == "DELETED":  # the deleted object is unknown; a new list shows which one it was
                raise Expired(f"watch of {self._what}: a deleted object cannot be read") from error
            self._skip_undecodable(event.object, error)
        else:
            if event.type == "DELETED":
                self._sink.drop(item)
            elif event.type in ("ADDED", "MODIFIED"):
                self._sink.put(item)
        version = decode(bytes(event.object), _Bare, self._what).metadata.resource_version
        self._version = version or self._version

    def _skip_undecodable(self, raw: msgspec.Raw, error: Exception) -> ObjectMeta:
        """Report an undecodable object to the sink and return its identity.

        Raises Unavailable if not even its name can be read.
        """
        try:
            metadata = msgspec.json.decode(raw, type=_Bare).metadata
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise Unavailable(
                f"{self._what}: an object cannot be decoded, not even its name: {error}"
            ) from error
        log.warning(
            "Cannot decode an object",
            resource=self._what,
            object=f"{metadata.namespace}/{metadata.name}".lstrip("/"),
            err=str(error),
        )
        meta = ObjectMeta(
            name=metadata.name,
            namespace=metadata.namespace,
            uid=metadata.uid,
            resource_version=metadata.resource_version,
        )
        self._sink.undecodable(meta, str(error))
        return meta


async def _lines(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Split the bytes into lines and yield the complete lines that are not blank.

    Bytes after the last line feed are dropped, since that line was cut off. Raises Unavailable for a line of
    more than `MAX_LINE_BYTES`.
    """
    rest = bytearray()
    async for chunk in chunks:
        rest += chunk
        if b"\n" not in chunk:
            if len(rest) > MAX_LINE_BYTES:
                raise Unavailable(f"one event of the watch has more than {MAX_LINE_BYTES} bytes")
            continue
        *lines, last = rest.split(b"\n")
        rest = last
        for line in lines:
            if line.strip():
                yield bytes(line)
