"""``kubeletx events``."""

from __future__ import annotations

from typing import Any

from kubeletx.kube.types.event import Event
from kubeletx.kube.types.meta import ObjectMeta, ObjectReference
from tests.unit.cli.commands.objects import T0, Run


def event(name: str, type_: str) -> Event:
    return Event(
        metadata=ObjectMeta(name=f"e-{name}", namespace="default"),
        involved_object=ObjectReference(kind="Pod", namespace="default", name=name),
        type=type_,
        reason="Reason",
        last_timestamp=T0,
    )


def test_events_are_chosen_by_object_and_type(agent: Any, kubeletx: Run) -> None:
    agent.backend.events = [event("web", "Normal"), event("db", "Warning")]
    assert kubeletx("events", "-o", "name").stdout == "event/e-web\nevent/e-db\n"
    assert kubeletx("events", "-oname", "--types=warning").stdout == "event/e-db\n"
    assert kubeletx("events", "-oname", "--types=Normal,Warning").stdout.count("\n") == 2
    assert kubeletx("events", "--for", "pods/web", "-o", "name").stdout == "event/e-web\n"
    assert kubeletx("events", "-n", "other").stderr == "No resources found in other namespace.\n"
    assert len(kubeletx("events", "--no-headers").stdout.splitlines()) == 2
    assert kubeletx("events", "--types=Bad").exit_code == 2
