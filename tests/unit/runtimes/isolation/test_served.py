"""Results of objects that another process calls."""

from __future__ import annotations

from typing import Any, Protocol

from kubeletx.runtimes.isolation.codec import MSGPACK, Encoded
from kubeletx.runtimes.isolation.remote import Served


class Door(Protocol):
    async def close(self) -> None: ...

    async def width(self) -> int: ...


class TalkativeDoor:
    """Its methods return more than the protocol says, as code of a plugin may."""

    async def close(self) -> object:
        return object()

    async def width(self) -> int:
        return 80


async def called(method: str, *, by_name: bool) -> Any:
    async def call(method: str, args: tuple[Any, ...]) -> Any:
        return await getattr(TalkativeDoor(), method)(*args)

    async def emit(item: Any) -> None:
        raise AssertionError(item)

    served = Served()
    served.put("door", TalkativeDoor(), Door, call if by_name else None)
    return await served.serve("door", method, Encoded(MSGPACK, MSGPACK.encode(())), emit)


async def test_only_the_result_that_the_protocol_has_is_sent() -> None:
    for by_name in (False, True):
        assert await called("close", by_name=by_name) is None
        assert await called("width", by_name=by_name) == 80
