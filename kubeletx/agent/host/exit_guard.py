"""`ExitGuard`: a thread that ends the process if it has not ended by itself some time after SIGTERM or SIGINT.

    signal ─► byte on the guard's socket ─► forwarded to the event loop's socket: its signal handlers run as always
                                        └► the guard's limit begins; when it is over: dump of all stacks, exit

The graceful end is unchanged. The guard is needed when the event loop is blocked, or when a coroutine or a thread of a
plugin does not end. It also limits the end of an agent that failed (`begin`).
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import structlog

from kubeletx.runtimes.handles.abandoned import find_plugin_call

from .dumps import write_dump
from .watchdog import write_line

log = structlog.get_logger(__name__)

LIMIT_SECONDS = 30.0
UNCLEAN_EXIT_CODE: Final = 4
TASKS_SECONDS = 1.0
_ENDING = frozenset((signal.SIGTERM, signal.SIGINT))
_BEGIN = 0
"""A byte that begins the limit, and that the event loop ignores."""


class ExitGuard:
    """Ends the process `seconds` after SIGTERM, SIGINT or `begin`. Create and call it on the main thread.

    `root`: the agent's root directory, for the dump. `code`: exit code if the guard ends the process. `end`: ends the
    process with an exit code.
    """

    def __init__(self, seconds: float, root: Path, end: Callable[[int], object] = os._exit) -> None:
        self._seconds = seconds
        self._root = root
        self._end = end
        self.code = UNCLEAN_EXIT_CODE
        self._main = threading.get_ident()
        self._exit_functions = atexit._ncallbacks()
        self._reader, self._writer = socket.socketpair()
        self._writer.setblocking(False)
        self._loop_fd = self._loop_socket = -1
        self._thread = threading.Thread(target=self._watch, name="exit-guard", daemon=True)
        self._thread.start()

    def watch_signals(self) -> None:
        """Receive the process's signals from now on, and forward them to the event loop.

        Call it after the last `add_signal_handler` of the event loop, which would undo it.
        """
        self._loop_fd = signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        if self._loop_fd >= 0:
            self._loop_socket = os.dup(self._loop_fd)  # a copy stays valid when the loop closes its own

    def begin(self) -> None:
        self._writer.send(bytes([_BEGIN]))

    def finish(self) -> None:
        """Close the guard, unless the interpreter will wait for threads or exit functions; their end has the limit too."""
        waited_for = [
            thread
            for thread in threading.enumerate()
            if not thread.daemon and thread is not threading.main_thread()
        ]
        if not waited_for and atexit._ncallbacks() <= self._exit_functions:
            self.close()

    def close(self) -> None:
        """End the guard, and give signals back to the event loop."""
        if self._loop_socket >= 0:
            with contextlib.suppress(OSError):  # the loop is closed; it has taken its own socket away
                signal.set_wakeup_fd(-1)
                signal.set_wakeup_fd(self._loop_fd)
        self._writer.close()
        self._thread.join()
        if self._loop_socket >= 0:
            os.close(self._loop_socket)
        self._reader.close()

    async def end_tasks(self) -> None:
        """Cancel all other tasks of the event loop; end the process with `code` if one of them does not end.

        `asyncio.run` would never return in that case.
        """
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        left = (await asyncio.wait(tasks, timeout=TASKS_SECONDS))[1] if tasks else set()
        if left:
            names = ",".join(sorted(task.get_name() for task in left))
            log.warning("Ended with tasks that swallow their cancellation", tasks=names)
            self._end(self.code)

    def _watch(self) -> None:
        deadline: float | None = None
        while True:
            self._reader.settimeout(None if deadline is None else max(deadline - time.monotonic(), 0.001))
            try:
                signals = self._reader.recv(64)
            except TimeoutError:
                return self._give_up()
            if not signals:
                return None  # closed
            self._forward(signals)
            if deadline is None and any(byte == _BEGIN or byte in _ENDING for byte in signals):
                deadline = time.monotonic() + self._seconds

    def _forward(self, signals: bytes) -> None:
        if self._loop_socket < 0:
            return
        try:
            os.write(self._loop_socket, signals)
        except OSError:  # the loop is closed, or its socket is full, which wakes it too
            return

    def _give_up(self) -> None:
        call = find_plugin_call(sys._current_frames().get(self._main))
        reason = f"reason: the agent did not end within {self._seconds:g} s"
        lines = [
            reason,
            f"runtime: {call.runtime if call else 'none'}",
            f"method: {call.method if call else 'none'}",
        ]
        dump = write_dump(self._root, "stop", lines)
        write_line(
            lambda: log.error(
                "Ended the agent at its limit",
                elapsed_seconds=self._seconds,
                runtime=call.runtime if call else None,
                method=call.method if call else None,
                dump=str(dump or ""),
            )
        )
        self._end(self.code)
