"""Log of the agent: one line per event on standard error, as text or JSON."""

from __future__ import annotations

import logging
import sys
from typing import Any

import structlog


def set_up_logs(format: str = "text", *, is_verbose: bool = False) -> None:
    """Configure structlog. `format`: text or json. `is_verbose`: with debug messages."""
    renderer: Any = structlog.processors.JSONRenderer(sort_keys=False)
    if format == "text":
        renderer = structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), sort_keys=False, pad_event_to=0)
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG if is_verbose else logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
