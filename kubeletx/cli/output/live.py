"""Refreshes a table in place on a terminal, and draws sparklines. Elsewhere a table follows the one before."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Sequence
from time import sleep
from typing import NoReturn

import click

from .screen import is_movable, shown_as

REFRESH_SECONDS = 2.0
_ENTER, _LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"


def keep_showing(draw: Callable[[], Sequence[str]]) -> NoReturn:
    """Show the lines that `draw` returns, every `REFRESH_SECONDS`, until an exception.

    On a terminal this is its alternate screen; afterwards, also after SIGTERM, the terminal is as before.
    """
    in_place = is_movable(sys.stdout)
    if in_place:
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        click.echo(_ENTER * in_place, nl=False)
        while True:
            lines = draw()
            if in_place:
                height = max(1, os.get_terminal_size(sys.stdout.fileno()).lines)
                if len(lines) > height:
                    lines = [*lines[: height - 1], f"{len(lines) - height + 1} more lines"]
                click.echo("\x1b[H" + "\n".join(f"{line}\x1b[K" for line in lines) + "\x1b[J", nl=False)
            else:
                click.echo("\n".join([*lines, ""]))
            sleep(REFRESH_SECONDS)
    finally:
        click.echo(_LEAVE * in_place, nl=False)


def sparkline(values: Sequence[int | None], width: int) -> str:
    """Draw the last `width` values, from 0 to the largest of them; a value that was not measured is a blank."""
    blocks = shown_as("▁▂▃▄▅▆▇█", "_.-=+*%#")
    last = values[-width:]
    top = max((value for value in last if value is not None), default=0) or 1
    return "".join(
        " " if value is None else blocks[min(len(blocks) - 1, value * len(blocks) // top)] for value in last
    ).rjust(width)
