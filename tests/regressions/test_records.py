"""What was read back from a runtime, a manifest or the database need not be what the agent once wrote."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from sqlalchemy import insert

from kubeletx.api import (
    InvalidPod,
    ObjectRef,
    PodUid,
    SandboxId,
    SandboxState,
    SandboxSummary,
    UnitId,
    UnitState,
    UnitSummary,
    names,
)
from kubeletx.kube.text.numbers import whole_number
from kubeletx.kube.types.core import ResourceRequirements
from kubeletx.kube.types.meta import ObjectMeta, is_older
from kubeletx.node.event_table import EVENTS
from kubeletx.node.events import EventRecorder
from kubeletx.pods.model.sizes import read_resources
from kubeletx.pods.plan.restart_all import generation_of
from kubeletx.pods.records import _load, _pods
from kubeletx.pods.recovery import orphan_pod
from kubeletx.pods.workloads.machine.hardware import with_size
from kubeletx.runtimes.handles.snapshots import PodSnapshot
from kubeletx.store import Store
from kubeletx.testing.clock import FakeClock
from tests.unit.kube.pod_text import pod_from

BAD_NUMBERS = ("", "-1", "+1", "1_0", " 1", "²", "٣", "1.5", "1e3", "9" * 5000, "0x10", "\ud800", "nan")
UID = PodUid("u1")
NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize("text", BAD_NUMBERS)
def test_only_ascii_digits_are_a_number(text: str) -> None:
    assert whole_number(text) is None


def test_a_number_may_have_a_limit() -> None:
    assert [whole_number(text, at_most=30) for text in ("0", "030", "31", None)] == [0, 30, None, None]


def snapshot(annotations: dict[str, str] | None = None, **labels: str) -> PodSnapshot:
    known = {names.POD_NAME: "web", names.POD_NAMESPACE: "shop", **labels}
    sandbox = SandboxSummary(
        id=SandboxId("s1"),
        uid=UID,
        name="web",
        namespace="shop",
        attempt=0,
        state=SandboxState.READY,
        created_at_ns=1,
        labels=known,
        annotations=annotations or {},
    )
    return PodSnapshot(uid=UID, sandboxes=(sandbox,), looked_at=0.0)


@pytest.mark.parametrize("text", [*BAD_NUMBERS, str(2**31)])
def test_a_grace_period_that_is_none_does_not_stop_the_recovery(text: str) -> None:
    found = orphan_pod(UID, snapshot({names.POD_GRACE_SECONDS: text}))
    assert found is not None
    assert found.pod.spec.termination_grace_period_seconds is None
    assert orphan_pod(UID, snapshot({names.POD_GRACE_SECONDS: "45"})) == replace(
        found, pod=replace(found.pod, spec=replace(found.pod.spec, termination_grace_period_seconds=45))
    )


def test_a_sandbox_with_a_name_that_no_pod_has_is_not_a_pod() -> None:
    assert orphan_pod(PodUid("../../etc"), snapshot()) is None
    assert orphan_pod(UID, snapshot(**{names.POD_NAME: "../../x"})) is None
    assert orphan_pod(UID, snapshot(**{names.POD_NAMESPACE: "a/b"})) is None


@pytest.mark.parametrize("text", BAD_NUMBERS)
def test_a_generation_that_is_not_a_number_is_the_first(text: str) -> None:
    unit = UnitSummary(
        id=UnitId("c1"),
        sandbox_id=SandboxId("s1"),
        uid=UID,
        name="c",
        attempt=0,
        state=UnitState.RUNNING,
        created_at_ns=1,
        annotations={names.RESTART_GENERATION: text},
    )
    assert generation_of(unit) == 0


@pytest.mark.parametrize("text", BAD_NUMBERS)
def test_versions_that_are_not_numbers_are_not_older(text: str) -> None:
    assert not is_older(ObjectMeta(resource_version=text), ObjectMeta(resource_version="5"))
    assert is_older(ObjectMeta(resource_version="4"), ObjectMeta(resource_version="5"))


@pytest.mark.parametrize("text", ["", "abc", "5", "1m/", "/5", "1m/2/3", "²m/1", "-5m/1", f"{'9' * 5000}m/1"])
def test_a_size_that_cannot_be_read_changes_nothing(text: str) -> None:
    has = ResourceRequirements(limits={"cpu": "1", "memory": "1Gi"})
    assert with_size(has, text) == has
    assert with_size(has, "2000m/2147483648").limits == {"cpu": "2", "memory": "2048Mi"}


@pytest.mark.parametrize("text", ["", "[]", "{", '{"limits": {"cpu": "many"}}', '{"limits": {"cpu": 1}}'])
def test_resources_that_cannot_be_read_are_none(text: str) -> None:
    assert read_resources(text) is None
    assert read_resources('{"limits": {"cpu": "1"}}') is not None


@pytest.mark.parametrize("text", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"])
def test_a_time_beyond_all_times_is_refused_with_its_field(text: str) -> None:
    with pytest.raises(InvalidPod, match="creationTimestamp"):
        pod_from({"metadata": {"name": "web", "creationTimestamp": text}})


EVENT: dict[str, Any] = {
    "ref_kind": "Pod",
    "ref_namespace": "shop",
    "ref_name": "web",
    "ref_uid": "u1",
    "ref_field": "",
    "type": "Normal",
    "reason": "Started",
    "message": "m",
    "count": 1,
    "first_at": "2026-01-01T00:00:00+00:00",
    "last_at": "2026-01-01T00:00:00+00:00",
}


async def test_events_that_make_no_sense_are_left_out_and_the_rest_is_shown(tmp_path: Path) -> None:
    bad: list[dict[str, Any]] = [
        {"last_at": "2026-01-01T00:00:00"},
        {"last_at": "yesterday"},
        {"count": "many"},
        {"message": b"bytes"},
    ]
    store = await Store.open(tmp_path / "db", [EVENTS.metadata, _pods.metadata])
    try:
        for number, change in enumerate([{}, *bad]):
            row = {"id": f"e{number}", **EVENT, **change}
            columns = ", ".join(row)
            places = ", ".join(f":{name}" for name in row)
            sql = f"INSERT INTO {EVENTS.name} ({columns}) VALUES ({places})"
            await store.write(lambda connection, sql=sql, row=row: connection.exec_driver_sql(sql, row))
        recorder = EventRecorder(clock=FakeClock(start=NOW), node_name="n", store=store)
        await recorder.load()
        assert [one.metadata.uid for one in recorder.list_events()] == ["e0"]
        recorder.record(
            ObjectRef(kind="Pod", name="web", namespace="shop", uid="u1"),
            type="Normal",
            reason="Started",
            message="m",
        )
        assert len(recorder.list_events()) == 1
        recorder.flush()
    finally:
        await store.close()


async def test_records_of_pods_that_make_no_sense_are_left_out(tmp_path: Path) -> None:
    store = await Store.open(tmp_path / "db", [EVENTS.metadata, _pods.metadata])
    rows: list[dict[str, Any]] = [
        {"uid": "u1", "source": "file", "pod": b'{"metadata": {"name": "web"}}'},
        {"uid": "u2", "source": "file", "pod": b"\xff"},
        {
            "uid": "u3",
            "source": "file",
            "pod": b'{"metadata": {"creationTimestamp": "0001-01-01T00:00:00+14:00"}}',
        },
    ]
    try:
        await store.write(lambda connection: connection.execute(insert(_pods), rows))
        await store.write(
            lambda connection: connection.exec_driver_sql(
                f"INSERT INTO {_pods.name} (uid, source, pod) VALUES ('u4', 'file', 5)"
            )
        )
        assert list(await store.read(_load)) == ["u1"]
    finally:
        await store.close()
