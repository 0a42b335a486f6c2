"""`GuardedCalls`: runs the code of one runtime's plugin so that no fault of it gets further than the call.

    plugin raises                          the caller gets
    a KubeletxError                        the same error
    lost connection, no such socket        Unavailable
    TimeoutError                           TimedOut
    anything else, SystemExit too          Internal with reason PluginError, and the file and line in the message
    nothing, but returns a wrong value     Internal with reason PluginError; see `checked`

asyncio ends the event loop when SystemExit or KeyboardInterrupt leaves a task, so they are caught here, in the task of
the call. An unexpected exception is logged with file and line, and at debug level with its traceback, once in
`QUIET_SECONDS` for each method, class of exception and line. Notes about values are limited in the same way.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable
from types import CoroutineType
from typing import Any, Generic, NoReturn, TypeVar, cast

import structlog

from kubeletx.api import Channel, Internal, KubeletxError, Session, TimedOut, Unavailable, names

from ..plugins.failures import is_no_answer, limited, message_of, place_of, words_of
from .checked import CHECKS, BrokenAnswer
from .shapes import describe

log = structlog.get_logger(__name__)
T = TypeVar("T")

QUIET_SECONDS = 600.0
_MOST_PLACES = 256


class GuardedCalls:
    """Calls methods of one runtime's plugin.

    `plugin`: its distribution and version, such as ``kubeletx-containerd 0.1.0``; empty if unknown. `package`: its
    Python package, to find its lines in tracebacks. `now_ns`, `monotonic`: the present time.
    """

    def __init__(
        self,
        runtime: str,
        *,
        plugin: str = "",
        package: str = "",
        now_ns: Callable[[], int] = time.time_ns,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._runtime = runtime
        self._plugin = plugin
        self._package = package
        self._now_ns = now_ns
        self._monotonic = monotonic
        self._logged: dict[Hashable, float] = {}
        self.label = f"runtime {runtime} ({plugin})" if plugin else f"runtime {runtime}"
        """Name of the runtime and its plugin, with which every message of this object begins."""

    async def call(self, method: str, start: Callable[[], Awaitable[T]], asked: str | None = None) -> T:
        """Call `start`, await its result, check it by the rule for `method`, and return it.

        `asked`: id of the object that the call is about. Raises only KubeletxError and CancelledError.
        """
        task = asyncio.current_task()
        try:
            awaitable = start()
            if type(awaitable) is not CoroutineType and not inspect.isawaitable(awaitable):
                raise self._broken(
                    method, f"returned {describe(awaitable)} and not a coroutine; define it with async def"
                )
            result = await awaitable
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            if isinstance(error, GeneratorExit) and not _is_running(task):
                raise  # not from the plugin: the coroutine of this call is being closed
            self.reraise(method, error)
        return self.checked(method, result, asked)

    def run(self, method: str, function: Callable[[], T]) -> T:
        """Call a plain function of the plugin, check its result by the rule for `method`, and return it."""
        try:
            result = function()
        except BaseException as error:  # noqa: BLE001 - `reraise` raises it
            self.reraise(method, error)
        return self.checked(method, result)

    def stream(
        self, method: str, start: Callable[[], AsyncIterator[T]], wrong: Callable[[Any], str]
    ) -> GuardedStream[T]:
        """Call `start`, and return its items, except items for which `wrong` returns a sentence.

        Raises KubeletxError; so does the stream, and CancelledError.
        """
        try:
            items: Any = start()
        except BaseException as error:  # noqa: BLE001 - as above
            self.reraise(method, error)
        if not hasattr(items, "__anext__"):
            if inspect.iscoroutine(items):
                items.close()
            raise self._broken(method, f"returned {describe(items)}; must be an asynchronous iterator")
        return GuardedStream(self, method, items, wrong)

    def failed(self, method: str, error: BaseException) -> KubeletxError:
        """Return the error for an exception that `method` raised; log the exception if it is a fault of the plugin."""
        if isinstance(error, KubeletxError):
            return limited(error)
        words = words_of(error)
        if isinstance(error, TimeoutError):
            return TimedOut(f"{self.label}: {method}: {words if message_of(error) else 'timed out'}")
        if is_no_answer(error):
            return Unavailable(f"{self.label}: {method}: {words}")
        place = place_of(error, self._package)
        if self._is_new((method, type(error).__name__, place)):
            fields = {"runtime": self._runtime, "plugin": self._plugin, "method": method}
            log.warning("Plugin raised an unexpected exception", **fields, err=words, place=place)
            log.debug("Traceback of the plugin's exception", **fields, exc_info=error)
        text = f"{self.label}: {method} raised {words}"
        return Internal(f"{text} at {place}" if place else text, reason=names.PLUGIN_ERROR)

    def note(self, method: str, problem: str, kind: str = "") -> None:
        """Log that a value from the plugin was left out or corrected, once for each `kind`."""
        if self._is_new((method, kind)):
            log.warning(
                "Plugin returned a wrong value",
                runtime=self._runtime,
                plugin=self._plugin,
                method=method,
                err=f"{self.label}: {method} {problem}",
            )

    def checked(self, method: str, result: T, asked: str | None = None) -> T:
        """Return the result of `method` after its check, which may correct it. Raises Internal for a wrong one."""
        check = CHECKS.get(method)
        if check is None:
            return result
        notes: list[str] = []
        try:
            answer = check(result, asked, self._now_ns(), notes)
        except BrokenAnswer as error:
            raise self._broken(method, str(error)) from None
        except Exception as error:  # a look at the value runs code of the plugin, such as a property
            raise self.failed(method, error) from error
        if notes:
            more = f" ({len(notes)} problems in this answer)" if len(notes) > 1 else ""
            self.note(method, f"{notes[0]}{more}", "answer")
        if method in _STREAMED and isinstance(answer, Session):
            return cast("T", GuardedSession(self, answer))
        return cast("T", answer)

    def reraise(self, method: str, error: BaseException) -> NoReturn:
        """Raise the error for an exception that `method` raised, as `failed` returns it."""
        raised = self.failed(method, error)
        if raised is error:
            raise raised
        raise raised from error

    # --- private ---

    def _broken(self, method: str, problem: str) -> Internal:
        return Internal(f"{self.label}: {method} {problem}", reason=names.PLUGIN_ERROR)

    def _is_new(self, key: Hashable) -> bool:
        now = self._monotonic()
        last = self._logged.get(key)
        if last is not None and now - last < QUIET_SECONDS:
            return False
        self._logged.pop(key, None)
        if len(self._logged) >= _MOST_PLACES:
            del self._logged[next(iter(self._logged))]
        self._logged[key] = now
        return True


class GuardedStream(Generic[T]):
    """Asynchronous iterator over the items of a plugin's stream; raises only KubeletxError and CancelledError."""

    def __init__(
        self, calls: GuardedCalls, method: str, items: AsyncIterator[T], wrong: Callable[[Any], str]
    ) -> None:
        self._calls = calls
        self._method = method
        self._items = items
        self._wrong = wrong

    def __aiter__(self) -> AsyncIterator[T]:
        return self

    async def __anext__(self) -> T:
        task = asyncio.current_task()
        while True:
            try:
                item = await self._items.__anext__()
            except (StopAsyncIteration, asyncio.CancelledError):
                raise
            except BaseException as error:
                if isinstance(error, GeneratorExit) and not _is_running(task):
                    raise
                self._calls.reraise(self._method, error)
            problem = self._wrong(item)
            if not problem:
                return item
            self._calls.note(self._method, problem, "item")
            await asyncio.sleep(0)  # a stream of nothing but wrong items must not occupy the event loop

    async def aclose(self) -> None:
        """Close the plugin's stream. Raises KubeletxError."""
        close = getattr(self._items, "aclose", None)
        if close is not None:
            await self._calls.call(f"{self._method}.aclose", close)


_STREAMED = frozenset({"exec", "attach", "port_forward"})


def _is_running(task: asyncio.Task[Any] | None) -> bool:
    """Return True if `task` is the one that runs now, and not one whose coroutine is being closed from outside."""
    try:
        return task is not None and asyncio.current_task() is task
    except RuntimeError:  # no event loop runs
        return False


class GuardedSession:
    """A plugin's session of exec, attach or port-forward that raises only KubeletxError and CancelledError."""

    def __init__(self, calls: GuardedCalls, session: Session) -> None:
        self._calls = calls
        self._session = session

    def output(self) -> AsyncIterator[tuple[Channel, bytes]]:
        return self._calls.stream("Session.output", self._session.output, _wrong_output)

    async def write(self, data: bytes) -> None:
        await self._calls.call("Session.write", lambda: self._session.write(data))

    async def close_stdin(self) -> None:
        await self._calls.call("Session.close_stdin", self._session.close_stdin)

    async def resize(self, width: int, height: int) -> None:
        await self._calls.call("Session.resize", lambda: self._session.resize(width, height))

    async def wait(self) -> int:
        return await self._calls.call("Session.wait", self._session.wait)

    async def close(self) -> None:
        await self._calls.call("Session.close", self._session.close)


def _wrong_output(item: Any) -> str:
    is_pair = isinstance(item, tuple) and len(item) == 2 and item[0] in (Channel.STDOUT, Channel.STDERR)
    if is_pair and isinstance(item[1], bytes | bytearray | memoryview):
        return ""
    return f"yielded {describe(item)}; must be a pair of STDOUT or STDERR and bytes"
