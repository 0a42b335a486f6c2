"""`Pages`: answers all requests: pages, their changes, pictures and the pinned scripts. All requests are GET or HEAD."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from datetime import UTC, datetime
from functools import lru_cache
from importlib.resources import files
from typing import Any, Final, Protocol
from urllib.parse import unquote, urlencode

import msgspec
import structlog

from kubeletx.api import Clock, KubeletxError, NotFound, PermissionDenied, SystemClock
from kubeletx.kube.types.core import Pod

from .access import HEADERS, Refused
from .agent import Agent, pod_path
from .http import Request, Response
from .live import LivePage
from .node_page import NodePage, Query
from .pod_log import log_events, log_tail
from .pod_page import PodPage, pod_yaml
from .state import Feed, NodeState, panel_path
from .templates import render
from .values import picture_of

MAX_WATCHERS: Final = 100
"""Browsers that watch at the same time; further ones are refused with status 503."""
MAX_LOGS: Final = 20
"""Logs that browsers follow at the same time; each is a connection to the agent."""
MAX_PAGES: Final = 30
"""Pages that are kept for their watchers; one of 500 pods has 1 MB."""
SCREEN_SECONDS: Final = 10.0
"""Time for which a machine's screenshot is kept, so that many watchers cost the runtime one."""
TYPES: Final = {"js": "text/javascript", "css": "text/css"}
log = structlog.get_logger(__name__)


class Access(Protocol):
    """Decides whether a request may see the page."""

    async def check(self, request: Request) -> str:
        """Let the request pass, or raise Refused. Returns a cookie to set, or nothing."""
        ...


def utc_now() -> datetime:
    """Return the present time in UTC."""
    return datetime.now(UTC)


class Pages:
    """Answers requests."""

    def __init__(
        self,
        agent: Agent,
        access: Access,
        *,
        now: Callable[[], datetime] = utc_now,
        clock: Clock | None = None,
    ) -> None:
        """`now`: the present time, in UTC."""
        self._agent = agent
        self._access = access
        self._now = now
        self._clock = clock or SystemClock()
        self.feed = Feed(agent)
        self._screens: dict[str, tuple[float, asyncio.Task[bytes]]] = {}
        self.watchers = 0
        """Number of browsers that watch."""
        self._logs = 0

    async def close(self) -> None:
        """End all connections to the agent."""
        for _, reading in self._screens.values():
            reading.cancel()
        await self.feed.close()

    async def respond(self, request: Request) -> Response:
        """Answer a request; does not raise."""
        try:
            if request.method not in ("GET", "HEAD"):
                raise Refused(405, "this page is read-only")
            cookie = await self._access.check(request)
            if cookie:
                # A redirection would still come from the page that has the link, and have no cookie.
                headers = {"Set-Cookie": cookie, "Refresh": "0; url=/"}
                response = Response(body=_message(200, "Welcome", "").body, headers=headers)
            else:
                response = await self._answer(request)
        except Refused as refused:
            response = _message(refused.status, "Not allowed", str(refused), back="")
        except (NotFound, PermissionDenied) as error:
            response = _message(404, "Not found", str(error))
        except KubeletxError as error:
            response = _message(503, "The agent does not answer", str(error))
        except Exception:
            log.exception("Failed to answer a request", path=request.path)
            response = _message(500, "The page failed", "The output of this program has the cause.")
        return msgspec.structs.replace(response, headers={**HEADERS, **response.headers})

    async def _answer(self, request: Request) -> Response:
        query = request.query
        match [unquote(part) for part in request.path.split("/")[1:]]:
            case [""]:
                return await self._node(request)
            case ["live"]:
                chosen = Query.of(query)
                return self._events(query, lambda state: self._node_page(state, chosen))
            case ["static", name]:
                return _static(name)
            case ["panels", picture] if picture.endswith(".png"):
                return await self._panel(picture.removesuffix(".png"))
            case ["pods", namespace, name]:
                return await self._pod(request, namespace, name)
            case ["pods", namespace, name, "live"]:
                return self._events(query, lambda state: self._pod_page(state, namespace, name))
            case ["pods", namespace, name, "yaml"]:
                yaml = pod_yaml(await self._agent.get(pod_path(namespace, name), Pod))
                path = request.path.removesuffix("/yaml")
                return _html("pod_yaml", title=f"{namespace}/{name}", path=path, yaml=yaml)
            case ["pods", namespace, name, "log"]:
                path, container = pod_path(namespace, name, "log"), query.get("container", "")
                if self._logs >= MAX_LOGS:
                    raise Refused(503, f"{MAX_LOGS} logs are followed already; try again later")
                return Response(media_type="text/event-stream", events=self._log(path, container))
            case ["pods", namespace, name, "screen.png"]:
                screen = await self._screen(pod_path(namespace, name, "vm/screenshot"))
                return Response(body=screen, media_type="image/png")
        raise NotFound(f"There is no page {request.path}.")

    # --- pages ---

    async def _node(self, request: Request) -> Response:
        query = Query.of(request.query)
        async with self.feed.viewing() as state:
            page = self._node_page(state, query)
            await page.update()
            if "hx-request" in request.headers:
                return Response(body=page.html.encode())
            live = f"/live?{urlencode({**query.text, 'since': page.number})}"
            path = f"/?{urlencode(query.text)}"
            return _html("base", title=state.node.metadata.name, html=page.html, live=live, path=path)

    def _node_page(self, state: NodeState, query: Query) -> LivePage:
        return self._live_page(state, f"/?{query.text}", NodePage(state, query, self._now).html)

    async def _pod(self, request: Request, namespace: str, name: str) -> Response:
        async with self.feed.viewing() as state:
            pod = state.pod(namespace, name)
            page = self._pod_page(state, namespace, name)
            await page.update()
            if "hx-request" in request.headers:
                return Response(body=page.html.encode())
        if pod is None:
            raise NotFound(f"Pod {namespace}/{name} is not on this node.")
        previous, container = request.query.get("previous") == "1", request.query.get("container", "")
        tail = await log_tail(self._agent, pod, container, previous=previous)
        live = f"{request.path}/live?since={page.number}"
        return _html(
            "pod", title=f"{namespace}/{name}", html=page.html, live=live, log=tail, path=request.path
        )

    def _pod_page(self, state: NodeState, namespace: str, name: str) -> LivePage:
        page = PodPage(state, namespace, name, self._now, self._agent)
        return self._live_page(state, pod_path(namespace, name), page.html)

    def _live_page(self, state: NodeState, key: str, make: Callable[[], Any]) -> LivePage:
        """Return the live page of this key, which all its watchers share."""
        if len(state.pages) >= MAX_PAGES:
            state.pages.clear()  # watchers keep theirs
        page: LivePage = state.pages.setdefault(key, LivePage(self.feed, make))
        return page

    # --- streams and pictures ---

    def _events(self, query: Mapping[str, str], page: Callable[[NodeState], LivePage]) -> Response:
        if self.watchers >= MAX_WATCHERS:
            raise Refused(503, f"{MAX_WATCHERS} browsers watch this node already; try again later")
        return Response(media_type="text/event-stream", events=self._watched(page, query.get("since", "")))

    async def _watched(
        self, page: Callable[[NodeState], LivePage], since: str
    ) -> AsyncGenerator[bytes, None]:
        self.watchers += 1
        try:
            async with self.feed.viewing() as state, aclosing(page(state).events(since)) as events:
                async for event in events:
                    yield event
        except KubeletxError:
            return  # the browser tries again
        finally:
            self.watchers -= 1

    async def _log(self, path: str, container: str) -> AsyncGenerator[bytes, None]:
        self._logs += 1
        try:
            async with aclosing(log_events(self._agent, path, container)) as events:
                async for event in events:
                    yield event
        finally:
            self._logs -= 1

    async def _screen(self, path: str) -> bytes:
        now = self._clock.monotonic()
        self._screens = {name: kept for name, kept in self._screens.items() if now < kept[0]}
        if path not in self._screens:
            reading = asyncio.create_task(self._agent.read(path), name="screenshot")
            self._screens[path] = now + SCREEN_SECONDS, reading
        return await asyncio.shield(self._screens[path][1])

    async def _panel(self, name: str) -> Response:
        picture = picture_of(await self._agent.get(panel_path(name), dict))
        if picture is None:
            raise NotFound(f"Panel {name} is not a picture.")
        return Response(body=picture, media_type="image/png")


def _html(template: str, **values: Any) -> Response:
    return Response(body=render(template, **values).encode())


def _message(status: int, title: str, message: str, back: str = "/") -> Response:
    body = render("message", title=title, message=message, back=back).encode()
    return Response(status=status, body=body)


@lru_cache(maxsize=16)
def _static(name: str) -> Response:
    paths = {path.name: path for path in (files("kubeletx_web") / "static").iterdir()}
    media_type = TYPES.get(name.rpartition(".")[2])
    if media_type is None or name not in paths:
        raise NotFound(f"There is no file {name}.")
    return Response(body=paths[name].read_bytes(), media_type=media_type)
