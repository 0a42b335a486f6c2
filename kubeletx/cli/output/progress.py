"""Shows the progress of long work as one line on the terminal, which is erased at the end.

docker.io/library/nginx:1.27 unpacking  [==========>         ]   52 %  31.2MB of 60MB  4 s
hibernating pod/web  3 s
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable
from time import monotonic
from typing import Self

import click
import msgspec

from kubeletx.kube.text.human import human_bytes
from kubeletx.server.views import Progress

from ..connection.client import Line
from .screen import is_movable, width_of
from .words import without_control

BAR_WIDTH = 20
REDRAW_SECONDS = 0.2
_ERASE = "\r\x1b[K"


class ProgressLine:
    """Context manager of a progress line on standard error, which a thread draws; without a terminal there is none."""

    def __init__(self, text: str, *, quiet: bool = False) -> None:
        """`text`: shown until `show` gives another one. `quiet`: show nothing."""
        self._shown: tuple[str, int, int | None] = (text, 0, None)
        self._began = monotonic()
        self._lock = threading.Lock()
        self._over = threading.Event()
        wanted = is_movable(sys.stderr) and not quiet
        self._thread = threading.Thread(target=self._draw, daemon=True) if wanted else None

    def __enter__(self) -> Self:
        if self._thread is not None:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join()

    def show(self, text: str, done_bytes: int = 0, total_bytes: int | None = None) -> None:
        """Set what the line shows. `total_bytes` None: not known yet."""
        self._shown = text, done_bytes, total_bytes

    def say(self, message: str) -> None:
        """Print a line on standard output, above the progress line."""
        with self._lock:
            if self._thread is not None:
                click.echo(_ERASE, nl=False, err=True)
            click.echo(message)

    def _draw(self) -> None:
        """Draw the line until the end, cut to the terminal's width so that it never wraps; then erase it."""
        is_over = False
        while not is_over:
            line = progress_text(*self._shown, monotonic() - self._began)
            with self._lock:
                click.echo(_ERASE + line[: (width_of(sys.stderr) or 80) - 1], nl=False, err=True)
            is_over = self._over.wait(REDRAW_SECONDS)
        click.echo(_ERASE, nl=False, err=True)


def show_steps(text: str, lines: Iterable[Line]) -> bool:
    """Print the messages of a drain or removal as they arrive; returns True if it is done. `text`: what goes on."""
    done = False
    with ProgressLine(text) as out:
        for line in lines:
            step = msgspec.json.decode(line.object, type=Progress)
            out.say(step.message)
            done = step.done
    return done


def progress_text(text: str, done_bytes: int, total_bytes: int | None, seconds: float) -> str:
    """Return the progress line, without control characters. `seconds`: time since the work began. Pure."""
    parts = [without_control(text)]
    if total_bytes:
        share = min(1.0, done_bytes / total_bytes)
        bar = ("=" * int(share * BAR_WIDTH) + ">")[:BAR_WIDTH]
        parts += [f"[{bar:<{BAR_WIDTH}}]", f"{int(share * 100):3d} %"]
        parts.append(f"{human_bytes(done_bytes)} of {human_bytes(total_bytes)}")
    elif done_bytes:
        parts.append(human_bytes(done_bytes))
    return "  ".join([*parts, f"{int(seconds)} s"])
