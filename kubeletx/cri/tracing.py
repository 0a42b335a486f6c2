"""The span in which a call to a runtime is made; the agent sets it while it traces the start of a pod."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from functools import partial
from typing import Any, Final, TypeVar

import msgspec

T = TypeVar("T")


class CurrentSpan(msgspec.Struct, frozen=True, kw_only=True):
    """The span in which the current task works.

    `call`: makes a call in a child span of the given name. `traceparent`: header for calls to other programs. Source: W3C
    Trace Context.
    """

    call: Callable[[str, Callable[[], Awaitable[Any]]], Awaitable[Any]]
    traceparent: str


CURRENT_SPAN: Final[ContextVar[CurrentSpan | None]] = ContextVar("current_span", default=None)


def in_span(name: str, start: Callable[[], Awaitable[T]]) -> Callable[[], Awaitable[T]]:
    """Return a function that calls `start` in a child of the current span; `start` itself if there is none."""
    span = CURRENT_SPAN.get()
    return start if span is None else partial(span.call, name, start)
