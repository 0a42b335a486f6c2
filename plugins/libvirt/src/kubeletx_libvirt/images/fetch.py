"""Downloads one file over HTTP; continues a partial download and skips an unchanged file.

A partial download of an earlier try, or of an earlier agent process, is continued with ``Range`` and
``If-Range``: a server whose file has changed sends it from the start. Without a strong validator nothing is
continued, since old and new bytes could mix. Sources: RFC 9110, sections 13 and 14.
"""

from __future__ import annotations

import base64
import random
import re
import time
from collections.abc import Callable, Mapping
from http import HTTPStatus

import aiohttp
import msgspec

from kubeletx.api import BoundedThreadPool, Clock, PullProgress, TimedOut, Unavailable

from .http import Http, TransferBroken, check_status
from .importing import too_large
from .index import Validators
from .part import Part, PartState
from .problems import Refused, free_bytes, no_space
from .reach import Reach
from .unpack import CHUNK_BYTES

Report = Callable[[PullProgress], None]

_TRIES = 3
_LONGEST_WAIT_SECONDS = 10.0
_LEAST_BYTES = 1 << 16
"""Progress: what a server must send within the stall time, and what resets the count of failed tries."""
_CONTENT_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+|\*)")


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """One file to download.

    `image`: the reference in the manifest. `shown`: the URL for messages, without secrets. `fixed`: the URL
    contains the digest, so its content never changes. `may_downgrade`: follow redirects from https to http.
    `reach`: servers that may be contacted.
    `known`: validators of the stored copy; nothing is transferred if the server still has the same.
    `limit_bytes`: maximum size. `size_bytes`: the expected size; None: unknown.
    """

    image: str
    url: str
    shown: str
    headers: dict[str, str] = {}
    reach: Reach
    fixed: bool = False
    may_downgrade: bool = False
    known: Validators | None = None
    limit_bytes: int
    size_bytes: int | None = None

    def __repr__(self) -> str:
        return f"Wanted({self.shown!r}, ...)"


class Downloads:
    """Downloads files over HTTP for one image store, with retries."""

    def __init__(self, http: Http, workers: BoundedThreadPool, clock: Clock) -> None:
        self.http = http
        self._workers = workers
        self._clock = clock

    async def download(self, wanted: Wanted, part: Part, report: Report) -> Validators | None:
        """Download the file into `part` and return its validators; None if the stored copy is still current.

        Raises Unavailable if the connection breaks repeatedly with few new bytes (received bytes are kept for
        the next call), TimedOut if the server sends nothing or too slowly, Refused for an unacceptable file or
        server, and OSError.
        """
        await self._workers.finish(part.load, wanted.url)
        most, failures = part.size, 0
        try:
            while True:
                try:
                    return await self._try(wanted, part, report)
                except TransferBroken as broken:
                    has_more, most = part.size >= most + _LEAST_BYTES, max(most, part.size)
                    failures = 0 if has_more else failures + 1
                    if failures >= _TRIES or (broken.stalled and not has_more):
                        raise _say_how_far(broken, part) from broken
                    wait = min(2.0**failures, _LONGEST_WAIT_SECONDS)
                    await self._clock.sleep(wait * random.uniform(0.5, 1.0))
        finally:
            await self._workers.finish(part.close)

    async def _try(self, wanted: Wanted, part: Part, report: Report) -> Validators | None:
        offset = _resume_at(wanted, part)
        headers = dict(wanted.headers)
        if offset:
            headers["Range"] = f"bytes={offset}-"
            if not wanted.fixed and part.state is not None:
                headers["If-Range"] = part.state.validators.if_range
        elif wanted.known is not None:
            if wanted.known.etag:
                headers["If-None-Match"] = wanted.known.etag
            elif wanted.known.modified:
                headers["If-Modified-Since"] = wanted.known.modified
        async with self.http.get(
            wanted.url,
            headers,
            shown=wanted.shown,
            reach=wanted.reach,
            may_downgrade=wanted.may_downgrade,
        ) as response:
            if response.status == HTTPStatus.NOT_MODIFIED and wanted.known is not None and not offset:
                return None
            if response.status == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE and offset:
                await self._workers.finish(part.restart, PartState(url=wanted.url))
                raise TransferBroken(Unavailable(f"{wanted.shown}: the server cannot continue the download"))
            check_status(response, wanted.shown)
            now = _validators(response)
            if response.status == HTTPStatus.PARTIAL_CONTENT:
                total = await self._continue(wanted, part, response, offset, now)
            elif wanted.known is not None and wanted.known.is_same_http(now):
                return None
            else:
                total = now.length
                if total is not None and wanted.size_bytes is not None and total != wanted.size_bytes:
                    raise Refused(f"has {total} bytes where {wanted.size_bytes} were announced")
                state = PartState(url=wanted.url, validators=now, total_bytes=total)
                await self._workers.finish(part.restart, state)
            await self._receive(wanted, part, response, total, report)
            assert part.state is not None
            return part.state.validators

    async def _continue(
        self, wanted: Wanted, part: Part, response: aiohttp.ClientResponse, offset: int, now: Validators
    ) -> int | None:
        match = _CONTENT_RANGE.fullmatch(response.headers.get("Content-Range", ""))
        old = part.state.validators if part.state is not None else Validators()
        changed = bool(now.etag and old.etag and now.etag != old.etag)
        if match is None or int(match[1]) != offset or not offset or (changed and not wanted.fixed):
            await self._workers.finish(part.restart, PartState(url=wanted.url))
            raise TransferBroken(Unavailable(f"{wanted.shown}: the server sent another part than requested"))
        await self._workers.finish(part.resume, offset)
        return int(match[2]) + 1 if match[3] == "*" else int(match[3])

    async def _receive(
        self,
        wanted: Wanted,
        part: Part,
        response: aiohttp.ClientResponse,
        total: int | None,
        report: Report,
    ) -> None:
        if total is not None:
            if total > wanted.limit_bytes:
                raise too_large(total, wanted.limit_bytes)
            if total - part.size > free_bytes(part.path.parent):
                raise no_space(wanted.image, part.path.parent, total - part.size)
        report(PullProgress(done_bytes=part.size, total_bytes=total, message="downloading"))
        buffer = bytearray()
        began, recent = time.monotonic(), 0
        try:
            async for piece in response.content.iter_any():
                buffer += piece
                recent += len(piece)
                if len(buffer) >= CHUNK_BYTES:
                    await self._write(wanted, part, buffer)
                    report(PullProgress(done_bytes=part.size, total_bytes=total, message="downloading"))
                if recent >= _LEAST_BYTES:
                    began, recent = time.monotonic(), 0
                elif time.monotonic() - began > self.http.stall_seconds:
                    raise TransferBroken(
                        TimedOut(
                            f"{wanted.shown}: the server sent only {recent} bytes in "
                            f"{self.http.stall_seconds:g} s"
                        ),
                        stalled=True,
                    )
        finally:
            if buffer:
                await self._write(wanted, part, buffer)
        report(PullProgress(done_bytes=part.size, total_bytes=total, message="downloading"))
        if total is not None and part.size < total:
            raise TransferBroken(Unavailable(f"{wanted.shown}: the server ended the transfer early"))

    async def _write(self, wanted: Wanted, part: Part, buffer: bytearray) -> None:
        data = bytes(buffer)
        buffer.clear()
        if part.size + len(data) > wanted.limit_bytes:
            raise too_large(part.size + len(data), wanted.limit_bytes)
        await self._workers.finish(part.write, data)


def _resume_at(wanted: Wanted, part: Part) -> int:
    """Return the offset at which the download continues; 0 means from the start.

    For a complete file it is the offset of the last byte, so that there is always a range to request.
    """
    state = part.state
    if state is None or not part.size or not (wanted.fixed or state.validators.if_range):
        return 0
    return part.size - 1 if part.size == state.total_bytes else part.size


def _validators(response: aiohttp.ClientResponse) -> Validators:
    length = response.content_length if response.status == HTTPStatus.OK else None
    return Validators(
        etag=response.headers.get("ETag", ""),
        modified=response.headers.get("Last-Modified", ""),
        length=length,
    )


def _say_how_far(broken: TransferBroken, part: Part) -> Exception:
    total = part.state.total_bytes if part.state is not None else None
    of = f" of {total}" if total is not None else ""
    message = f"{broken.error.message}, after {part.size}{of} bytes"
    if part.state is not None and part.state.validators.if_range:
        message += "; the next attempt resumes there"
    return type(broken.error)(message)


def basic_header(username: str, password: str) -> Mapping[str, str]:
    """Return the ``Authorization`` header for these credentials."""
    return {"Authorization": f"Basic {base64.b64encode(f'{username}:{password}'.encode()).decode()}"}
