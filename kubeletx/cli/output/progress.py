"""Shows the progress of long work as one line on the terminal, which is erased at the end.

docker.io/library/nginx:1.27 unpacking  [==========>         ]   52 %  31.2MB of 60MB  4 s
hibernating pod/web  3 s
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Self, TextIO

import click
import msgspec

from kubeletx.kube.text.human import human_bytes
from kubeletx.server.views import Progress

from ..connection.client import Line
from .screen import is_movable
from .words import without_control

BAR_WIDTH = 20
REDRAW_SECONDS = 0.1
TICK_SECONDS = 0.5
_ERASE = "\r\x1b[K"


class ProgressLine:
    """Context manager that shows a progress line on the terminal, and erases it at its end.

    The line is cut to the width of the terminal, so that it never wraps. Without `show`, it is drawn again by a thread,
    so that its time goes on.
    """

    def __init__(
        self,
        out: TextIO | None,
        text: str = "",
        *,
        now: Callable[[], float] = time.monotonic,
        width: Callable[[], int] = lambda: os.get_terminal_size(2).columns,
        tick_seconds: float = TICK_SECONDS,
    ) -> None:
        """`out`: a terminal; None: show nothing. `text`: shown until `show` gives another one.

        `tick_seconds`: interval of the thread's drawings.
        """
        self._out = out
        self._now = now
        self._width = width
        self._began = now()
        self._drawn_at = float("-inf")
        self._shown: tuple[str, int, int | None] = (text, 0, None)
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._tick, args=(tick_seconds,), name="progress", daemon=True)

    def __enter__(self) -> Self:
        if self._out is not None:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._over.set()
        if self._out is not None:
            self._thread.join()
        self._write(_ERASE)

    def show(self, text: str, done_bytes: int = 0, total_bytes: int | None = None) -> None:
        """Draw the line, at most ten times a second. `total_bytes` None: not known yet."""
        self._shown = (text, done_bytes, total_bytes)
        if self._out is not None and self._now() - self._drawn_at >= REDRAW_SECONDS:
            self._draw()

    def say(self, message: str) -> None:
        """Print a line on standard output, above the progress line."""
        with self._lock:
            self._write(_ERASE)
            click.echo(message)

    def _tick(self, seconds: float) -> None:
        while not self._over.wait(seconds):
            self._draw()

    def _draw(self) -> None:
        with self._lock:
            self._drawn_at = self._now()
            line = progress_text(*self._shown, self._drawn_at - self._began)
            self._write(_ERASE + line[: max(0, self._width() - 1)])

    def _write(self, text: str) -> None:
        if self._out is not None:
            self._out.write(text)
            self._out.flush()


def progress(text: str = "", *, quiet: bool = False) -> ProgressLine:
    """Return a progress line on standard error; it shows nothing if that is not a terminal. `quiet`: nothing at all."""
    return ProgressLine(sys.stderr if is_movable(sys.stderr) and not quiet else None, text)


def show_steps(text: str, lines: Iterable[Line]) -> bool:
    """Print the messages of a drain or removal as they arrive; returns True if it is done. `text`: what goes on."""
    done = False
    with progress(text) as out:
        for line in lines:
            step = msgspec.json.decode(line.object, type=Progress)
            out.say(step.message)
            done = step.done
    return done


def progress_text(text: str, done_bytes: int, total_bytes: int | None, seconds: float) -> str:
    """Return the progress line, without control characters. `seconds`: time since the pull began. Pure."""
    parts = [without_control(text)]
    if total_bytes:
        share = min(1.0, max(0.0, done_bytes / total_bytes))
        filled = int(share * BAR_WIDTH)
        bar = "=" * filled + (">" if filled < BAR_WIDTH else "")
        parts += [f"[{bar:<{BAR_WIDTH}}]", f"{int(share * 100):3d} %"]
        parts.append(f"{human_bytes(done_bytes)} of {human_bytes(total_bytes)}")
    elif done_bytes:
        parts.append(human_bytes(done_bytes))
    parts.append(f"{int(seconds)} s")
    return "  ".join(parts)
