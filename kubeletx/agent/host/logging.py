"""Sets up the agent's log: one line per event on standard error, as text or JSON.

Lines of text for the journal are sent to it with their fields (`journal`).
A line that cannot be written, for example to a closed pipe, is lost; the agent continues.
"""

from __future__ import annotations

import contextlib
import logging
import sys
from functools import partial
from pathlib import Path
from typing import Any, TextIO, cast

import structlog

from .journal import SOCKET, JournalLogger, is_connected

DEBUG_VERBOSITY = 4
_LONGEST = 65_536
_LOUD = structlog.make_filtering_bound_logger(logging.DEBUG)
_QUIET = structlog.make_filtering_bound_logger(logging.INFO)


def set_up_logging(format: str = "text", verbosity: int = 0, journal: Path = SOCKET) -> None:
    """Configure structlog, and pass warnings of the standard library's loggers, which dependencies use, to it.

    `format`: text or json. `verbosity`: 4 and more shows debug messages (the kubelet's --v). `journal`: socket to which
    text goes if standard error is connected to the journal.
    """
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        _drop_empty,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        _shorten,
    ]
    factory: Any = structlog.WriteLoggerFactory(file=cast("TextIO", _Tolerant(sys.stderr)))
    text = structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), sort_keys=False, pad_event_to=0)
    if format == "json":
        renderer: Any = structlog.processors.JSONRenderer(sort_keys=False)
    elif is_connected(sys.stderr):
        renderer, logger = partial(_for_journal, text), JournalLogger(journal)
        factory = lambda *_: logger  # noqa: E731
    else:
        renderer = text
    structlog.configure(
        processors=[*shared, renderer],
        wrapper_class=_switch(type("Logger", (_LOUD,), {}), verbosity),
        logger_factory=factory,
        cache_logger_on_first_use=True,
    )
    root = logging.getLogger()
    root.handlers[:] = [_Bridge()]
    root.setLevel(logging.WARNING)


def set_verbosity(verbosity: int) -> None:
    """Change the log verbosity, also of existing loggers: 4 and more shows debug messages, less hides them."""
    _switch(structlog.get_config()["wrapper_class"], verbosity)


def _switch(logger: Any, verbosity: int) -> Any:
    """Give the logger class `logger` the methods for this verbosity, and return the class.

    Existing loggers change too, since they look up their methods at each call.
    """
    source = _LOUD if verbosity >= DEBUG_VERBOSITY else _QUIET
    for name in ("debug", "adebug", "is_enabled_for", "get_effective_level"):
        if hasattr(source, name):  # the last two came with structlog 25
            setattr(logger, name, getattr(source, name))
    return logger


def _for_journal(
    text: Any, logger: Any, name: str, event: dict[str, Any]
) -> tuple[tuple[str, dict[str, Any]], dict[str, Any]]:
    """Return the arguments of `JournalLogger.msg`. The journal has its own times and priorities."""
    event.pop("timestamp")
    shown = {key: value for key, value in event.items() if key != "level"}
    return (text(logger, name, shown), event), {}


class _Tolerant:
    """A text file whose write errors are ignored."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError):  # ENOSPC or EPIPE: a lost line must not stop the agent
            self._file.write(text)
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError):
            self._file.flush()


class _Bridge(logging.Handler):
    """A logging handler that passes records of other libraries to structlog."""

    def emit(self, record: logging.LogRecord) -> None:
        log = structlog.get_logger(record.name)
        error = record.exc_info[1] if record.exc_info else None
        log.log(record.levelno, record.getMessage(), library=record.name, err=str(error) if error else None)


def _shorten(_logger: Any, _name: str, event: dict[str, Any]) -> dict[str, Any]:
    """Keep the end of texts that are very long, such as the traceback of an exception with such a message."""
    return {
        key: value[-_LONGEST:] if isinstance(value, str) and len(value) > _LONGEST else value
        for key, value in event.items()
    }


def _drop_empty(_logger: Any, _name: str, event: dict[str, Any]) -> dict[str, Any]:
    """Remove fields without a value from the log line."""
    return {key: value for key, value in event.items() if value is not None and value != ""}
