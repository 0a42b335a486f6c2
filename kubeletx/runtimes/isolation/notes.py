"""Notes that every child may send to the agent: events and log lines. Their texts are cut in both processes."""

from __future__ import annotations

from itertools import islice
from typing import Final

import structlog

from kubeletx.api import EventSink
from kubeletx.api.text import printable

from ..plugins.failures import shortened
from .control import EVENTS, LOG, EventNote, EventNotes, LogNote, LogNotes
from .remote import Served

log = structlog.get_logger(__name__)

MOST_FIELDS: Final = 64
_LEVELS = frozenset({"debug", "info", "warning", "error", "critical"})


def agent_objects(events: EventSink | None = None, **owner: str) -> Served:
    """Return a table of objects for a child, with objects for its log lines and events.

    `events`: records the events; None: the child sends none. `owner`: fields of its log lines that name the plugin.
    """
    served = Served(**owner)
    served.put(LOG, _Notes(events, owner), LogNotes)
    if events is not None:
        served.put(EVENTS, _Notes(events, owner), EventNotes)
    return served


class _Notes:
    def __init__(self, events: EventSink | None, owner: dict[str, str]) -> None:
        self._events = events
        self._owner = owner

    def record(self, event: EventNote) -> None:
        assert self._events is not None
        self._events.record(event.ref, type=event.type, reason=event.reason, message=text_of(event.message))

    def write(self, line: LogNote) -> None:
        fields = {
            text_of(name): text_of(value)
            for name, value in islice(line.fields.items(), MOST_FIELDS)
            if name != "event"
        }
        level = line.level if line.level in _LEVELS else "info"
        getattr(log, level)(text_of(line.event), **fields | self._owner)


def text_of(value: object) -> str:
    """Return a text of a log line or event, cut to its limit; empty if it cannot be made."""
    try:
        return printable(shortened(str(value)))
    except Exception:  # noqa: BLE001 - `__str__` is code of the plugin
        return ""
