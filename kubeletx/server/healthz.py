"""Health over HTTP: ``/healthz`` for the whole agent and ``/healthz/<part>`` for one part.

The answer is 200 and ``ok`` if healthy, else 500 and the reasons. The parts ``ping`` and ``log`` only show that the
agent's event loop runs (the log is never buffered, so it cannot fail). The other parts, such as ``syncloop``, come
from `AboutVerbs.health`. ``?verbose`` lists all parts.
"""

from __future__ import annotations

from collections.abc import Iterable

from aiohttp import web
from aiohttp.typedefs import Middleware

from kubeletx.api import InvalidConfig
from kubeletx.linux.listener import ConnectionLimits, Listener

from .backend import AboutVerbs
from .http import errors_as_status, note_start
from .views import PartHealth

MAX_CONNECTIONS = 512
IDLE_SECONDS = 90.0
"""Time after which a connection without a request is closed, as in the kubelet."""


def health_routes(backend: AboutVerbs) -> Iterable[web.RouteDef]:
    """Return the routes ``/healthz`` and ``/healthz/<part>``, which several servers use."""

    async def ping(_request: web.Request) -> web.StreamResponse:
        return web.Response(text="ok")

    async def whole(request: web.Request) -> web.StreamResponse:
        health = await backend.health()
        lines = [f"[{'+' if part.ok else '-'}]{part.name} {_words(part)}" for part in health.parts]
        if health.ok and "verbose" not in request.query:
            return web.Response(text="ok")
        verdict = "healthz check passed" if health.ok else "healthz check failed"
        return web.Response(
            text="\n".join(["[+]ping ok", *lines, verdict, ""]), status=200 if health.ok else 500
        )

    async def part(request: web.Request) -> web.StreamResponse:
        wanted = request.match_info["part"]
        for part_ in (await backend.health()).parts:
            if part_.name == wanted:
                return web.Response(
                    text=_words(part_) if part_.ok else part_.message, status=200 if part_.ok else 500
                )
        raise web.HTTPNotFound(text=f"no part is named {wanted!r}")

    return (
        web.get("/healthz", whole),
        web.get("/healthz/ping", ping),
        web.get("/healthz/log", ping),
        web.get("/healthz/{part}", part),
    )


def _words(part: PartHealth) -> str:
    """Return the part's state in words; a healthy part may have a message, too."""
    state = "ok" if part.ok else "failed"
    return f"{state}: {part.message}" if part.message else state


class HttpServer:
    """Plain HTTP server on one TCP address; listens from `start` to `stop`."""

    def __init__(
        self,
        *,
        name: str,
        address: str,
        port: int,
        routes: Iterable[web.RouteDef],
        middlewares: Iterable[Middleware] = (),
        limits: ConnectionLimits | None = None,
        idle_seconds: float = IDLE_SECONDS,
    ) -> None:
        """`name`: name of the flag that sets the port, without dashes, for error messages and the log.

        `port` 0: any free port; after `start` the property `port` returns it. `limits` None: from the process's limit
        of descriptors. `idle_seconds`: time after which a connection without a request is closed.
        """
        self._idle_seconds = idle_seconds
        self._listener = Listener(
            flag=name,
            address=address,
            port=port,
            limits=limits or ConnectionLimits.within_descriptors(MAX_CONNECTIONS, share=8),
        )
        self._app = web.Application(middlewares=[*middlewares, errors_as_status])
        self._app.on_response_prepare.append(note_start)
        self._app.add_routes(routes)
        self._runner: web.AppRunner | None = None

    @property
    def port(self) -> int:
        """Port on which the server listens; before `start`, the configured port."""
        return self._listener.port

    async def start(self) -> None:
        """Listen on the address and port. Raises InvalidConfig, which names the flag, if that fails."""
        runner = web.AppRunner(
            self._app,
            handle_signals=False,
            access_log=None,
            shutdown_timeout=0.5,
            keepalive_timeout=self._idle_seconds,
        )
        await runner.setup()
        assert runner.server is not None
        try:
            await self._listener.start(runner.server)
        except InvalidConfig:
            await runner.cleanup()
            raise
        self._runner = runner

    async def stop(self) -> None:
        await self._listener.stop()
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None


def health_server(
    backend: AboutVerbs, address: str, port: int, *, idle_seconds: float = IDLE_SECONDS
) -> HttpServer:
    """Make the server of ``--healthz-port``; it listens after `HttpServer.start`."""
    return HttpServer(
        name="healthz-port",
        address=address,
        port=port,
        routes=health_routes(backend),
        idle_seconds=idle_seconds,
    )
