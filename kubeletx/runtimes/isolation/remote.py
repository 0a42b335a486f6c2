"""Calls between objects of two processes.

`remote_class` makes a class with the methods of a protocol, each of which calls an object in the other process.
`Served` is the counterpart: it holds the objects of this process that the other process may call, by name.
"""

from __future__ import annotations

import asyncio
import inspect
import itertools
import types
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import cache
from typing import Any

import msgspec
import structlog

from kubeletx.api import KubeletxError, Session, StreamUrl, Unavailable

from .codec import Encoded
from .peer import Emit
from .wire import Shape, Signature, Streamed, signatures

log = structlog.get_logger(__name__)

_SESSION = "session:"

PeerOf = Callable[[], Any]
"""Returns the `Peer` to the other process, or an object with its methods `call`, `stream` and `note`.

Raises Unavailable while there is none.
"""
Call = Callable[[str, tuple[Any, ...]], Awaitable[Any]]
"""Calls a method of an object: gets its name and arguments, and returns its result."""


@cache
def remote_class(protocol: type) -> Any:
    """Make a class that implements `protocol` by calls to an object in the other process.

    Its constructor takes a `PeerOf` and the name of that object.
    """

    def __init__(self: Any, peer_of: PeerOf, target: str) -> None:  # noqa: N807 - becomes the method
        self._peer_of, self._target = peer_of, target

    members: dict[str, Any] = {"__init__": __init__}
    for name, signature in signatures(protocol).items():
        members[name] = _METHODS[signature.shape](name, signature)
    return type(f"Remote{protocol.__name__}", (), members)


class _Object(msgspec.Struct, frozen=True):
    thing: Any
    protocol: type
    call: Call | None


class Served:
    """Holds the objects that the other process may call, by name. Implements `peer.CallHandler`."""

    def __init__(self, **owner: str) -> None:
        """`owner`: fields of log lines about the other process."""
        self._owner = owner
        self._objects: dict[str, _Object] = {}
        self._numbers = itertools.count(1)

    def put(self, target: str, thing: Any, protocol: type, call: Call | None = None) -> None:
        """Let the other process call the methods of `protocol` on `thing`, under the name `target`.

        The methods of `thing` may also be plain functions. `call`: is called instead of them.
        """
        self._objects[target] = _Object(thing, protocol, call)

    def drop(self, target: str) -> None:
        self._objects.pop(target, None)

    async def serve(self, target: str, method: str, args: Encoded, emit: Emit) -> Any:
        """Call a method of the object named `target`; see `CallHandler.serve`.

        Raises Unavailable if there is no object with this name, as before the child opens its runtime, or its protocol
        does not have the method: NotFound would say that a unit or a sandbox is gone.
        """
        if target.startswith(_SESSION) and method == "close" and target not in self._objects:
            return None  # closing twice is allowed
        try:
            served = self._objects[target]
            signature = signatures(served.protocol)[method]
        except KeyError:
            raise Unavailable(f"no {target}.{method} in this process") from None
        values = args.decode(signature.arguments)
        result = await self._result(served, method, signature, values, emit)
        if served.protocol is Session and method == "close":
            self.drop(target)
        if signature.result is types.NoneType:
            return None  # code of a plugin may return something all the same, which the other process would refuse
        return self._streamed(result) if signature.result is Streamed else result

    async def _result(
        self, served: _Object, method: str, signature: Signature, values: tuple[Any, ...], emit: Emit
    ) -> Any:
        if served.call is not None:
            return await served.call(method, values)
        function = _with_keywords(getattr(served.thing, method), signature)
        if signature.shape is Shape.STREAM:
            await _pump(function(*values), emit)
            return None
        if signature.progress is not None:
            return await _with_progress(function, values, emit)
        result = function(*values)
        return await result if inspect.isawaitable(result) else result

    def note(self, target: str, method: str, args: Encoded) -> None:
        """Pass a one-way message to the object named `target`; see `CallHandler.note`.

        A message for an unknown object or method is ignored; arguments of wrong types are logged.
        """
        served = self._objects.get(target)
        signature = signatures(served.protocol).get(method) if served is not None else None
        if served is None or signature is None or signature.shape is not Shape.NOTE:
            return
        try:
            _with_keywords(getattr(served.thing, method), signature)(*args.decode(signature.arguments))
        except KubeletxError as error:
            log.warning("Ignored message of a plugin's process", **self._owner, err=str(error))

    def _streamed(self, result: Any) -> Streamed:
        if isinstance(result, StreamUrl):
            return Streamed(url=result.url)
        target = f"{_SESSION}{next(self._numbers)}"
        self.put(target, result, Session)
        return Streamed(session=target)


def _with_keywords(function: Callable[..., Any], signature: Signature) -> Callable[..., Any]:
    """Return `function` as a function of positional arguments alone; the keyword-only ones come last."""
    if not signature.keywords:
        return function
    cut = len(signature.parameters) - len(signature.keywords)
    names = signature.parameters[cut:]
    return lambda *values: function(*values[:cut], **dict(zip(names, values[cut:], strict=True)))


async def _pump(items: AsyncIterator[Any], emit: Emit) -> None:
    try:
        async for item in items:
            await emit(item)
    finally:
        close = getattr(items, "aclose", None)
        if close is not None:
            await close()


async def _with_progress(function: Callable[..., Awaitable[Any]], values: tuple[Any, ...], emit: Emit) -> Any:
    """Call `function` with a progress callback, send its reports with `emit`, and return its result.

    A newer report replaces one that is not sent yet, so that a slow receiver does not slow the function.
    """
    latest: list[Any] = []
    wake = asyncio.Event()

    def report(progress: Any) -> None:
        latest[:] = [progress]
        wake.set()

    async def forward() -> None:
        while True:
            await wake.wait()
            wake.clear()
            while latest:
                await emit(latest.pop())

    task = asyncio.create_task(forward(), name="progress")
    try:
        result = await function(*values, report)
        while latest:
            await emit(latest.pop())
        return result
    finally:
        task.cancel()


def _call_method(name: str, signature: Signature) -> Any:
    async def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        peer = self._peer_of()
        progress = kwargs.pop("progress", None)
        if signature.progress is not None and len(args) > len(signature.parameters):
            *args_, progress = args
            args = tuple(args_)
        values = _in_order(signature, args, kwargs)
        listener = (signature.progress, progress) if progress is not None else None
        result = await peer.call(self._target, name, values, signature.result, progress=listener)
        if not isinstance(result, Streamed):
            return result
        return StreamUrl(result.url) if result.url else remote_class(Session)(lambda: peer, result.session)

    call.__name__ = name
    return call


def _stream_method(name: str, signature: Signature) -> Any:
    def stream(self: Any, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        values = _in_order(signature, args, kwargs)
        items: AsyncIterator[Any] = self._peer_of().stream(self._target, name, values, signature.result)
        return items

    stream.__name__ = name
    return stream


def _note_method(name: str, signature: Signature) -> Any:
    def note(self: Any, *args: Any, **kwargs: Any) -> None:
        self._peer_of().note(self._target, name, _in_order(signature, args, kwargs))

    note.__name__ = name
    return note


_METHODS = {Shape.CALL: _call_method, Shape.STREAM: _stream_method, Shape.NOTE: _note_method}


def _in_order(signature: Signature, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    given = {**signature.defaults, **kwargs}
    return (*args, *(given[name] for name in signature.parameters[len(args) :]))
