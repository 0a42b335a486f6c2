"""Wire format between agent and child process: frames, and the signatures of the methods that may be called.

A frame is a length (4 bytes, big endian) and one value, encoded by `codec`. docs/plugin-wire.md describes the format
for programs in other languages. Arguments and results are encoded by the types in the method signatures of the protocols
of `kubeletx.api`, so that no signature is written twice.
"""

from __future__ import annotations

import enum
import inspect
import sys
import types
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from functools import cache
from typing import Any, Union, get_args, get_origin, get_type_hints

import msgspec

from kubeletx.api import Internal, KubeletxError, Session, StreamUrl
from kubeletx.api.text import printable

from ..plugins.failures import LONGEST_TEXT, shortened

LARGEST_FRAME = 64 * 1024 * 1024
"""Most bytes of one answer, or another frame: more than a list of all containers of a node has."""
MOST_CALLS = 1000
"""Largest number of calls of the other process that are handled at the same time."""
WINDOW = 32
"""Maximum number of items of one stream that are sent but not read."""


class Call(msgspec.Struct, frozen=True, tag="call", array_like=True):
    """Frame: a call that expects an answer.

    `id`: number of the call, which frames about it repeat. `target`: name of the called object. `args`: encoded
    arguments.
    """

    id: int
    target: str
    method: str
    args: msgspec.Raw


class TracedCall(Call, frozen=True, tag="traced_call", array_like=True):
    """Frame: a call in a span. `traceparent`: see `CurrentSpan`."""

    traceparent: str


class Note(msgspec.Struct, frozen=True, tag="note", array_like=True):
    """Frame: a one-way message, without an answer. `target`: name of the receiving object."""

    target: str
    method: str
    args: msgspec.Raw


class Answer(msgspec.Struct, frozen=True, tag="answer", array_like=True):
    """Frame: the encoded result of a call; for a stream, its end."""

    id: int
    value: msgspec.Raw


class Failure(msgspec.Struct, frozen=True, tag="failure", array_like=True):
    """Frame: the error of a call.

    `classes`: the error's class and its base classes, each as ``module:name``. `state`: the error's attributes.
    """

    id: int
    classes: tuple[str, ...]
    state: dict[str, Any]


class Item(msgspec.Struct, frozen=True, tag="item", array_like=True):
    """Frame: one item of a stream, or one progress report of a call."""

    id: int
    value: msgspec.Raw


class Credit(msgspec.Struct, frozen=True, tag="credit", array_like=True):
    """Frame: the receiver of a stream permits the sender `count` more items."""

    id: int
    count: int


class Cancel(msgspec.Struct, frozen=True, tag="cancel", array_like=True):
    """Frame: cancel a call whose caller no longer waits."""

    id: int


Frame = Call | TracedCall | Note | Answer | Failure | Item | Credit | Cancel


class Streamed(msgspec.Struct, frozen=True):
    """Wire form of the result of exec, attach and similar calls, which return a `StreamUrl` or a `Session`.

    `url`: the URL of the `StreamUrl`; empty for a session. `session`: name under which the `Session` object can be
    called in the process that made it.
    """

    url: str = ""
    session: str = ""


class Shape(enum.Enum):
    """Kind of a method: it returns one result, a stream of items, or nothing and is sent as a one-way message."""

    CALL = "call"
    STREAM = "stream"
    NOTE = "note"


class Signature(msgspec.Struct, frozen=True, kw_only=True):
    """Signature of one method that the other process may call.

    `parameters`: names of the parameters, in order. `arguments`: tuple type of the arguments. `result`: type of the
    result, or of each item of a stream. `progress`: type of the progress reports; None if the method makes none.
    `keywords`: names of the parameters that are keyword-only. `defaults`: default values of parameters, by name.
    """

    shape: Shape
    parameters: tuple[str, ...]
    arguments: Any
    result: Any
    progress: Any = None
    keywords: frozenset[str] = frozenset()
    defaults: Mapping[str, Any] = {}


@cache
def signatures(protocol: type) -> Mapping[str, Signature]:
    """Return the signatures of the protocol's methods by name.

    Plain functions that return a value are left out: their caller cannot wait for another process.
    """
    table: dict[str, Signature] = {}
    for name, function in vars(protocol).items():
        if name.startswith("_") or not inspect.isfunction(function):
            continue
        hints = get_type_hints(function)
        result = hints.pop("return")
        progress = hints.pop("progress", None)
        is_stream = get_origin(result) in (AsyncIterator, AsyncGenerator)
        if inspect.iscoroutinefunction(function):
            shape = Shape.CALL
        elif is_stream:
            shape = Shape.STREAM
        elif result is types.NoneType:
            shape = Shape.NOTE
        else:
            continue
        types_ = tuple(hints.values())
        declared = inspect.signature(function).parameters
        table[name] = Signature(
            shape=shape,
            parameters=tuple(hints),
            arguments=tuple[types_] if types_ else tuple[()],  # type: ignore[valid-type]
            result=get_args(result)[0] if is_stream else _wire_type(result),
            progress=_reported(progress),
            keywords=frozenset(n for n in hints if declared[n].kind is inspect.Parameter.KEYWORD_ONLY),
            defaults={
                n: declared[n].default for n in hints if declared[n].default is not inspect.Parameter.empty
            },
        )
    return table


def failure_of(call_id: int, error: KubeletxError) -> Failure:
    """Convert an error to the frame that reports it to the caller."""
    classes = tuple(
        f"{cls.__module__}:{cls.__qualname__}"
        for cls in type(error).__mro__
        if issubclass(cls, KubeletxError)
    )
    plain = {k: v for k, v in vars(error).items() if isinstance(v, str | int | float | bool | bytes | None)}
    return Failure(call_id, classes, {name: _limited(value) for name, value in plain.items()})


def error_of(failure: Failure) -> KubeletxError:
    """Return the error that a frame reports.

    Its class is the original one or, if this process has not imported that, the nearest base class that it has.
    """
    state = {name: _limited(value) for name, value in failure.state.items()}
    for name in failure.classes:
        cls = _known_class(name)
        if cls is not None:
            error = cls.__new__(cls)
            Exception.__init__(error, state.get("message", ""))
            error.__dict__.update({"reason": None, "message": "", **state})
            return error
    return Internal(str(state.get("message", "an error without a class")))


def _limited(value: Any) -> Any:
    """Return an attribute of an error, cut if it is a text or bytes: the other process may have made it."""
    if isinstance(value, str):
        return printable(shortened(value))
    return value[:LONGEST_TEXT] if isinstance(value, bytes) else value


def find_object(name: str) -> Any:
    """Import and return the object named ``module:qualified.name``."""
    import importlib

    module, _, path = name.partition(":")
    thing: Any = importlib.import_module(module)
    for part in path.split("."):
        thing = getattr(thing, part)
    return thing


def name_of(thing: Any) -> str:
    """Return the name ``module:qualified.name`` by which another process can import a class or function.

    Raises LookupError if it cannot be imported by name.
    """
    name = f"{getattr(thing, '__module__', '')}:{getattr(thing, '__qualname__', '')}"
    try:
        imported = find_object(name)
    except (ImportError, AttributeError, ValueError) as error:
        raise LookupError(f"{thing!r} cannot be imported by name") from error
    if imported is not thing:
        raise LookupError(f"{thing!r} is not what {name} stands for")
    return name


def _known_class(name: str) -> type[KubeletxError] | None:
    module, _, path = name.partition(":")
    thing: Any = sys.modules.get(module)
    for part in path.split("."):
        thing = getattr(thing, part, None)
    return thing if isinstance(thing, type) and issubclass(thing, KubeletxError) else None


def _wire_type(result: Any) -> Any:
    return Streamed if set(options_of(result)) & {Session, StreamUrl} else result


def _reported(progress: Any) -> Any:
    for option in options_of(progress):
        if get_origin(option) is Callable or "Callable" in str(get_origin(option)):
            return get_args(option)[0][0]
    return None


def options_of(type_: Any) -> tuple[Any, ...]:
    """Return the members of a union; a tuple of `type_` alone for another type."""
    return get_args(type_) if get_origin(type_) in (Union, types.UnionType) else (type_,)
