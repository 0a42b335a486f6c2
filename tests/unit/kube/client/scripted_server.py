"""A few lines of an API server for tests of the client: lists and watches that a test writes line by line."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from kubeletx.kube.client import ClusterAccess

GONE = {
    "kind": "Status",
    "status": "Failure",
    "code": 410,
    "reason": "Expired",
    "message": "too old resource version: 5 (9)",
}
TOO_LARGE = {
    "kind": "Status",
    "status": "Failure",
    "code": 504,
    "reason": "Timeout",
    "message": "Too large resource version: 900, current: 3",
    "details": {"causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]},
}


def pod(name: str, version: int, **spec: Any) -> dict[str, Any]:
    """A pod as the API server writes it."""
    return {
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}", "resourceVersion": str(version)},
        "spec": spec,
    }  # fmt: skip


def pod_list(version: int, *items: dict[str, Any], more: str = "") -> dict[str, Any]:
    """A PodList; `more`: the continue token."""
    return {
        "kind": "PodList",
        "metadata": {"resourceVersion": str(version), **({"continue": more} if more else {})},
        "items": list(items),
    }


class Script:
    """Answers in order: lists to lists, watches to watches. A watch is the bytes that it sends; then it ends."""

    def __init__(self) -> None:
        self.lists: list[dict[str, Any] | tuple[int, dict[str, Any]]] = []
        self.watches: list[bytes | tuple[int, dict[str, Any]]] = []
        self.asked: list[Mapping[str, str]] = []
        self.cut: set[int] = set()
        """Numbers of watches whose connection is broken off at the end instead of being ended."""
        self.idle = asyncio.Event()
        self.closed = asyncio.Event()
        """Set when the server stops; a handler that stays silent waits for it."""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """One list or watch; with nothing left, a list fails and a watch stays silent."""
        query = dict(request.query)
        self.asked.append(query)
        if "watch" in query:
            return await self._watch(request)
        if not self.lists:
            raise web.HTTPServiceUnavailable
        return _json(self.lists.pop(0))

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        number = sum("watch" in one for one in self.asked)
        if not self.watches:
            self.idle.set()
            await self.closed.wait()
            return web.Response()
        sent = self.watches.pop(0)
        if isinstance(sent, tuple):
            return _json(sent)
        response = web.StreamResponse()
        response.enable_chunked_encoding()
        await response.prepare(request)
        await response.write(sent)
        if number in self.cut and request.transport is not None:
            request.transport.close()
        return response


def lines(*events: tuple[str, dict[str, Any]]) -> bytes:
    """A watch's body."""
    return b"".join(json.dumps({"type": type_, "object": value}).encode() + b"\n" for type_, value in events)


def bookmark(version: int) -> tuple[str, dict[str, Any]]:
    """Nothing happened up to here."""
    return "BOOKMARK", {"kind": "Pod", "metadata": {"resourceVersion": str(version)}}


@asynccontextmanager
async def serve(script: Script) -> AsyncIterator[ClusterAccess]:
    """Listen on loopback while the block runs."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", script.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        port = runner.addresses[0][1]
        yield ClusterAccess(server=f"http://127.0.0.1:{port}")
    finally:
        script.closed.set()
        await runner.cleanup()


def _json(answer: dict[str, Any] | tuple[int, dict[str, Any]]) -> web.Response:
    code, body = answer if isinstance(answer, tuple) else (200, answer)
    return web.json_response(body, status=code)
