"""One-way messages of a child process: what the agent does with them, also with wrong ones."""

from __future__ import annotations

from typing import Any

from structlog.testing import capture_logs

from kubeletx.api import ObjectRef
from kubeletx.runtimes.isolation.codec import MSGPACK, Encoded
from kubeletx.runtimes.isolation.control import EventNote, LogNote
from kubeletx.runtimes.isolation.notes import agent_objects
from kubeletx.testing import FakeEventSink


def encoded(*args: Any) -> Encoded:
    return Encoded(MSGPACK, MSGPACK.encode(args))


def test_events_and_log_lines_are_recorded_with_their_owner() -> None:
    sink = FakeEventSink()
    served = agent_objects(sink, runtime="a")
    ref = ObjectRef(kind="Node", name="n")
    with capture_logs() as lines:
        served.note(
            "events", "record", encoded(EventNote(ref=ref, type="Normal", reason="Asked", message="x"))
        )
        served.note(
            "log", "write", encoded(LogNote(level="loud", event="Opened", fields={"event": "y", "n": "1"}))
        )
    assert sink.reasons() == ["Asked"]
    assert lines == [{"event": "Opened", "log_level": "info", "n": "1", "runtime": "a"}]


def test_wrong_messages_are_logged_or_ignored() -> None:
    sink = FakeEventSink()
    served = agent_objects(sink, runtime="a")
    with capture_logs() as lines:
        served.note("events", "record", encoded(1))
        served.note("events", "write", encoded())
        served.note("network", "attach", encoded())
    assert sink.reasons() == []
    assert [(line["event"], line["runtime"]) for line in lines] == [
        ("Ignored message of a plugin's process", "a")
    ]
