"""Wire format: frames, and the signatures of the contract's methods.

A frame is a length (4 bytes, big endian) and one msgpack value. Arguments and results are encoded by the types
that the protocols declare, so no signature is repeated.
"""

from __future__ import annotations

import enum
import inspect
import sys
import types
from collections.abc import AsyncIterator, Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

import msgspec

from kubeletx.api import Internal, KubeletxError, Session, StreamUrl

LARGEST_FRAME = 256 * 1024 * 1024
WINDOW = 32
"""Items of one stream that may be unread."""


class Call(msgspec.Struct, frozen=True, tag="call", array_like=True):
    """Frame: a call that expects an answer. `target`: name of the called object."""

    id: int
    target: str
    method: str
    args: msgspec.Raw


class Note(msgspec.Struct, frozen=True, tag="note", array_like=True):
    """Frame: a one-way message, without an answer. `target`: name of the receiving object."""

    target: str
    method: str
    args: msgspec.Raw


class Answer(msgspec.Struct, frozen=True, tag="answer", array_like=True):
    """Frame: the result of a call; for a stream, its end."""

    id: int
    value: msgspec.Raw


class Failure(msgspec.Struct, frozen=True, tag="failure", array_like=True):
    """Frame: the error of a call. `classes`: module:name of the error's class and bases. `state`: its attributes."""

    id: int
    classes: tuple[str, ...]
    state: dict[str, Any]


class Item(msgspec.Struct, frozen=True, tag="item", array_like=True):
    """Frame: one item of a stream, or one progress report of a call."""

    id: int
    value: msgspec.Raw


class Credit(msgspec.Struct, frozen=True, tag="credit", array_like=True):
    """Frame: the reader of a stream permits `count` more items."""

    id: int
    count: int


class Cancel(msgspec.Struct, frozen=True, tag="cancel", array_like=True):
    """Frame: cancel a call whose caller no longer waits."""

    id: int


Frame = Call | Note | Answer | Failure | Item | Credit | Cancel


class Streamed(msgspec.Struct, frozen=True):
    """Result of a streaming call on the wire: a `StreamUrl`, or the name of a `Session` object on the other side."""

    url: str = ""
    session: str = ""


class Shape(enum.Enum):
    """Kind of a method on the wire: one result, or a stream of items."""

    CALL = "call"
    STREAM = "stream"


class Signature(msgspec.Struct, frozen=True, kw_only=True):
    """Signature of one method on the wire. `result`: type of the result, or of each item of a stream.

    `parameters`, `arguments`: their names and types, in order. `progress`: type of its reports; None without reports.
    """

    shape: Shape
    parameters: tuple[str, ...]
    arguments: Any
    result: Any
    progress: Any = None


@cache
def signatures(protocol: type) -> Mapping[str, Signature]:
    """The methods of a protocol that go over the wire: coroutines and async iterators."""
    found: dict[str, Signature] = {}
    for name, function in vars(protocol).items():
        if name.startswith("_") or not inspect.isfunction(function):
            continue
        hints = get_type_hints(function)
        result = hints.pop("return")
        progress = hints.pop("progress", None)
        is_stream = get_origin(result) is AsyncIterator
        if not is_stream and not inspect.iscoroutinefunction(function):
            continue
        types_ = tuple(hints.values())
        found[name] = Signature(
            shape=Shape.STREAM if is_stream else Shape.CALL,
            parameters=tuple(hints),
            arguments=tuple[types_] if types_ else tuple[()],  # type: ignore[valid-type]
            result=get_args(result)[0] if is_stream else _wire_type(result),
            progress=_reported(progress),
        )
    return found


def encode(value: Any) -> msgspec.Raw:
    """Encode any contract value as msgpack."""
    return msgspec.Raw(msgspec.msgpack.encode(value, enc_hook=_plain))


def decode(data: msgspec.Raw, type_: Any) -> Any:
    """Decode a value. Raises Internal if the other side broke the protocol."""
    try:
        return msgspec.msgpack.decode(data, type=type_)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Internal(f"the plugin's process did not send {type_}: {error}") from error


def failure_of(call_id: int, error: KubeletxError) -> Failure:
    """Convert an error to the frame that reports it."""
    classes = tuple(
        f"{cls.__module__}:{cls.__qualname__}"
        for cls in type(error).__mro__
        if issubclass(cls, KubeletxError)
    )
    state = {k: v for k, v in vars(error).items() if isinstance(v, str | int | float | bool | bytes | None)}
    return Failure(call_id, classes, state)


def error_of(failure: Failure) -> KubeletxError:
    """The error as it was raised, or as its nearest base class that this side can import."""
    for name in failure.classes:
        cls = _known_class(name)
        if cls is not None:
            error = cls.__new__(cls)
            Exception.__init__(error, failure.state.get("message", ""))
            error.__dict__.update({"reason": None, "message": "", **failure.state})
            return error
    return Internal(str(failure.state.get("message", "an error without a class")))


def find_object(name: str) -> Any:
    """Import and return the object named ``module:qualified.name``."""
    import importlib

    module, _, path = name.partition(":")
    found: Any = importlib.import_module(module)
    for part in path.split("."):
        found = getattr(found, part)
    return found


def name_of(thing: Any) -> str:
    """Name by which another process can import a class or function. Raises LookupError if there is none."""
    name = f"{getattr(thing, '__module__', '')}:{getattr(thing, '__qualname__', '')}"
    try:
        found = find_object(name)
    except (ImportError, AttributeError, ValueError) as error:
        raise LookupError(f"{thing!r} cannot be imported by name") from error
    if found is not thing:
        raise LookupError(f"{thing!r} is not what {name} stands for")
    return name


def _known_class(name: str) -> type[KubeletxError] | None:
    module, _, path = name.partition(":")
    found: Any = sys.modules.get(module)
    for part in path.split("."):
        found = getattr(found, part, None)
    return found if isinstance(found, type) and issubclass(found, KubeletxError) else None


def _wire_type(result: Any) -> Any:
    return Streamed if set(_options(result)) & {Session, StreamUrl} else result


def _reported(progress: Any) -> Any:
    for option in _options(progress):
        if get_origin(option) is Callable or "Callable" in str(get_origin(option)):
            return get_args(option)[0][0]
    return None


def _options(type_: Any) -> tuple[Any, ...]:
    return get_args(type_) if get_origin(type_) in (Union, types.UnionType) else (type_,)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Path):
        return str(value)
    # msgspec asks its hooks to refuse a type with this error.
    raise NotImplementedError(f"{type(value).__name__} is not a contract value")
