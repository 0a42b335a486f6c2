"""`write_log`: writes a log line of a child process to the agent's log."""

from __future__ import annotations

import structlog

from .codec import Encoded
from .control import LogNote

log = structlog.get_logger(__name__)

_LEVELS = frozenset({"debug", "info", "warning", "error", "critical"})


def write_log(args: Encoded, **owner: str) -> None:
    """Write the `LogNote` in `args`. `owner`: fields that name the plugin."""
    (line,) = args.decode(tuple[LogNote])
    fields = {name: value for name, value in line.fields.items() if name != "event"}
    level = line.level if line.level in _LEVELS else "info"
    getattr(log, level)(line.event, **fields | owner)
