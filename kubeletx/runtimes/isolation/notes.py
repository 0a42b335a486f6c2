"""`write_log`: writes a log line of a child process to the agent's log. Its texts are cut in both processes."""

from __future__ import annotations

from itertools import islice
from typing import Final

import structlog

from kubeletx.api.text import printable

from ..plugins.failures import shortened
from .codec import Encoded
from .control import LogNote

log = structlog.get_logger(__name__)

MOST_FIELDS: Final = 64
_LEVELS = frozenset({"debug", "info", "warning", "error", "critical"})


def write_log(args: Encoded, **owner: str) -> None:
    """Write the `LogNote` in `args`. `owner`: fields that name the plugin."""
    (line,) = args.decode(tuple[LogNote])
    fields = {
        text_of(name): text_of(value)
        for name, value in islice(line.fields.items(), MOST_FIELDS)
        if name != "event"
    }
    level = line.level if line.level in _LEVELS else "info"
    getattr(log, level)(text_of(line.event), **fields | owner)


def text_of(value: object) -> str:
    """Return a text of a log line or event, cut to its limit; empty if it cannot be made."""
    try:
        return printable(shortened(str(value)))
    except Exception:  # noqa: BLE001 - `__str__` is code of the plugin
        return ""
