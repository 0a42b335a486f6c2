"""The terminal that tables are printed on: its width, and the colour of a state."""

from __future__ import annotations

import os
import re
import sys
from typing import Final, NamedTuple, TextIO

import click

COLOR: Final = "kubeletx.color"
"""Key of the value of ``--color`` in the meta data of a click context."""
WIDE_COLUMNS: Final = 160

_COLORS: Final = (
    (
        "red",
        r"Error|Err[A-Z]|Fail|BackOff|OOM|Evicted|NotReady|Unreachable|ExitCode|Signal|Orphaned|Crashed|Silent|Lost",
    ),
    (
        "yellow",
        r"Pending|Creating|Initializing|Init:|Terminating|Starting|Preparing|Unknown|Disabled|Paused|Suspended|Warning",
    ),
    ("cyan", r"Standby|Hibernated"),
    ("green", r"Running|Ready|Live|Bound"),
)


class Screen(NamedTuple):
    """Standard output. `width`: columns of the terminal; None if it is none. `colored`: states have colours."""

    width: int | None = None
    colored: bool = False


def screen() -> Screen:
    """Return what standard output is; ``--color``, NO_COLOR, TERM and COLUMNS are respected."""
    context = click.get_current_context(silent=True)
    wanted = context.meta.get(COLOR) if context is not None else None
    is_terminal = sys.stdout.isatty()
    plain = bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"
    colored = wanted == "always" or (wanted != "never" and is_terminal and not plain)
    return Screen(width_of(sys.stdout) if is_terminal else None, colored)


def is_movable(out: TextIO) -> bool:
    """Return True if `out` is a terminal on which text can be replaced."""
    return out.isatty() and os.environ.get("TERM") != "dumb"


def shown_as(text: str, plain: str) -> str:
    """Return `text`; `plain` if standard output cannot encode it."""
    try:
        text.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return plain
    return text


def width_of(out: TextIO) -> int | None:
    """Return the columns of the terminal `out`, or COLUMNS; None if the terminal has no width."""
    given = os.environ.get("COLUMNS", "")
    if given.isdecimal() and int(given):
        return int(given)
    try:
        return os.get_terminal_size(out.fileno()).columns or None
    except OSError:
        return None


def colored(text: str, padded: str) -> str:
    """Return `padded` in the colour of the state `text`; unchanged for a state without a colour."""
    color = next((name for name, pattern in _COLORS if re.search(pattern, text, re.IGNORECASE)), None)
    return click.style(padded, fg=color) if color else padded
