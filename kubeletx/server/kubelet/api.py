"""The kubelet's API: HTTPS on port 10250, for API servers, metrics collectors and operators.

Each request needs a user (`authentication`) who has a right on this node (`authorization`). Otherwise the answer is
401 or 403 without details, also for an unknown path. Routes are in the other files of this folder.

Slow clients are disconnected: a TLS handshake may take ten seconds, and a connection may wait 90 seconds for each
request, as in the kubelet. The size of headers is limited. The request line may be long, since it contains the command
of an exec. No route takes a large body. aiohttp's own log of malformed requests is off: it would repeat their bytes,
which may be a token.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

import msgspec
import structlog
from aiohttp import HttpVersion10, web

from kubeletx.api import InvalidConfig, TimedOut
from kubeletx.linux.listener import HANDSHAKE_SECONDS, ConnectionLimits, Listener

from ..access.authentication import Authenticator
from ..access.authorization import PROXY, VERBS, Authorizer, refusal_of
from ..access.tls import ServerTls
from ..http import MAX_LINE_BYTES, cut_if_started, note_start
from ..metrics.http_counts import HttpCounts, counting
from .route import Handler, KubeletRoute, failure, plain

log = structlog.get_logger(__name__)

IDLE_SECONDS = 90.0
MAX_CONNECTIONS = 4096
"""An API server has one connection for each stream that it forwards, all from one address."""
MAX_BODY_BYTES = 1 << 16
MAX_FIELD_BYTES = 1 << 15


class Listen(msgspec.Struct, frozen=True, kw_only=True):
    """Address and options of the server of the kubelet's API.

    `port` 0: any free port. `debugging_handlers` False: debugging routes, such as exec and logs, answer 405.
    `handshake_seconds`: longest TLS handshake. `idle_seconds`: time after which a connection without a request is closed.
    """

    address: str
    port: int
    debugging_handlers: bool = True
    handshake_seconds: float = HANDSHAKE_SECONDS
    idle_seconds: float = IDLE_SECONDS


class KubeletServer:
    """HTTPS server of the kubelet's API; listens from `start` to `stop`."""

    def __init__(
        self,
        listen: Listen,
        *,
        tls: ServerTls,
        authenticator: Authenticator,
        authorizer: Authorizer,
        routes: Iterable[KubeletRoute],
        counts: HttpCounts | None = None,
    ) -> None:
        """`counts`: object that counts the requests; None: they are not counted."""
        self._app = make_app(
            routes, authenticator, authorizer, counts, debugging_handlers=listen.debugging_handlers
        )
        self._idle_seconds = listen.idle_seconds
        self.listener = Listener(
            flag="port",
            address=listen.address,
            port=listen.port,
            limits=ConnectionLimits.within_descriptors(MAX_CONNECTIONS, share=4),
            tls=tls.context,
            handshake_seconds=listen.handshake_seconds,
        )
        self._runner: web.AppRunner | None = None

    @property
    def port(self) -> int:
        """Port on which the server listens; before `start`, the configured port."""
        return self.listener.port

    async def start(self) -> None:
        """Listen on the address and port. Raises InvalidConfig, which names the flag, if that fails."""
        self._runner = web.AppRunner(
            self._app,
            handle_signals=False,
            access_log=None,
            handler_cancellation=True,
            shutdown_timeout=0.5,
            keepalive_timeout=self._idle_seconds,
            max_line_size=MAX_LINE_BYTES,
            max_field_size=MAX_FIELD_BYTES,
            logger=_silent(),
        )
        await self._runner.setup()
        assert self._runner.server is not None
        try:
            await self.listener.start(self._runner.server)
        except InvalidConfig:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Stop listening and close all connections, including open streams."""
        await self.listener.stop()
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()


def make_app(
    routes: Iterable[KubeletRoute],
    authenticator: Authenticator,
    authorizer: Authorizer,
    counts: HttpCounts | None = None,
    *,
    debugging_handlers: bool = True,
) -> web.Application:
    """Make the web application of the kubelet's API; `KubeletServer` serves it. Parameters: as there."""
    routes = tuple(routes)
    subresources: dict[web.AbstractRoute, tuple[str, ...]] = {}

    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.version < HttpVersion10:
            return plain("malformed HTTP version", 400)
        refusal = await _refusal(
            request, subresources.get(request.match_info.route, (PROXY,)), authenticator, authorizer
        )
        if refusal is not None:
            return refusal
        is_upgrade = "Upgrade" in request.headers
        try:
            return await handler(request)
        except web.HTTPException as error:
            cut_if_started(request, error)
            return web.Response(status=error.status, text=error.text, headers=_kept(error))
        except (ConnectionResetError, asyncio.CancelledError):
            raise
        except TimeoutError as error:
            cut_if_started(request, error)
            return failure(TimedOut("the runtime did not answer in time"), is_upgrade=is_upgrade)
        except Exception as error:  # noqa: BLE001 - root of a request's task
            cut_if_started(request, error)
            return failure(error, is_upgrade=is_upgrade)

    counter = counting(counts or HttpCounts(), "readwrite", (route.path for route in routes))
    app = web.Application(middlewares=[counter, guard], client_max_size=MAX_BODY_BYTES)
    app.on_response_prepare.append(note_start)
    for route in routes:
        handler = route.handler if debugging_handlers or not route.is_debugging else _disabled
        resource = app.router.add_resource(route.path)
        for method in route.methods:
            subresources[resource.add_route(method, handler)] = route.subresources
    return app


async def _refusal(
    request: web.Request, subresources: tuple[str, ...], authenticator: Authenticator, authorizer: Authorizer
) -> web.Response | None:
    """Authenticate and authorize a request. Returns the response that refuses it; None if it is allowed.

    `subresources`: the user needs a right on one of these.
    """
    user = await authenticator.user_of(request)
    refusal = await refusal_of(user, VERBS.get(request.method, ""), subresources, authorizer)
    if refusal is None:
        return None
    status, message = refusal
    return plain(message, status)


def _kept(error: web.HTTPException) -> dict[str, str]:
    """Return the headers of an HTTP error that the client needs: allowed methods, accepted stream protocols."""
    return {
        name: value
        for name, value in error.headers.items()
        if name in ("Allow", "X-Accepted-Stream-Protocol-Versions")
    }


def _silent() -> logging.Logger:
    logger = logging.Logger("kubelet-api", logging.CRITICAL + 1)
    logger.addHandler(logging.NullHandler())
    return logger


async def _disabled(_request: web.Request) -> web.StreamResponse:
    return plain("Debug endpoints are disabled.", 405)
