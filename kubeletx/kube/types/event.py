"""The Event object, as ``kubectl get events`` shows it. Source: core/v1 Event."""

from __future__ import annotations

from datetime import datetime

from .meta import ApiStruct, ListMeta, ObjectMeta, ObjectReference, constant, cut_to_seconds


class EventSource(ApiStruct, frozen=True, kw_only=True):
    """Component and node that reported the event."""

    component: str | None = None
    host: str | None = None


class Event(ApiStruct, frozen=True, kw_only=True):
    """Report of something that happened to `involved_object`. `type`: Normal or Warning.

    If the same thing happens again, `count` and `last_timestamp` of the event are updated instead of creating
    another event. `event_time` has microseconds.
    """

    api_version: str = constant("v1")
    kind: str = constant("Event")
    metadata: ObjectMeta = ObjectMeta()
    involved_object: ObjectReference = ObjectReference()
    reason: str | None = None
    message: str | None = None
    source: EventSource = EventSource()
    first_timestamp: datetime | None = None
    last_timestamp: datetime | None = None
    count: int | None = None
    type: str | None = None
    event_time: datetime | None = None
    action: str | None = None
    reporting_component: str | None = None
    reporting_instance: str | None = None

    def __post_init__(self) -> None:
        cut_to_seconds(self, "first_timestamp", "last_timestamp")


class EventList(ApiStruct, frozen=True, kw_only=True):
    """A list of events."""

    api_version: str = constant("v1")
    kind: str = constant("EventList")
    metadata: ListMeta = ListMeta()
    items: tuple[Event, ...] = ()
