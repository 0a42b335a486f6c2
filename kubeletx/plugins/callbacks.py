"""`Callbacks`: makes every call of plugin code, except calls to runtimes.

Each call runs in its own task, with a deadline. The task is named after the registration and the callback, so that the
log of a stall of the event loop names them (`kubeletx.agent.host.watchdog`). Durations and failures are counted. Every
exception of the plugin, even SystemExit, is caught: the caller gets a KubeletxError, and the registration is degraded
until a call succeeds.

A call that does not end at its deadline is cancelled. If it does not end then either, it is left running, and the
callback is called again only after it has ended (see `most_left` of `Callbacks.call`).
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final, TypeVar

import msgspec
import structlog

from kubeletx.api import Clock, Internal, KubeletxError, TimedOut, Unavailable
from kubeletx.api.counting import LabelledDurations, Metric, counter, gauge, histogram
from kubeletx.api.names import PLUGIN_ERROR
from kubeletx.api.waiting import first_of
from kubeletx.runtimes.plugins.failures import (
    LONGEST_TEXT,
    is_no_answer,
    limited,
    package_of,
    place_of,
    words_of,
)

from .registrations import Registration

T = TypeVar("T")

log = structlog.get_logger(__name__)

LONGEST_LINE = 1024
STOP_SECONDS: Final = 1.0
MOST_LEFT = 8
"""While this many reviews of one admission check still run after their deadline, it is not called again."""
READY = "ready"
DEGRADED = "degraded"
FAILED = "failed"
UNCONFIGURED = "unconfigured"


class PluginState(msgspec.Struct, frozen=True):
    """State of one registration of a plugin.

    `word`: ready; degraded: its last call failed; failed: the plugin's factory failed; unconfigured: it is not used.
    `reason`: the error, or why it is not used; empty if ready.
    """

    word: str = READY
    reason: str = ""


class CallbackCounts:
    """Durations and failures of the calls to all registrations, by (plugin, registration, callback)."""

    def __init__(self) -> None:
        self.durations = LabelledDurations()
        self.errors: Counter[tuple[str, str, str, str]] = Counter()
        """Numbers of failures, by (plugin, registration, callback, error or timeout)."""
        self.abandoned: Counter[tuple[str, str, str]] = Counter()
        """Numbers of calls that were cancelled and still run, by (plugin, registration, callback)."""

    def metrics(self) -> Iterator[Metric]:
        """Yield the metrics of these counts."""
        labels = ("plugin", "registration", "callback")
        yield histogram(
            "kubeletx_plugin_callback_duration_seconds",
            "Duration of calls to plugins, except calls to runtimes.",
            self.durations,
            *labels,
        )
        yield counter(
            "kubeletx_plugin_callback_errors_total",
            "Number of such calls that failed.",
            self.errors,
            *labels,
            "reason",
        )
        yield gauge(
            "kubeletx_plugin_abandoned_calls",
            "Number of such calls that were cancelled at their deadlines and still run.",
            self.abandoned,
            *labels,
        )


class Raised(msgspec.Struct, frozen=True):
    """Outcome of plugin code that raised `error`."""

    error: BaseException


class Callbacks:
    """Calls the plugin code of one registration, such as a health check, and keeps the registration's state."""

    def __init__(
        self,
        registration: Registration,
        clock: Clock,
        counts: CallbackCounts,
        *,
        stop_seconds: float = STOP_SECONDS,
    ) -> None:
        """`stop_seconds`: time that a cancelled call has to end; then it is abandoned."""
        self.registration = registration
        self.stop_seconds = stop_seconds
        self._clock = clock
        self._counts = counts
        self._left: dict[str, set[asyncio.Task[Any]]] = {}
        """Tasks of calls that were cancelled and still run, by callback."""
        self.state = PluginState()
        self.is_made = False
        self._made: Any = None

    def make(self, make: Callable[[], Any]) -> None:
        """Call the plugin's factory, and keep what it returns. If it fails, `state` is failed, with the reason."""
        began = time.perf_counter()
        try:
            made = make()
        except BaseException as error:
            self._count("factory", began, "error")
            self.state = PluginState(FAILED, str(self._translated("factory", error)))
            log.error("Plugin factory failed", **self._who("factory"), err=self.state.reason)
            if not isinstance(error, KubeletxError):
                log.debug("Traceback of the plugin's exception", **self._who("factory"), exc_info=error)
        else:
            self._count("factory", began)
            self.keep(made)

    def keep(self, made: Any) -> None:
        """Keep the object to call, such as the proxy of one in a child process."""
        self._made, self.is_made = made, True

    @property
    def made(self) -> Any:
        """The object to call. Raises Unavailable if the factory failed."""
        if not self.is_made:
            raise Unavailable(self.state.reason)
        return self._made

    async def call(
        self, callback: str, start: Callable[[], Awaitable[T]], *, seconds: float, most_left: int = 1
    ) -> T:
        """Call `start` in a task of its own, and return its result.

        Raises TimedOut after `seconds`, and any error of `start` as a KubeletxError. `callback`: name of the callback
        in counters and errors. `start`: calls the plugin, and may check the plugin's result. `most_left`: while this
        many earlier calls of the callback still run after their deadline, raise Unavailable and do not call it.
        """
        left = self._left.get(callback, set())
        if len(left) >= most_left:
            problem = "an earlier call has not ended since its deadline"
            raise self._degraded(callback, Unavailable(self._text(callback, problem)))
        began = time.perf_counter()
        task = asyncio.create_task(outcome_of(start), name=self.task_name(callback))
        if not await self._ended(callback, task, seconds):
            self._leave(callback, task)
            self._count(callback, began, "timeout")
            raise self._degraded(
                callback, TimedOut(self._text(callback, f"did not return within {seconds:g} s"))
            )
        outcome = task.result()
        if isinstance(outcome, Raised):
            self._count(callback, began, "error")
            raise self._failed(callback, outcome.error) from outcome.error
        self._count(callback, began)
        self.recovered(callback)
        return outcome

    async def run(self, callback: str, start: Callable[[], Awaitable[None]]) -> None:
        """Call `start` in a task of its own, without a deadline, until it returns.

        Raises an error of `start` as a KubeletxError. When the caller is cancelled, `start` is cancelled too, and has
        at most `stop_seconds` to end.
        """
        began = time.perf_counter()
        task = asyncio.create_task(outcome_of(start), name=self.task_name(callback))
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError:
            self._leave(callback, task)
            await asyncio.wait((task,), timeout=self.stop_seconds)
            raise
        outcome = task.result()
        self._count(callback, began, "error" if isinstance(outcome, Raised) else "")
        if isinstance(outcome, Raised):
            raise self._failed(callback, outcome.error) from outcome.error

    @property
    def abandoned(self) -> dict[str, int]:
        """Number of cancelled calls that still run, by callback; callbacks without any are left out."""
        return {callback: len(tasks) for callback, tasks in self._left.items() if tasks}

    def task_name(self, callback: str) -> str:
        """Return the name of a call's task; the log shows it if the call blocks the event loop."""
        return f"plugin {self.registration.plugin}: {self.registration.label} {callback}"

    def failed(self, callback: str, error: BaseException) -> KubeletxError:
        """Count a failure that did not occur within `call`, and set the state to degraded.

        Returns the error as a KubeletxError.
        """
        self._counts.errors[(*self._labels(callback), "error")] += 1
        return self._failed(callback, error)

    def recovered(self, callback: str) -> None:
        """Set the state to ready after a success; log it if the state was degraded."""
        if self.state.word == DEGRADED:
            log.info("Plugin works again", **self._who(callback))
        self.state = PluginState()

    def _leave(self, callback: str, task: asyncio.Task[Any]) -> None:
        """Cancel the task of a call, and count it until it ends; log it if it does not end within `stop_seconds`."""
        task.cancel()
        left, labels = self._left.setdefault(callback, set()), self._labels(callback)
        left.add(task)
        self._counts.abandoned[labels] += 1
        late = asyncio.get_running_loop().call_later(self.stop_seconds, self._log_abandoned, callback, task)

        def ended(task: asyncio.Task[Any]) -> None:
            late.cancel()
            left.discard(task)
            self._counts.abandoned[labels] -= 1

        task.add_done_callback(ended)

    def _log_abandoned(self, callback: str, task: asyncio.Task[Any]) -> None:
        log.warning("Abandoned call of plugin", **self._who(callback), task=task.get_name())

    async def _ended(self, callback: str, task: asyncio.Task[Any], seconds: float) -> bool:
        """Wait until the task ends, and return True; return False after `seconds`.

        Cancels the task when the caller is cancelled.
        """
        try:
            await first_of("plugin deadline", task, self._clock.sleep(seconds))
        except asyncio.CancelledError:
            self._leave(callback, task)
            raise
        return task.done()

    def _degraded(self, callback: str, error: KubeletxError) -> KubeletxError:
        state = PluginState(DEGRADED, str(error))
        if state != self.state:
            log.warning("Plugin callback failed", **self._who(callback), err=str(error))
        self.state = state
        return error

    def _failed(self, callback: str, error: BaseException) -> KubeletxError:
        """Set the state to degraded, and return the error as a KubeletxError.

        A new error that the plugin did not translate is logged with its traceback, at debug level.
        """
        translated = self._translated(callback, error)
        if not isinstance(error, KubeletxError) and str(translated) != self.state.reason:
            log.debug("Traceback of the plugin's exception", **self._who(callback), exc_info=error)
        return self._degraded(callback, translated)

    def _translated(self, callback: str, error: BaseException) -> KubeletxError:
        return translated(self.registration, callback, error)

    def _text(self, callback: str, problem: str) -> str:
        return problem_text(self.registration, callback, problem)

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


def translated(registration: Registration, callback: str, error: BaseException) -> KubeletxError:
    """Return an exception of plugin code as a KubeletxError, with the registration and the plugin's line."""
    if isinstance(error, KubeletxError):
        return limited(error)
    text = problem_text(registration, callback, words_of(error))
    if isinstance(error, TimeoutError):
        return TimedOut(text)
    if is_no_answer(error):
        return Unavailable(text)
    place = place_of(error, package_of(registration.factory.__module__))
    return Internal(f"{text} at {place}" if place else text, reason=PLUGIN_ERROR)


def problem_text(registration: Registration, callback: str, problem: str) -> str:
    """Return the message for a problem of one callback, such as ``panel/load: show: ValueError``."""
    return f"{registration.label}: {callback}: {problem}"


async def outcome_of(start: Callable[[], Awaitable[T]]) -> T | Raised:
    """Return the result of `start`, or its error as a value; raise only a cancellation by the agent."""
    try:
        return await start()
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        return Raised(error)
    except BaseException as error:  # noqa: BLE001 - SystemExit in a task would end the agent
        return Raised(error)


def expect(result: Any, wanted: type[T]) -> T:
    """Return the result of a plugin's call; raise TypeError unless it is an instance of `wanted`."""
    if isinstance(result, wanted):
        return result
    raise TypeError(f"returned {type(result).__name__}, not {wanted.__name__}")


def line(text: object) -> str:
    """Return the text as one line of at most `LONGEST_LINE` characters."""
    return " ".join(str(text)[:LONGEST_TEXT].split())[:LONGEST_LINE]
