"""A file server whose behaviour a test decides: ranges, validators, stalls, lies."""

from __future__ import annotations

import asyncio
from email.utils import formatdate
from types import TracebackType

from aiohttp import web


class FileServer:
    """Serves `files` by path. Everything else is off until a test sets it."""

    def __init__(self, host: str = "127.0.0.1") -> None:
        self.host = host
        self.files: dict[str, bytes] = {}
        self.requests: list[tuple[str, dict[str, str]]] = []
        self.sent_bytes = 0
        self.etags = True
        self.ranges = True
        self.conditions = True
        self.modified: float | None = None
        self.status = 200
        self.stall_after: int | None = None
        self.drips = False
        """Every body is sent byte by byte, without end."""
        self.break_after: list[int] = []
        self.announce_more = 0
        self.chunked = False
        self.redirects: dict[str, str] = {}
        self.answers: dict[str, tuple[int, dict[str, str], bytes]] = {}
        self.guard: tuple[str, str, str] | None = None
        """What Authorization must be, below which path, and the challenge that is sent otherwise."""
        self.expire_after: int | None = None
        """After so many allowed requests one is refused."""
        self.asked = asyncio.Event()
        self.gate = asyncio.Event()
        self.gate.set()
        self.port = 0
        self._runner: web.AppRunner | None = None

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://{self.host}:{self.port}"

    async def __aenter__(self) -> FileServer:
        application = web.Application()
        application.router.add_route("*", "/{path:.*}", self._serve)
        self._runner = web.AppRunner(application, handler_cancellation=True, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, self.host, 0)
        await site.start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.gate.set()
        assert self._runner is not None
        await self._runner.cleanup()

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        self.requests.append((request.raw_path, dict(request.headers)))
        self.asked.set()
        path = request.path
        if self.guard is not None and path.startswith(self.guard[1]):
            allowed = request.headers.get("Authorization") == self.guard[0]
            if allowed and self.expire_after is not None:
                self.expire_after -= 1
                allowed = self.expire_after != -1
            if not allowed:
                return web.Response(status=401, headers={"WWW-Authenticate": self.guard[2]})
        if path in self.redirects:
            return web.Response(status=302, headers={"Location": self.redirects[path]})
        if path in self.answers:
            status, headers, body = self.answers[path]
            if self.drips:
                return await self._drip(request, web.StreamResponse(status=status, headers=headers))
            return web.Response(status=status, headers=headers, body=body)
        if self.status != 200:
            return web.Response(status=self.status, text="no")
        if path not in self.files:
            return web.Response(status=404)
        return await self._send(request, self.files[path])

    async def _drip(self, request: web.Request, response: web.StreamResponse) -> web.StreamResponse:
        await response.prepare(request)
        while True:
            await response.write(b"x")
            await asyncio.sleep(0)

    async def _send(self, request: web.Request, content: bytes) -> web.StreamResponse:
        headers = {}
        etag = f'"{hash(content) & 0xFFFFFF:x}"'
        modified = formatdate(self.modified, usegmt=True) if self.modified is not None else ""
        if self.etags:
            headers["ETag"] = etag
        if modified:
            headers["Last-Modified"] = modified
        asked = request.headers
        if self.conditions and (
            (self.etags and asked.get("If-None-Match") == etag)
            or (modified and asked.get("If-Modified-Since") == modified)
        ):
            return web.Response(status=304, headers=headers)
        status, start = 200, 0
        if self.ranges and "Range" in asked and asked.get("If-Range", etag) in (etag, modified):
            start = int(asked["Range"].removeprefix("bytes=").removesuffix("-"))
            if start >= len(content):
                return web.Response(status=416, headers={"Content-Range": f"bytes */{len(content)}"})
            status = 206
            headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
        response = web.StreamResponse(status=status, headers=headers)
        if self.chunked:
            response.enable_chunked_encoding()
        else:
            response.content_length = len(content) - start + self.announce_more
        if self.drips:
            return await self._drip(request, response)
        await response.prepare(request)
        await self.gate.wait()
        end = len(content)
        if self.stall_after is not None:
            end = min(end, start + self.stall_after)
        if self.break_after:
            end = min(end, start + self.break_after.pop(0))
        for at in range(start, end, 65_536):
            piece = content[at : min(at + 65_536, end)]
            await response.write(piece)
            self.sent_bytes += len(piece)
        if self.stall_after is not None:
            await asyncio.Event().wait()
        if end < len(content) or self.announce_more:
            assert request.transport is not None
            await asyncio.sleep(0)
            request.transport.close()
        return response
