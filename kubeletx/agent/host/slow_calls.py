"""`SlowCalls`: logs an import or factory of a plugin while it lasts, and ends an agent that waits for it for too long.

    0.5 s    the log names the call, the plugin, its distribution and the line, and again after 1, 2, 4 … s
    limit    dump of all stacks, end of the process with exit code 3

The agent cannot interrupt such a call from outside. The mark of the call (see `CallMarkers`) stays when the process
ends, so the next start does not make the call, and the other plugins and runtimes start. Calls of the running agent on
other threads, as by a reload, have a deadline of their own and are only logged.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import structlog

from kubeletx.plugins.settings import PluginLimits
from kubeletx.runtimes.plugins.call_markers import CallMarkers
from kubeletx.runtimes.plugins.identity import PluginIdentity

from .dumps import write_dump
from .stall_limit import RESTART, STALLED_EXIT_CODE
from .watchdog import LOG_SECONDS, write_line

log = structlog.get_logger(__name__)

_LIMITED: Final = ("import", "factory")
"""Calls that end the agent at the limit. For the constructor of a runtime, `StallLimit` isolates the runtime."""


def watched_markers(root: Path, settings: PluginLimits) -> CallMarkers:
    """Return the marker files below `root`, whose calls are watched within the limits of `settings`."""
    return CallMarkers(root, watch=SlowCalls(root, settings.stall_seconds, settings.stall_action).watch)


class SlowCalls:
    """Watches calls of plugin code, each from a thread of its own that exists while the call lasts.

    `root`: the agent's root directory. `limit_seconds`, `action`: ``kubeletx.pluginStallTimeout`` and
    ``kubeletx.pluginStallAction``. `end`: ends the process with an exit code.
    """

    def __init__(
        self,
        root: Path,
        limit_seconds: float,
        action: str,
        end: Callable[[int], object] = os._exit,
        log_seconds: float = LOG_SECONDS,
    ) -> None:
        self._root = root
        self._limit_seconds = limit_seconds
        self._action = action
        self._end = end
        self._log_seconds = log_seconds

    @contextlib.contextmanager
    def watch(self, call: str, name: str, plugin: PluginIdentity, is_marked: bool) -> Iterator[None]:
        """Context of one call; parameters as for `CallMarkers.around`.

        `is_marked`: the call is not repeated after the end of the process, so the process may be ended at the limit.
        """
        ended = threading.Event()
        is_main = threading.current_thread() is threading.main_thread()
        may_end = is_marked and is_main and call in _LIMITED and self._action == RESTART
        caller = threading.get_ident()
        fields = {
            "call": call,
            "plugin": name,
            "distribution": f"{plugin.distribution} {plugin.version}".strip(),
        }
        thread = threading.Thread(
            target=self._follow, args=(ended, caller, fields, may_end), name="slow-call", daemon=True
        )
        thread.start()
        try:
            yield
        finally:
            ended.set()

    def _follow(self, ended: threading.Event, caller: int, fields: dict[str, str], may_end: bool) -> None:
        began, next_line = time.monotonic(), self._log_seconds
        while True:
            until = min(next_line, self._limit_seconds) if may_end else next_line
            if ended.wait(max(until - (time.monotonic() - began), 0.001)):
                break
            seconds = time.monotonic() - began
            shown: dict[str, Any] = {
                **fields,
                "elapsed_seconds": round(seconds, 1),
                "stack": "".join(traceback.format_stack(sys._current_frames().get(caller))[-8:]),
            }
            if seconds >= next_line:
                next_line *= 2
                write_line(partial(log.warning, "Waiting for a plugin", **shown))
            if may_end and seconds >= self._limit_seconds:
                self._give_up(shown)
                return
        if next_line > self._log_seconds:
            elapsed = round(time.monotonic() - began, 1)
            write_line(lambda: log.warning("Waited for a plugin", **fields, elapsed_seconds=elapsed))

    def _give_up(self, shown: dict[str, Any]) -> None:
        lines = [
            f"reason: the agent waited for {shown['call']} of plugin {shown['plugin']}",
            *shown["stack"].split("\n"),
        ]
        dump = str(write_dump(self._root, "plugin", lines) or "")
        write_line(
            lambda: log.error(
                "Plugin held up the start for too long; restarting without it", **shown, dump=dump
            )
        )
        self._end(STALLED_EXIT_CODE)
