"""``/logs/``: the files below /var/log of the node, as a kubelet serves them (``kubectl get --raw .../proxy/logs/``).

The answer for a directory is a page of links. A symbolic link that leads out of /var/log answers 404, unlike in a
kubelet, since pods may be allowed to write to /var/log. If queries are enabled, ``query=SERVICE`` reads the service's
log from the journal, or from its file if it does not write to the journal (`node_log_query`). Source: kubelet,
InstallSystemLogHandler.
"""

from __future__ import annotations

import asyncio
import contextlib
import html
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final
from urllib.parse import quote

import msgspec
import structlog
from aiohttp import web

from kubeletx.api import Blocking, NotFound, TimedOut
from kubeletx.linux.programs import Ending, run_program

from ..http import finish
from .node_log_files import CHUNK_BYTES, NodeLogFile, open_log
from .node_log_query import (
    ImpossibleQuery,
    LogQuery,
    UnreadableQuery,
    is_in_journal,
    journal_arguments,
    likely_files,
    parse_query,
)
from .route import KubeletRoute, plain

log = structlog.get_logger(__name__)

JOURNAL_SECONDS: Final = 30.0
_UNITS: Final = Ending(most_bytes=16 * 1024 * 1024)
"""Each session and each job of cron is a unit of its own: a year of them has more than one MiB of names."""
ROOT: Final = Path("/var/log")
_TEXT: Final = "text/plain; charset=utf-8"
_BYTES: Final = "application/octet-stream"
_PAGE: Final = '<!doctype html>\n<meta name="viewport" content="width=device-width">\n<pre>\n{links}</pre>\n'


class NodeLogs(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of the routes below ``/logs``.

    `blocking`: runs file operations on threads. `enabled` False: the routes answer 405. `queries` False: queries
    for services are ignored. `root`: directory whose files are served.
    """

    blocking: Blocking
    enabled: bool = True
    queries: bool = False
    root: Path = ROOT


def routes(logs: NodeLogs) -> tuple[KubeletRoute, ...]:
    """Return the routes ``/logs`` and ``/logs/PATH``."""

    async def serve(request: web.Request) -> web.StreamResponse:
        if not logs.enabled:
            return plain("logs endpoint is disabled.", 405)
        path = request.match_info.get("path", "")
        query = _query(request) if logs.queries else None
        if query is not None and query.services:
            return await _services(request, query, logs)
        if query is not None:
            path = query.file
        log_file = await logs.blocking(open_log, logs.root, path)
        if isinstance(log_file, NodeLogFile):
            return await _send(request, log_file, logs.blocking)
        if query is None and not request.path.endswith("/"):
            last = quote(request.path.rpartition("/")[2])
            return web.Response(status=301, headers={"Location": f"{last}/"})
        links = "".join(
            f'<a href="{quote(os.fsencode(name))}">{html.escape(name)}</a>\n' for name in log_file
        )
        page = _PAGE.format(links=links).encode(errors="surrogateescape")  # names of files are any bytes
        return web.Response(body=page, content_type="text/html", charset="utf-8")

    return tuple(
        KubeletRoute(("GET",), path, serve, ("log",), is_debugging=True)
        for path in ("/logs", "/logs/{path:.*}")
    )


def _query(request: web.Request) -> LogQuery | None:
    """Return the request's log query, None if it has none. Raises HTTPBadRequest and HTTPNotAcceptable."""
    try:
        return parse_query(request.query.items())
    except UnreadableQuery as error:
        raise web.HTTPBadRequest(text=str(error)) from error
    except ImpossibleQuery as error:
        raise web.HTTPNotAcceptable(text=str(error)) from error


async def _services(request: web.Request, query: LogQuery, logs: NodeLogs) -> web.StreamResponse:
    units = await _units()
    others = [name for name in query.services if not is_in_journal(name, units)]
    if not others:
        return await _journal(request, query)
    if query.has_options:
        names = " ".join(others)
        return plain(
            f"\noptions present and query resolved to log files for [{names}]\ntry without specifying options\n"
        )
    response = _text_response()
    await response.prepare(request)
    for service in others:
        await _copy(response, service, logs)
    await finish(request, response)
    return response


async def _copy(response: web.StreamResponse, service: str, logs: NodeLogs) -> None:
    for name in likely_files(service):
        with contextlib.suppress(NotFound):
            log_file = await logs.blocking(open_log, logs.root, name)
            if isinstance(log_file, NodeLogFile):
                await _write(response, log_file, logs.blocking)
                return
    await response.write(f"\nlog not found for {service}\n".encode())


async def _units() -> Sequence[str]:
    """Return the names of the systemd units that have logs in the journal; empty if there is no journal."""
    try:
        command = ["journalctl", "--field=_SYSTEMD_UNIT"]
        result = await run_program(command, seconds=JOURNAL_SECONDS, ending=_UNITS)
    except (OSError, TimedOut) as error:
        log.debug("Found no journal", err=str(error))
        return ()
    if result.exit_code != 0:
        log.debug("Found no journal", err=result.text)
        return ()
    return [line for line in result.stdout.decode(errors="replace").split("\n") if line]


async def _journal(request: web.Request, query: LogQuery) -> web.StreamResponse:
    """Send journalctl's output. The process ends when the client disconnects, or after `JOURNAL_SECONDS`."""
    process = await asyncio.create_subprocess_exec(
        "journalctl",
        *journal_arguments(query),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
    )
    assert process.stdout is not None
    response = _text_response()
    try:
        await response.prepare(request)
        with contextlib.suppress(TimeoutError):  # the output until then is the answer
            async with asyncio.timeout(JOURNAL_SECONDS):
                while piece := await process.stdout.read(CHUNK_BYTES):
                    await response.write(piece)
    finally:
        with contextlib.suppress(ProcessLookupError):  # journalctl has ended by itself
            process.kill()
        await process.wait()
    await finish(request, response)  # only now: a client that has its answer may close the connection at once
    return response


def _text_response() -> web.StreamResponse:
    return web.StreamResponse(headers={"Content-Type": _TEXT, "X-Content-Type-Options": "nosniff"})


async def _send(request: web.Request, file: NodeLogFile, blocking: Blocking) -> web.StreamResponse:
    try:
        piece = await blocking(file.read)
        response = _text_response()
        if b"\0" in piece[:512]:
            response.headers["Content-Type"] = _BYTES
        await response.prepare(request)
        await response.write(piece)
        await _write(response, file, blocking)
        await finish(request, response)
        return response
    finally:
        file.close()


async def _write(response: web.StreamResponse, file: NodeLogFile, blocking: Blocking) -> None:
    """Send the rest of the file, then close it."""
    try:
        while piece := await blocking(file.read):
            await response.write(piece)
    finally:
        file.close()
