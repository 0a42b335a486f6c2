"""`AbandonableCalls`: makes calls of one runtime's plugin that the agent can give up at their deadline.

A coroutine may catch its cancellation and continue. Each call therefore runs in a task of its own. A call that has not
ended some time after its cancellation is abandoned: the caller continues, the task is left running, and its
result is ignored. Abandoned calls are counted. A method of which `MOST_OF_METHOD` abandoned calls still run is not
called again; a runtime with more than `MOST_ABANDONED` of them since it was opened is not ready.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import FrameType
from typing import NamedTuple, TypeVar

import structlog

from kubeletx.api import KubeletxError, Unavailable

T = TypeVar("T")


class PluginCall(NamedTuple):
    """The call of a runtime's plugin that runs on a thread: name of the runtime, and of the method."""

    runtime: str
    method: str


async def plugin_call(runtime: str, method: str, start: Callable[[], Awaitable[T]]) -> T:  # noqa: ARG001 - read by find
    """Return the result of `start`, which calls the plugin of the runtime. Errors pass unchanged.

    Its frame is the record of the call: the watchdog's thread finds it on the event loop's stack (`find_plugin_call`) and
    reads its arguments. A call that does not block costs one more coroutine, about 0.1 µs, and no bookkeeping.
    """
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


log = structlog.get_logger(__name__)

MOST_OF_METHOD = 8
MOST_ABANDONED = 8


class AbandonableCalls:
    """Makes the calls to the plugin of the runtime `runtime`, and counts abandoned calls that still run.

    `grace_seconds`: time that a cancelled call has for its clean-up.
    """

    def __init__(self, runtime: str, grace_seconds: float) -> None:
        self._runtime = runtime
        self._grace_seconds = grace_seconds
        self._left: dict[str, set[asyncio.Task[object]]] = {}
        self.on_end: Callable[[], None] = lambda: None
        """Called when an abandoned call ends: it may have taken effect after the runtime's state was read."""
        self._before_opening: set[asyncio.Task[object]] = set()

    @property
    def running(self) -> dict[str, int]:
        """Number of abandoned calls that still run, by method; methods without any are left out."""
        return {method: len(tasks) for method, tasks in self._left.items() if tasks}

    def problem(self) -> str:
        """Return why the runtime is not ready because of abandoned calls; empty if they do not prevent it."""
        if not self._left:
            return ""
        number = sum(len(tasks - self._before_opening) for tasks in self._left.values())
        if number <= MOST_ABANDONED:
            return ""
        methods = ", ".join(f"{method} {count}" for method, count in sorted(self.running.items()))
        return f"{number} calls did not end at their deadlines and still run ({methods}); restart the agent to end them"

    def opened(self) -> None:
        """Count from zero for `problem`, since the runtime was opened again."""
        self._before_opening = {task for tasks in self._left.values() for task in tasks}

    def refusal(self, method: str) -> KubeletxError | None:
        """Return the error to raise instead of calling the method; None if it may be called."""
        if not self._left or len(self._left.get(method, ())) < MOST_OF_METHOD:
            return None
        return Unavailable(
            f"runtime {self._runtime}: {method} was not called: {MOST_OF_METHOD} earlier calls have not ended since "
            "their deadlines; restart the agent to end them"
        )

    async def run(self, method: str, start: Callable[[], Awaitable[T]]) -> T:
        """Call `start` in a task of its own; return its result, or raise its error.

        `start` raises only KubeletxError and CancelledError, as `GuardedCalls` does: asyncio ends the event loop when
        SystemExit leaves a task. When the caller is cancelled, the call is cancelled too, and abandoned if it does not
        end. Raises Unavailable without a call if too many earlier calls of the method still run.
        """
        if (refusal := self.refusal(method)) is not None:
            raise refusal
        task = asyncio.create_task(
            plugin_call(self._runtime, method, start), name=f"runtime-{self._runtime}-{method}"
        )
        try:
            # Without the shield a cancellation would wait for a plugin that swallows it; `end` waits for a
            # limited time.
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            await self.end(method, task)
            raise

    async def end(self, method: str, task: asyncio.Task[object]) -> None:
        """Cancel the task of a call, and wait until it ends; after the grace period abandon it."""
        task.cancel()
        try:
            await asyncio.wait((task,), timeout=self._grace_seconds)
        finally:
            if not task.done():
                self._abandon(method, task)
            elif not task.cancelled():
                task.exception()  # marks it as retrieved: the result of a cancelled call is not used

    def _abandon(self, method: str, task: asyncio.Task[object]) -> None:
        left = self._left.setdefault(method, set())
        if not left:
            log.warning(
                "Abandoned call of plugin", runtime=self._runtime, method=method, task=task.get_name()
            )
        left.add(task)
        task.add_done_callback(lambda done: self._ended(method, done))

    def _ended(self, method: str, task: asyncio.Task[object]) -> None:
        if not task.cancelled():
            task.exception()
        self._left[method].discard(task)
        self._before_opening.discard(task)
        self.on_end()
