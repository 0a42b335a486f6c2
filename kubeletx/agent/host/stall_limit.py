"""`StallLimit`: ends an agent that a plugin blocks for too long, so that its next start isolates that plugin.

A call that blocks the event loop's thread cannot be interrupted from outside. The watchdog's thread therefore writes a
dump of all stacks and a note about the runtime, and ends the process. The service manager starts it again. Pods
continue to run in the meantime. Nothing is ended if no plugin's call of a runtime blocks, or if the runtime has a note
already: another start would not help then.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import structlog

from kubeletx.runtimes.stall_notes import StallNote, StallNotes

from .dumps import write_dump
from .watchdog import LoopStall, write_line

log = structlog.get_logger(__name__)

RESTART: Final = "restart"
LOG: Final = "log"
ACTIONS: Final = (RESTART, LOG)
"""Values of ``kubeletx.pluginStallAction``: end the agent so that its next start isolates the runtime, or only log."""
STALLED_EXIT_CODE: Final = 3


class StallLimit:
    """Acts on a stall that has reached the limit; called on the watchdog's thread.

    `root`: the agent's root directory. `action`: one of `ACTIONS`. `end`: ends the process with an exit code.
    """

    def __init__(self, root: Path, action: str = RESTART, end: Callable[[int], object] = os._exit) -> None:
        self._root = root
        self._action = action
        self._end = end

    def __call__(self, stall: LoopStall) -> None:
        """Write a dump; end the process if the action is `RESTART` and a start with isolation can help."""
        dump = write_dump(self._root, "stall", _lines(stall))
        shown = {**stall.fields(), "dump": str(dump or "")}
        if self._action == RESTART and self._note(stall, str(dump or "")):
            write_line(
                lambda: log.error("Plugin blocked the agent; restarting to isolate its runtime", **shown)
            )
            self._end(STALLED_EXIT_CODE)
            return
        write_line(lambda: log.error("Event loop blocked for too long", **shown))

    def _note(self, stall: LoopStall, dump: str) -> bool:
        """Write the note about the runtime; return False if there is no runtime, a note already, or no space."""
        if stall.call is None:
            return False
        notes = StallNotes(self._root)
        if stall.call.runtime in notes.load():
            return False
        note = StallNote(method=stall.call.method, seconds=stall.seconds, at=datetime.now(UTC), dump=dump)
        try:
            notes.put(stall.call.runtime, note)
        except OSError as error:
            text = f"{error.filename}: {error.strerror}"
            write_line(lambda: log.error("Failed to note a runtime that blocks", err=text))
            return False
        return True


def _lines(stall: LoopStall) -> list[str]:
    call = stall.call
    return [
        f"reason: the event loop is blocked since {stall.seconds:.1f} s",
        f"runtime: {call.runtime if call is not None else 'none'}",
        f"method: {call.method if call is not None else 'none'}",
        f"task: {stall.task or 'none'}",
    ]
