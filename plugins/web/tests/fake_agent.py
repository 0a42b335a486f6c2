"""`FakeAgent`: an admin socket that answers GET requests from a table, and counts its connections."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from aiohttp import web

POD: dict[str, Any] = {
    "metadata": {"name": "web", "namespace": "default", "uid": "u1"},
    "spec": {"containers": [{"name": "main", "image": "busybox"}]},
    "status": {"phase": "Running"},
}


def pod(name: str, **metadata: Any) -> dict[str, Any]:
    """A running pod; its UID is its name."""
    return {**POD, "metadata": {"namespace": "default", "name": name, "uid": name, **metadata}}


class FakeAgent:
    """`answers`: JSON objects by path; other paths have status 404. `asked`: the paths of all requests.

    `hung`: paths without an answer. `failing`: paths with status 500.
    """

    def __init__(self) -> None:
        self.answers: dict[str, Any] = {
            "/version": {"version": "1", "nodeName": "one"},
            "/v1/pods": {"items": [POD]},
            "/v1/node": {"metadata": {"name": "one"}},
            "/v1/runtimes": {"items": []},
            "/v1/events": {"items": []},
            "/v1/volumes": {"items": []},
            "/v1/usage/history": {"next": 0},
        }
        self.hung: set[str] = set()
        self.failing: set[str] = set()
        self.asked: set[str] = set()
        self.most_open = 0
        self.watches: dict[str, list[web.StreamResponse]] = {}
        self._open = 0

    @asynccontextmanager
    async def serving(self, path: Path) -> AsyncIterator[None]:
        """Listen on the socket within this context."""
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._handle)
        runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
        await runner.setup()
        await web.UnixSite(runner, str(path)).start()
        try:
            yield
        finally:
            await runner.cleanup()

    @contextmanager
    def in_thread(self, path: Path) -> Iterator[Callable[[Coroutine[Any, Any, None]], None]]:
        """Listen on the socket, from a thread, within this context; yields what runs a coroutine in that thread."""
        loop, ended = asyncio.new_event_loop(), asyncio.Event()

        async def serve() -> None:
            async with self.serving(path):
                await ended.wait()

        thread = threading.Thread(target=loop.run_until_complete, args=(serve(),), name="fake-agent")
        thread.start()
        try:
            yield lambda coroutine: asyncio.run_coroutine_threadsafe(coroutine, loop).result(60)
        finally:
            loop.call_soon_threadsafe(ended.set)
            thread.join()
            loop.close()

    async def send(self, path: str, type_: str, object_: Any) -> None:
        """Send a line to all watches of the path."""
        line = json.dumps({"type": type_, "object": object_}).encode() + b"\n"
        for watch in self.watches.get(path, []):
            await watch.write(line)

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        if request.path in self.hung:
            await asyncio.Event().wait()
        if request.path in self.failing:
            return web.json_response({"message": "it fails"}, status=500)
        return await self._answer(request)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self.asked.add(request.rel_url.raw_path)
        self._open += 1
        self.most_open = max(self.most_open, self._open)
        try:
            if request.path not in self.answers:
                return web.json_response({"message": f"no {request.path}"}, status=404)
            if "watch" not in request.query:
                return web.json_response(self.answers[request.path])
            response = web.StreamResponse()
            await response.prepare(request)
            self.watches.setdefault(request.path, []).append(response)
            await asyncio.Event().wait()
            return response
        finally:
            self._open -= 1
