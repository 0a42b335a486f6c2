"""`AgentLoop`: the agent's event loop, which a SystemExit or KeyboardInterrupt of a plugin does not end.

asyncio ends the event loop when one of these two leaves a task or a callback. The agent catches them where it calls a
plugin; a task, callback or thread that a plugin starts itself has no such place. Here such an exception is logged with
the plugin's distribution and line, once in `QUIET_SECONDS` for each line, and the loop continues. The cost is one more
Python frame below the loop: tasks and callbacks run the same code as before.

Other exceptions of these tasks, which asyncio reports itself, and exceptions of threads get the same words.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Generator
from types import TracebackType
from typing import Any, TypeVar, cast

import structlog

from kubeletx.runtimes.plugins.failures import words_of

T = TypeVar("T")

log = structlog.get_logger(__name__)

QUIET_SECONDS = 600.0
_MOST_PLACES = 256


class AgentLoop(asyncio.SelectorEventLoop):
    """Event loop of the agent's process. `asyncio.Runner` makes it; a second loop is not needed."""

    def __init__(self) -> None:
        super().__init__()
        self._main: asyncio.Future[Any] | None = None
        self._logged: dict[str, float] = {}
        self.set_exception_handler(self._report)
        self._excepthook, threading.excepthook = threading.excepthook, self._report_thread

    def close(self) -> None:
        """Close the loop, and stop logging the exceptions of threads."""
        threading.excepthook = self._excepthook
        super().close()

    def run_until_complete(self, future: Generator[Any, None, T] | Awaitable[T]) -> T:
        made: Any = future
        main = made if asyncio.isfuture(made) else self.create_task(made, name="event-loop")
        self._main = main
        return cast("T", super().run_until_complete(main))

    def run_forever(self) -> None:
        """Run until `stop` is called, or until the future of `run_until_complete` has ended with an exit of its own."""
        while True:
            try:
                return super().run_forever()
            except (SystemExit, KeyboardInterrupt) as error:
                if self._is_own(error):
                    raise
                self._log("Task or callback raised an exception that ends programs", error)
                if self._main is not None and self._main.done():
                    return None  # its `stop` is lost with the exception

    def _is_own(self, error: BaseException) -> bool:
        """Return True if the exception belongs to the agent: it ended the main future, or SIGINT raised it."""
        main = self._main
        if main is not None and main.done() and not main.cancelled() and main.exception() is error:
            return True
        step = error.__traceback__
        while step is not None and step.tb_next is not None:
            step = step.tb_next
        return step is not None and step.tb_frame.f_globals.get("__name__") == "asyncio.runners"

    def _report(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Log an exception that no code retrieved, if a plugin raised it; else leave it to asyncio."""
        from kubeletx.plugins.installed import origin_of  # here: only a fault needs it

        error = context.get("exception")
        if isinstance(error, BaseException) and origin_of(error)[0] is not None:
            task = context.get("future") or context.get("task")
            name = task.get_name() if isinstance(task, asyncio.Task) else ""
            self._log("Task of a plugin raised an exception", error, name)
        else:
            loop.default_exception_handler(context)

    def _report_thread(self, raised: threading.ExceptHookArgs) -> None:
        if raised.exc_value is not None:
            name = raised.thread.name if raised.thread is not None else ""
            self._log("Thread raised an exception", raised.exc_value, name)

    def _log(self, event: str, error: BaseException, task: str = "") -> None:
        """Log the exception, unless the same one of this line was logged within `QUIET_SECONDS`."""
        from kubeletx.plugins.installed import origin_of

        name, callback = _of_handle(error.__traceback__)
        plugin, place = origin_of(error)
        key = f"{type(error).__name__} {place or callback}"  # asyncio reports an exit of a task a second time
        now = time.monotonic()
        if now - self._logged.get(key, -QUIET_SECONDS) < QUIET_SECONDS:
            return
        if len(self._logged) >= _MOST_PLACES:
            self._logged.clear()
        self._logged[key] = now
        fields = {"plugin": str(plugin or ""), "task": task or name, "place": place or callback}
        log.error(event, **fields, err=words_of(error))
        log.debug("Traceback of the plugin's exception", **fields, exc_info=error)


def _of_handle(step: TracebackType | None) -> tuple[str, str]:
    """Return the name of the task, and the callback if it is none, that the event loop ran; both may be empty."""
    while step is not None:
        handle = step.tb_frame.f_locals.get("self")
        if isinstance(handle, asyncio.Handle):
            callback = getattr(handle, "_callback", None)  # asyncio has no public name for it
            owner = getattr(callback, "__self__", None)
            if isinstance(owner, asyncio.Task):
                return owner.get_name(), ""
            module = getattr(callback, "__module__", "")
            return "", f"{module}.{getattr(callback, '__qualname__', type(callback).__name__)}"
        step = step.tb_next
    return "", ""
