"""The web server: pages, live changes, pictures and the pinned scripts. All requests are GET or HEAD."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from datetime import UTC, datetime
from functools import lru_cache
from importlib.resources import files
from typing import Final, Protocol

from aiohttp import web

from kubeletx.api import KubeletxError, NotFound, PermissionDenied, SystemClock
from kubeletx.kube.types.core import Pod

from .access import HEADERS, SESSION_SECONDS, Refused, cookie
from .agent import Agent, pod_path
from .live import LivePage
from .node_page import NodePage, Query, node_document
from .pod_log import log_events, log_tail
from .pod_page import PodPage, pod_yaml
from .screens import Screens
from .state import Feed, NodeState, panel_path
from .templates import render
from .values import History, picture_of

MAX_WATCHERS: Final = 100
"""Browsers that watch at the same time; further ones are refused with status 503."""
MAX_LOGS: Final = 20
"""Logs that browsers follow at the same time; each is a connection to the agent."""
WRITE_SECONDS: Final = 30.0
"""A browser that reads nothing for this time is disconnected."""
TYPES: Final = {".js": "text/javascript", ".css": "text/css"}
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Access(Protocol):
    """Decides whether a request may see the page."""

    async def check(self, request: web.Request) -> str | None:
        """Let the request pass, or raise Refused. Returns the secret of a new session if the request began one."""
        ...


def utc_now() -> datetime:
    """Return the present time in UTC."""
    return datetime.now(UTC)


class Pages:
    """Answers all requests."""

    def __init__(
        self,
        agent: Agent,
        access: Access,
        *,
        now: Callable[[], datetime] = utc_now,
        write_seconds: float = WRITE_SECONDS,
    ) -> None:
        """`now`: the present time, in UTC. `write_seconds`: see `WRITE_SECONDS`."""
        self._agent = agent
        self._access = access
        self._now = now
        self._write_seconds = write_seconds
        self.feed = Feed(agent)
        self._live: dict[tuple[str, ...], LivePage] = {}
        self._live_of: NodeState | None = None
        self.watchers = 0
        """Number of browsers that watch."""
        self._logs = 0
        self._screens = Screens(agent, SystemClock())

    def app(self) -> web.Application:
        """Return the web application."""
        app = web.Application(middlewares=[self._guard], client_max_size=1024)
        app.add_routes(
            (
                web.get("/", self._node),
                web.get("/live", self._node_live),
                web.get("/pods/{namespace}/{name}", self._pod),
                web.get("/pods/{namespace}/{name}/live", self._pod_live),
                web.get("/pods/{namespace}/{name}/log", self._log),
                web.get("/pods/{namespace}/{name}/yaml", self._yaml),
                web.get("/pods/{namespace}/{name}/screen.png", self._screen),
                web.get("/panels/{name}.png", self._panel),
                web.get("/static/{name}", _static),
            )
        )
        app.on_cleanup.append(self._close)
        return app

    async def _close(self, _app: web.Application) -> None:
        await self.feed.close()
        await self._agent.close()

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            if request.method not in ("GET", "HEAD"):
                raise Refused(405, "this page is read-only")
            secret = await self._access.check(request)
            if secret is not None:
                return _begin_session(request, secret)
            if request.method == "HEAD" and request.path.endswith(("/live", "/log")):
                response: web.StreamResponse = web.Response(content_type="text/event-stream")  # has no end
            else:
                response = await handler(request)
        except Refused as refused:
            response = _message(refused.status, "Not allowed", str(refused))
        except (NotFound, PermissionDenied) as error:
            response = _message(404, "Not found", str(error), back="/")
        except KubeletxError as error:
            response = _message(503, "The agent does not answer", str(error), back="/")
        except web.HTTPException as error:
            response = _message(error.status, error.reason, f"There is no page {request.path}.", back="/")
        if not response.prepared:
            response.headers.update(HEADERS)
        return response

    # --- pages ---

    async def _node(self, request: web.Request) -> web.StreamResponse:
        query = Query.of(request.query)
        async with self.feed.viewing() as state:
            live = await self._live_page(("node", str(query.text)), state, NodePage(state, query, self._now))
            path = str(
                request.url.with_path("/live", keep_query=True).update_query(since=live.number).relative()
            )
            return _html(request, node_document(state, live.now, query, path))

    async def _node_live(self, request: web.Request) -> web.StreamResponse:
        query = Query.of(request.query)
        return await self._stream(
            request, ("node", str(query.text)), lambda state: NodePage(state, query, self._now)
        )

    async def _pod(self, request: web.Request) -> web.StreamResponse:
        namespace, name = request.match_info["namespace"], request.match_info["name"]
        async with self.feed.viewing() as state:
            page = self._pod_page(state, namespace, name)
            pod = page.pod
            if pod is None:
                raise NotFound(f"Pod {namespace}/{name} is not on this node.")
            live = await self._live_page(("pod", namespace, name), state, page)
            parts = live.now.parts
        query = request.query
        tail = await log_tail(
            self._agent, pod, query.get("container", ""), previous=query.get("previous") == "1"
        )
        return _html(
            request,
            render(
                "pod",
                namespace=namespace,
                name=name,
                parts=parts,
                log=tail,
                path=request.path,
                live=f"{request.path}/live?since={live.number}",
            ),
        )

    async def _pod_live(self, request: web.Request) -> web.StreamResponse:
        namespace, name = request.match_info["namespace"], request.match_info["name"]
        return await self._stream(
            request,
            ("pod", namespace, name),
            lambda state: self._pod_page(state, namespace, name),
        )

    def _pod_page(self, state: NodeState, namespace: str, name: str) -> PodPage:
        path = pod_path(namespace, name, "history")
        return PodPage(state, namespace, name, self._now, lambda: self._agent.get(path, History))

    async def _yaml(self, request: web.Request) -> web.StreamResponse:
        namespace, name = request.match_info["namespace"], request.match_info["name"]
        text = pod_yaml(await self._agent.get(pod_path(namespace, name), Pod))
        path = request.path.removesuffix("/yaml")
        return _html(
            request, render("pod_yaml", namespace=namespace, name=name, path=path, yaml=text, live="")
        )

    async def _log(self, request: web.Request) -> web.StreamResponse:
        if self._logs >= MAX_LOGS:
            return _message(503, "Too many viewers", f"{MAX_LOGS} logs are followed already.")
        info = request.match_info
        path = pod_path(info["namespace"], info["name"], "log")
        self._logs += 1
        try:
            return await send_events(
                request,
                log_events(self._agent, path, request.query.get("container", "")),
                self._write_seconds,
            )
        finally:
            self._logs -= 1

    async def _screen(self, request: web.Request) -> web.StreamResponse:
        info = request.match_info
        picture = await self._screens.get(pod_path(info["namespace"], info["name"], "vm/screenshot"))
        return web.Response(body=picture, content_type="image/png")

    async def _panel(self, request: web.Request) -> web.StreamResponse:
        name = request.match_info["name"]
        picture = picture_of(await self._agent.get(panel_path(name), object))
        if picture is None:
            raise NotFound(f"Panel {name} is not a picture.")
        return web.Response(body=picture, content_type="image/png")

    # --- live ---

    async def _live_page(self, key: tuple[str, ...], state: NodeState, page: NodePage | PodPage) -> LivePage:
        """Return the live page of this key, which all its watchers share, as it is now."""
        if self._live_of is not state:
            self._live, self._live_of = {}, state
        live = self._live.get(key)
        if live is None:
            if len(self._live) >= MAX_WATCHERS:
                self._live = {name: other for name, other in self._live.items() if other.is_watched}
            prepare = page.prepare if isinstance(page, PodPage) else None
            live = self._live[key] = LivePage(self.feed, page.fragments, prepare)
        if not live.is_watched:
            await live.update()
        return live

    async def _stream(
        self, request: web.Request, key: tuple[str, ...], page: Callable[[NodeState], NodePage | PodPage]
    ) -> web.StreamResponse:
        if self.watchers >= MAX_WATCHERS:
            return _message(503, "Too many viewers", f"{MAX_WATCHERS} browsers watch this node already.")
        if request.method == "HEAD":
            return web.Response(content_type="text/event-stream")
        since = request.headers.get("Last-Event-ID", request.query.get("since", ""))
        self.watchers += 1
        try:
            async with self.feed.viewing() as state:
                live = await self._live_page(key, state, page(state))
                number = int(since) if since.isdecimal() else -1
                return await send_events(request, live.messages(number), self._write_seconds)
        finally:
            self.watchers -= 1


async def send_events(
    request: web.Request, messages: AsyncIterator[bytes], write_seconds: float = WRITE_SECONDS
) -> web.StreamResponse:
    """Send server-sent events until the iterator ends or the browser goes away or does not read."""
    response = web.StreamResponse(headers={**HEADERS, "Content-Type": "text/event-stream"})
    await response.prepare(request)
    async with aclosing(messages) as source:  # type: ignore[type-var] # an async generator
        try:
            async for message in source:
                async with asyncio.timeout(write_seconds):
                    await response.write(message)
        except (ConnectionResetError, TimeoutError):
            if request.transport is not None:
                request.transport.abort()
    return response


def _begin_session(request: web.Request, secret: str) -> web.Response:
    response = web.Response(status=303, headers={**HEADERS, "Location": request.path})
    response.set_cookie(
        cookie(request), secret, max_age=int(SESSION_SECONDS), httponly=True, samesite="Strict", path="/"
    )
    return response


def _html(request: web.Request, text: str) -> web.Response:
    response = web.Response(text=text, content_type="text/html")
    if "gzip" in request.headers.get("Accept-Encoding", ""):
        response.enable_compression(web.ContentCoding.gzip)
    return response


def _message(status: int, title: str, message: str, back: str = "") -> web.Response:
    text = render("message", title=title, message=message, back=back, live="")
    return web.Response(status=status, text=text, content_type="text/html")


async def _static(request: web.Request) -> web.StreamResponse:
    name = request.match_info["name"]
    content_type = TYPES.get(name[name.rfind(".") :])
    body = _file(name) if content_type is not None and "/" not in name else None
    if body is None:
        raise NotFound(f"There is no file {name}.")
    response = web.Response(body=body, content_type=content_type, charset="utf-8")
    if "gzip" in request.headers.get("Accept-Encoding", ""):
        response.enable_compression(web.ContentCoding.gzip)
    return response


@lru_cache(maxsize=16)
def _file(name: str) -> bytes | None:
    path = files("kubeletx_web") / "static" / name
    return path.read_bytes() if path.is_file() else None
