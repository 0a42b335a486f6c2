"""Measures how long plugin code blocks the event loop."""

from __future__ import annotations

import time
import types
from collections.abc import Awaitable, Generator
from typing import Any, TypeVar

import pytest

T = TypeVar("T")

LONGEST_SECONDS = 1.0
"""Longest time in seconds that a step may block the event loop.

The agent logs blocks of 0.1 s or more. The limit of tests is higher, since a busy test machine may be slow.
"""


@types.coroutine
def stepwise(work: Awaitable[T], steps: list[float]) -> Generator[Any, Any, T]:
    """Await `work` and return its result. Measures how long `work` runs between two waits.

    The seconds of each such step are appended to `steps`.
    """
    inner = work.__await__()
    send: Any = None
    error: BaseException | None = None
    while True:
        began = time.perf_counter()
        try:
            waits = inner.send(send) if error is None else inner.throw(error)
        except StopIteration as done:
            result: T = done.value
            return result
        finally:
            steps.append(time.perf_counter() - began)
        send, error = None, None
        try:
            send = yield waits
        except BaseException as raised:  # noqa: BLE001 - handed on to the code under test
            error = raised


async def never_blocks(work: Awaitable[T], what: str) -> T:
    """Await `work` and return its result. Fails the test if `work` blocks the event loop.

    That is the case if it runs longer than `LONGEST_SECONDS` between two waits. `what`: name of the call, for
    the failure message.
    """
    steps: list[float] = []
    result = await stepwise(work, steps)
    if max(steps) > LONGEST_SECONDS:
        pytest.fail(f"{what} held the event loop for {max(steps):.2f} s; use PluginHost.blocking")
    return result
