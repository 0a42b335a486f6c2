"""Refreshes a table in place on a terminal, and draws sparklines. Elsewhere a table follows the one before."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from time import monotonic, sleep
from typing import NoReturn, TypeVar

import click

from .screen import is_movable, shows

T = TypeVar("T")
_BLOCKS = "▁▂▃▄▅▆▇█", "_.-=+*%#"
_ENTER, _LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"


def keep_showing(fetch: Callable[[], T], draw: Callable[[T], Sequence[str]], seconds: float) -> NoReturn:
    """Show the lines that `draw` makes of what `fetch` returns, at intervals of `seconds`, until an exception.

    On a terminal this is its alternate screen, whose size may change at any time; afterwards the terminal is as before.
    """
    if not is_movable(sys.stdout):
        while True:
            for line in draw(fetch()):
                click.echo(line, color=True)
            sleep(seconds)
            click.echo()
    with _alternate_screen():
        while True:
            value, ends = fetch(), monotonic() + seconds
            is_resized = True
            while is_resized:
                _draw(draw(value))
                left = max(0.0, ends - monotonic())
                is_resized = signal.sigtimedwait({signal.SIGWINCH}, left) is not None


@contextmanager
def _alternate_screen() -> Iterator[None]:
    """Context manager of the alternate screen. SIGTERM interrupts, so that it is left; SIGWINCH is blocked."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGWINCH})
    try:
        sys.stdout.write(_ENTER)
        yield
    finally:
        sys.stdout.write(_LEAVE)
        sys.stdout.flush()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGWINCH})
        signal.signal(signal.SIGTERM, before)


def _draw(lines: Sequence[str]) -> None:
    height = max(1, os.get_terminal_size(sys.stdout.fileno()).lines)
    if len(lines) > height:
        lines = [*lines[: height - 1], f"{len(lines) - height + 1} more lines"]
    sys.stdout.write("\x1b[H" + "\n".join(f"{line}\x1b[K" for line in lines) + "\x1b[J")
    sys.stdout.flush()


def sparkline(values: Sequence[int | None], width: int) -> str:
    """Draw the last `width` values, from 0 to the largest of them; a value that was not measured is a blank."""
    blocks = _BLOCKS[0] if shows(_BLOCKS[0]) else _BLOCKS[1]
    last = values[-width:]
    top = max((value for value in last if value is not None), default=0) or 1
    return "".join(
        " " if value is None else blocks[min(len(blocks) - 1, value * len(blocks) // top)] for value in last
    ).rjust(width)
