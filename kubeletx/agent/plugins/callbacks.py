"""`Callbacks`: every call of plugin code, except runtimes, goes through it.

Each call runs in a task of its own, named after the registration and the callback, so that a stall of the event loop
names it (`host.watchdog`). It has a deadline on the injected clock; its duration and its failures are counted. No
exception of the plugin leaves its task, not even SystemExit: the caller gets a KubeletxError and the registration
becomes degraded until a call succeeds.

A call that does not end after its cancellation is left running; the callback is not called again before it has ended.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import msgspec
import structlog

from kubeletx.api import Clock, Internal, KubeletxError, TimedOut, Unavailable
from kubeletx.api.counting import LabelledDurations

from .registrations import Registration

T = TypeVar("T")

log = structlog.get_logger(__name__)

LONGEST_LINE = 1024
STOP_SECONDS = 5.0
READY = "ready"
DEGRADED = "degraded"
FAILED = "failed"


class PluginState(msgspec.Struct, frozen=True):
    """State of one registration of a plugin.

    `word`: ready; degraded: its last call failed; failed: it could not be made. `reason`: why.
    """

    word: str = READY
    reason: str = ""


class CallbackCounts:
    """Durations and failures of the calls to all registrations, by (plugin, registration, callback)."""

    def __init__(self) -> None:
        self.durations = LabelledDurations()
        self.errors: Counter[tuple[str, str, str, str]] = Counter()
        """Errors with one more label: error or timeout."""


class _Raised(msgspec.Struct, frozen=True):
    error: BaseException


class Callbacks:
    """Calls the plugin code of one registration, and keeps the registration's state."""

    def __init__(self, registration: Registration, clock: Clock, counts: CallbackCounts) -> None:
        self.registration = registration
        self._clock = clock
        self._counts = counts
        self._left: dict[str, set[asyncio.Task[Any]]] = {}
        """Calls that still run after their deadline, by callback."""
        self.state = PluginState()

    def make(self, make: Callable[[], T]) -> T | None:
        """Call the plugin's factory; returns None if it fails, with the reason in `state`."""
        began = time.perf_counter()
        try:
            made = make()
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - foreign code may raise anything, SystemExit too
            self._count("factory", began, "error")
            self.state = PluginState(FAILED, str(self._translated("factory", error)))
            log.error("Plugin factory failed", **self._who("factory"), err=self.state.reason)
            return None
        self._count("factory", began)
        return made

    async def call(
        self, callback: str, start: Callable[[], Awaitable[T]], *, seconds: float, most_left: int = 1
    ) -> T:
        """Make one call. Raises TimedOut after `seconds`, and the plugin's own error as KubeletxError.

        `start` runs in the guarded task: what it does with the plugin's result may fail too. `most_left`: while this
        many earlier calls still run after their deadline, Unavailable is raised instead.
        """
        left = self._left.get(callback, set())
        if len(left) >= most_left:
            problem = "an earlier call has not ended since its deadline"
            raise self._degraded(callback, Unavailable(self._text(callback, problem)))
        began = time.perf_counter()
        task = asyncio.create_task(_outcome(start), name=self.task_name(callback))
        if not await self._ended(task, seconds):
            task.cancel()
            self._left.setdefault(callback, set()).add(task)
            task.add_done_callback(self._left[callback].discard)
            self._count(callback, began, "timeout")
            raise self._degraded(
                callback, TimedOut(self._text(callback, f"did not return within {seconds:g} s"))
            )
        outcome = task.result()
        if isinstance(outcome, _Raised):
            self._count(callback, began, "error")
            raise self._degraded(callback, self._translated(callback, outcome.error)) from outcome.error
        self._count(callback, began)
        self.recovered(callback)
        return outcome

    async def run(self, callback: str, start: Callable[[], Awaitable[None]]) -> None:
        """Run a callback without a deadline until it ends. Raises the plugin's error as KubeletxError.

        When the caller is cancelled, it waits at most `STOP_SECONDS` for the end.
        """
        began = time.perf_counter()
        task = asyncio.create_task(_outcome(start), name=self.task_name(callback))
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError:
            task.cancel()
            await asyncio.wait((task,), timeout=STOP_SECONDS)
            raise
        outcome = task.result()
        self._count(callback, began, "error" if isinstance(outcome, _Raised) else "")
        if isinstance(outcome, _Raised):
            raise self._degraded(callback, self._translated(callback, outcome.error)) from outcome.error

    def not_made(self) -> KubeletxError:
        """The error for a call to an object whose factory failed."""
        return Unavailable(self.state.reason)

    def task_name(self, callback: str) -> str:
        """Name of a call's task; the log shows it if the call holds the event loop."""
        return f"plugin {self.registration.plugin}: {self.registration.label} {callback}"

    def failed(self, callback: str, error: BaseException) -> KubeletxError:
        """Count a failure outside of `call`, and set the state to degraded; returns the error as a KubeletxError."""
        self._counts.errors[(*self._labels(callback), "error")] += 1
        return self._degraded(callback, self._translated(callback, error))

    def recovered(self, callback: str) -> None:
        """Set the state to ready after a success; logged if it was degraded."""
        if self.state.word == DEGRADED:
            log.info("Plugin works again", **self._who(callback))
        self.state = PluginState()

    async def _ended(self, task: asyncio.Task[Any], seconds: float) -> bool:
        """Wait for the task; returns True if it ended, False at the deadline.

        Cancels the task when the caller is cancelled.
        """
        expired: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        forget = self._clock.call_at(self._clock.monotonic() + seconds, expired.cancel)
        try:
            await asyncio.wait((task, expired), return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            task.cancel()
            raise
        finally:
            forget()
            expired.cancel()
        return task.done()

    def _degraded(self, callback: str, error: KubeletxError) -> KubeletxError:
        state = PluginState(DEGRADED, str(error))
        if state != self.state:
            log.warning("Plugin callback failed", **self._who(callback), err=str(error))
        self.state = state
        return error

    def _translated(self, callback: str, error: BaseException) -> KubeletxError:
        if isinstance(error, KubeletxError):
            return error
        text = self._text(callback, _words(error))
        return Unavailable(text) if isinstance(error, OSError | EOFError) else Internal(text)

    def _text(self, callback: str, problem: str) -> str:
        return f"{self.registration.label}: {callback}: {problem}"

    def _labels(self, callback: str) -> tuple[str, str, str]:
        return self.registration.plugin, self.registration.name, callback

    def _who(self, callback: str) -> dict[str, str]:
        return {
            "plugin": self.registration.plugin,
            "registration": self.registration.label,
            "callback": callback,
        }

    def _count(self, callback: str, began: float, failure: str = "") -> None:
        labels = self._labels(callback)
        self._counts.durations.add(time.perf_counter() - began, *labels)
        if failure:
            self._counts.errors[(*labels, failure)] += 1


async def _outcome(start: Callable[[], Awaitable[T]]) -> T | _Raised:
    """Return the call's result, or its error as a value. Only a cancellation by the host is raised."""
    try:
        return await start()
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        return _Raised(error)
    except BaseException as error:  # noqa: BLE001 - SystemExit in a task would end the agent
        return _Raised(error)


def expect(result: Any, wanted: type[T]) -> T:
    """Return the result if it has the wanted type; else raise TypeError."""
    if isinstance(result, wanted):
        return result
    raise TypeError(f"returned {type(result).__name__}, not {wanted.__name__}")


def line(text: object) -> str:
    """The text as one line of bounded length."""
    return " ".join(str(text).split())[:LONGEST_LINE]


def _words(error: BaseException) -> str:
    """Type and message of an exception; a plugin's exception may fail to give one."""
    name = type(error).__name__
    try:
        return f"{name}: {error}" if str(error) else name
    except Exception:  # noqa: BLE001 - __str__ is foreign code
        return name
