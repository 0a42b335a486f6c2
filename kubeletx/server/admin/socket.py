"""The admin socket: HTTP over the unix socket ``<root-dir>/kubeletx.sock``, for commands such as ``kubeletx get``.

Unary calls answer with JSON, watches and long operations with JSON lines, logs with a chunked body; exec, attach and
port-forward use WebSocket. The handlers, in the ``routes_*`` files, translate requests to calls of `AdminBackend`. The
socket's permissions (0600) are the only access control: a user who can open it may do everything.

At the start, a socket file left by a dead agent is replaced. If an agent answers on the socket, the start is refused.
The new socket is bound under a temporary name, gets its mode, and is then renamed, so that no other user can open it
at any time.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import structlog
from aiohttp import web

from kubeletx.api import AlreadyExists, InvalidConfig
from kubeletx.cri.url import LONGEST_SOCKET_PATH

from ..backend import AdminBackend, PodVerbs
from ..http import MAX_LINE_BYTES, errors_as_status, note_start
from . import (
    routes_agent,
    routes_machines,
    routes_objects,
    routes_pods,
    routes_runtimes,
    routes_sessions,
)
from .tasks import Tasks

log = structlog.get_logger(__name__)

_MAX_BODY = 32 * 1024 * 1024


def make_app(backend: AdminBackend, tasks: Tasks) -> web.Application:
    """Make the web application with all routes of the admin socket; `AdminServer` serves it."""
    app = web.Application(middlewares=[errors_as_status], client_max_size=_MAX_BODY)
    app.on_response_prepare.append(note_start)
    app.add_routes(routes_agent.routes(backend, tasks))
    app.add_routes(routes_pods.routes(backend.pods, backend.standby, backend.objects, tasks))
    app.add_routes(routes_objects.routes(backend.objects, tasks))
    app.add_routes(routes_runtimes.routes(backend.runtimes, tasks))
    app.add_routes(routes_machines.routes(backend.machines, tasks))
    app.add_routes(routes_runtimes.image_routes(backend.images, tasks))
    app.add_routes(routes_sessions.routes(backend.sessions, tasks))
    app.add_routes(stream_routes(backend.pods))
    return app


def stream_routes(backend: PodVerbs) -> Iterable[web.RouteDef]:
    """Return the admin socket's routes of exec, attach and port-forward; the first request imports what serves them."""

    async def exec_(request: web.Request) -> web.StreamResponse:
        from .streams import serve_exec

        return await serve_exec(request, backend)

    async def attach(request: web.Request) -> web.StreamResponse:
        from .streams import serve_attach

        return await serve_attach(request, backend)

    async def port_forward(request: web.Request) -> web.StreamResponse:
        from .streams import serve_port_forward

        return await serve_port_forward(request, backend)

    return (
        web.get("/v1/pods/{namespace}/{name}/exec", exec_),
        web.get("/v1/pods/{namespace}/{name}/attach", attach),
        web.get("/v1/pods/{namespace}/{name}/portforward", port_forward),
    )


class AdminServer:
    """Serves the admin socket from `start` to `stop`."""

    def __init__(self, *, backend: AdminBackend, socket_path: Path) -> None:
        """`socket_path`: path of the socket that `start` makes; its directory must exist."""
        self._backend = backend
        self._path = socket_path
        self._tasks = Tasks()
        self._runner: web.AppRunner | None = None
        self._inode: int | None = None

    async def start(self) -> None:
        """Make the socket and listen on it.

        Raises AlreadyExists if a running agent listens on it, InvalidConfig if it cannot be made.
        """
        listener = await _listen(self._path)
        self._inode = self._path.stat().st_ino
        app = make_app(self._backend, self._tasks)
        self._runner = web.AppRunner(
            app,
            handle_signals=False,
            access_log=None,
            handler_cancellation=True,
            shutdown_timeout=0.5,
            max_line_size=MAX_LINE_BYTES,
        )
        await self._runner.setup()
        await web.SockSite(self._runner, listener).start()
        log.info("Opened admin socket", path=str(self._path))

    async def stop(self) -> None:
        """End all streams, wait for changes in progress, and remove the socket file.

        The file is kept if another agent has replaced it.
        """
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None
        await self._tasks.finish()
        with suppress(FileNotFoundError):
            if self._path.stat().st_ino == self._inode:
                self._path.unlink()


async def _listen(path: Path) -> socket.socket:
    new = path.with_name(path.name + ".new")
    if len(os.fsencode(new)) > LONGEST_SOCKET_PATH:
        raise InvalidConfig(
            field="--root-dir",
            problem=f"'{path}' is too long for a socket ({LONGEST_SOCKET_PATH} bytes at most)",
            fix="choose a shorter directory",
        )
    await _refuse_living(path)
    new.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(str(new))
        new.chmod(0o600)
        listener.listen(128)
        listener.setblocking(False)
        new.rename(path)
    except OSError as err:
        listener.close()
        raise InvalidConfig(
            field="--root-dir",
            problem=f"cannot make socket '{path}': {err.strerror}",
            fix="make the directory writable, or choose another",
        ) from err
    return listener


async def _refuse_living(path: Path) -> None:
    """Raise AlreadyExists if a process listens on the socket."""
    try:
        async with asyncio.timeout(2):
            _, writer = await asyncio.open_unix_connection(str(path))
    except (FileNotFoundError, ConnectionRefusedError):  # no socket, or one that a dead agent left
        return
    except TimeoutError:
        pass  # the backlog is full: a process listens but does not accept
    except OSError:
        return  # not a socket: the rename of the new socket replaces the file
    else:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
    raise AlreadyExists(f"another kubeletx serves {path}; stop it, or give this one its own --root-dir")
