"""`plugin_call`: awaits a coroutine of a plugin in a frame that shows another thread which call runs.

    event loop's stack   … ─► plugin_call(runtime, method) ─► the plugin's coroutine ─► code that blocks
    watchdog's thread    `find_plugin_call(frame)` finds the frame of `plugin_call` and reads its arguments

The frame is the whole record: a call that does not block costs one more coroutine, about 0.1 µs, and no bookkeeping.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import FrameType
from typing import NamedTuple, TypeVar

T = TypeVar("T")


class PluginCall(NamedTuple):
    """The call of a runtime's plugin that runs on a thread: name of the runtime, and of the method."""

    runtime: str
    method: str


async def plugin_call(runtime: str, method: str, start: Callable[[], Awaitable[T]]) -> T:  # noqa: ARG001 - read by find
    """Return the result of `start`, which calls the plugin of the runtime. Errors pass unchanged."""
    return await start()


def plugin_function(runtime: str, method: str, function: Callable[[], T]) -> T:  # noqa: ARG001 - read by find
    """Return the result of `function`, a plain function of the plugin of the runtime. Errors pass unchanged."""
    return function()


def find_plugin_call(frame: FrameType | None) -> PluginCall | None:
    """Return the call of a plugin that runs in the innermost frames from `frame` outwards; None if there is none.

    May be called on another thread than the one whose frame it is.
    """
    marks = (plugin_call.__code__, plugin_function.__code__)
    while frame is not None:
        if frame.f_code in marks:
            values = frame.f_locals
            return PluginCall(str(values["runtime"]), str(values["method"]))
        frame = frame.f_back
    return None
