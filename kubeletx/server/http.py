"""Shared code of the servers' handlers: JSON bodies, errors as Status, streams of JSON lines.

A stream is a chunked body of lines ``{"type": ..., "object": ...}``. An error after its start is the line
``{"type": "ERROR", "object": <Status>}``, as in a Kubernetes watch.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing, suppress
from typing import Any, TypeVar

import msgspec
import structlog
from aiohttp import web

from kubeletx.api import Internal, InvalidConfig, KubeletxError
from kubeletx.api.text import printable
from kubeletx.kube.types.api_status import Status, failure

from .status import to_status

log = structlog.get_logger(__name__)

T = TypeVar("T")
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
MAX_LINE_BYTES = 1 << 18
"""Limit of a request's first line, which contains the whole command of an exec."""
SLOWEST_SECONDS = 4 * 3600.0
"""Maximum time for a client to read a long body; the same as the kubelet's write timeout."""
LINES = "application/json;stream=watch"
_STARTED = web.RequestKey("started", bool)


def encode(value: Any) -> bytes:
    """Encode plain values and Structs as JSON. Text that is not UTF-8, such as a strange file name, is escaped."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:  # rare, so only a value that failed pays for the copy
        return msgspec.json.encode(_printable(msgspec.to_builtins(value)))


def _printable(value: Any) -> Any:
    match value:
        case str():
            return printable(value)
        case dict():
            return {_printable(key): _printable(inner) for key, inner in value.items()}
        case list() | tuple():
            return [_printable(inner) for inner in value]
        case _:
            return value


def json_response(value: Any, code: int = 200) -> web.Response:
    """Make a JSON response with the HTTP status `code`."""
    return web.Response(body=encode(value), status=code, content_type="application/json")


def error_response(error: KubeletxError) -> web.Response:
    """Make a response for an error: its Status object as JSON, with the HTTP code of that Status."""
    status = to_status(error)
    return json_response(status, status.code)


def failure_of(error: BaseException) -> Status:
    """Convert any error to a Status. One that is no KubeletxError is a bug: it is logged with its traceback."""
    if isinstance(error, KubeletxError):
        return to_status(error)
    log.error("Failed to answer a request", exc_info=error)
    return to_status(Internal(f"internal error: {type(error).__name__}: {error}"))


async def note_start(request: web.Request, _response: web.StreamResponse) -> None:
    """Mark the request as one whose response has begun; `cut_if_started` reads the mark.

    Handler of aiohttp's signal `on_response_prepare`.
    """
    request[_STARTED] = True


def cut_if_started(request: web.Request, error: BaseException) -> None:
    """Cut the connection and raise ConnectionResetError if the response has begun; otherwise do nothing.

    A second response, about `error`, would be read as part of the first.
    """
    if request.get(_STARTED, False):
        status = failure_of(error)
        log.debug("Cut an answer", path=request.path, err=status.message)
        if request.transport is not None:
            request.transport.abort()
        raise ConnectionResetError(status.message) from error


@web.middleware
async def errors_as_status(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Middleware that converts errors of handlers, and aiohttp's 404 for an unknown path, to Status objects.

    Disconnects and aiohttp's other HTTP errors pass unchanged.
    """
    try:
        return await handler(request)
    except KubeletxError as error:
        cut_if_started(request, error)
        return error_response(error)
    except web.HTTPNotFound:
        return json_response(failure(f"no such path: {request.path}", reason="NotFound", code=404), 404)
    except web.HTTPException:
        raise
    except ConnectionResetError:
        raise
    except Exception as error:  # noqa: BLE001 - root of a request's task
        cut_if_started(request, error)
        status = failure_of(error)
        return json_response(status, status.code)


async def read_json(request: web.Request, type_: type[T]) -> T:
    """Decode the JSON body as `type_`; an empty body is read as ``{}``.

    Raises InvalidConfig, whose message says which field does not fit.
    """
    body = await request.read()
    try:
        return msgspec.json.decode(body or b"{}", type=type_)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as err:
        raise InvalidConfig(field="body", problem=str(err), fix="correct the request") from err


def flag(request: web.Request, name: str) -> bool:
    """Return a boolean query parameter: True for ``true`` or ``1``; False if it is absent or has another value."""
    return request.query.get(name, "").lower() in ("1", "true")


def query_seconds(request: web.Request, name: str, default: float) -> float:
    """Return a query parameter in seconds, at least 0. Raises InvalidConfig if it is not a number."""
    text = request.query.get(name, "")
    try:
        return max(0.0, float(text)) if text else default
    except ValueError:
        raise InvalidConfig(field=name, problem=f"{text!r} is not a number", fix="write seconds") from None


async def stream_lines(
    request: web.Request, items: AsyncIterator[Any], kind: Callable[[Any], str] | str | None
) -> web.StreamResponse:
    """Send each item as one line of JSON until the iterator ends or the client disconnects.

    `kind`: the line's `type`, or a function that returns it for an item; None: the item has the fields `type` and
    `object` itself.
    """
    response = web.StreamResponse(headers={"Content-Type": LINES})
    await response.prepare(request)
    async with aclosing(closable(items)) as source:
        try:
            async for item in source:
                await response.write(encode(_line(item, kind)) + b"\n")
        except ConnectionResetError:  # the client has disconnected, as watches usually end
            return response
        except Exception as error:  # noqa: BLE001 - the status line is sent already
            await response.write(msgspec.json.encode({"type": "ERROR", "object": failure_of(error)}) + b"\n")
    await response.write_eof()
    return response


def _line(item: Any, kind: Callable[[Any], str] | str | None) -> Any:
    if kind is None:
        return item
    return {"type": kind if isinstance(kind, str) else kind(item), "object": item}


async def finish(request: web.Request, response: web.StreamResponse) -> None:
    """End a long body, and wait until the client has received it, at most `SLOWEST_SECONDS`.

    Without the wait, the connection would count as idle while a slow client still reads.
    """
    from kubeletx.streaming.idle import wait_sent

    await response.write_eof()
    if request.transport is not None:
        with suppress(TimeoutError):
            async with asyncio.timeout(SLOWEST_SECONDS):
                await wait_sent(request.transport)


async def send_log(
    request: web.Request, lines: AsyncIterator[bytes], *, is_endless: bool, content_type: str = "text/plain"
) -> web.StreamResponse:
    """Send a log as a chunked body.

    If reading the first piece fails, the error is raised, so that the caller can answer with an error code. The
    message of a later error is sent as the last line, as in a kubelet. `is_endless`: the log is followed, so the
    response starts before the first piece is read.
    """
    async with aclosing(closable(lines)) as source:
        first = b"" if is_endless else await anext(source, b"")
        response = web.StreamResponse(headers={"Content-Type": content_type})
        await response.prepare(request)
        if first:
            await response.write(first)
        try:
            async for piece in source:
                await response.write(piece)
        except KubeletxError as error:
            await response.write(f"{error}\n".encode())
    await finish(request, response)
    return response


async def closable(items: AsyncIterator[T]) -> AsyncGenerator[T, None]:
    """Yield from `items`; closing this generator also closes `items` if it is a generator."""
    try:
        async for item in items:
            yield item
    finally:
        close = getattr(items, "aclose", None)
        if close is not None:
            await close()
