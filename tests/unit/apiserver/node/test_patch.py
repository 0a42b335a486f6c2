"""What is sent of the Node: nothing while nothing changes, all conditions when one does."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from msgspec.structs import replace

from kubeletx.apiserver.node.patch import map_patch, metadata_patch, status_patch
from kubeletx.kube.types.meta import ObjectMeta
from kubeletx.kube.types.node import NodeAddress, NodeCondition, NodeStatus

NOW = datetime(2030, 1, 1, tzinfo=UTC)
READY = NodeCondition(type="Ready", status="True", reason="KubeletReady", last_heartbeat_time=NOW)
RUNTIME = NodeCondition(type="kubeletx.io/RuntimeReady-a", status="True", reason="RuntimeReady")
FOREIGN = NodeCondition(type="NetworkUnavailable", status="False", reason="RouteCreated")
LATER = NOW + timedelta(minutes=5)


def patch(before: NodeStatus, after: NodeStatus, *, is_due: bool = False) -> dict[str, object] | None:
    return status_patch(before, after, heartbeat=LATER, is_due=is_due)


def test_type_and_version_of_a_lost_runtime_go_and_notes_of_others_stay() -> None:
    before = ObjectMeta(
        annotations={
            "workload-type.kubeletx.io/a": "vm",
            "version.kubeletx.io/a": "QEMU 7",
            "workload-type.kubeletx.io/b": "vm",
            "example.com/note": "1",
        }
    )
    after = ObjectMeta(annotations={"workload-type.kubeletx.io/b": "container"})
    assert metadata_patch(before, after) == {
        "annotations": {
            "workload-type.kubeletx.io/a": None,
            "version.kubeletx.io/a": None,
            "workload-type.kubeletx.io/b": "container",
        }
    }


def test_a_heartbeat_alone_is_not_worth_a_request_until_it_is_due() -> None:
    before = NodeStatus(conditions=(FOREIGN, READY))
    after = NodeStatus(conditions=(replace(READY, last_heartbeat_time=LATER),))
    assert patch(before, after) is None
    due = patch(before, after, is_due=True)
    assert due is not None
    assert due["conditions"] == [
        {
            "type": "Ready",
            "status": "True",
            "reason": "KubeletReady",
            "message": None,
            "lastHeartbeatTime": "2030-01-01T00:05:00Z",
        }
    ]


def test_ready_stays_the_last_and_conditions_of_lost_runtimes_go() -> None:
    before = NodeStatus(conditions=(RUNTIME, FOREIGN, READY))
    other = replace(RUNTIME, type="kubeletx.io/RuntimeReady-b")
    sent = patch(before, NodeStatus(conditions=(other, READY)))
    assert sent is not None
    conditions = sent["conditions"]
    assert isinstance(conditions, list)
    assert [(one["type"], one.get("$patch")) for one in conditions] == [
        ("kubeletx.io/RuntimeReady-b", None),
        ("Ready", None),
        ("kubeletx.io/RuntimeReady-a", "delete"),
    ]
    assert sent["$setElementOrder/conditions"] == [{"type": other.type}, {"type": "Ready"}]


def test_resources_that_vanished_are_removed_and_addresses_replaced_whole() -> None:
    before = NodeStatus(capacity={"cpu": "2", "example.com/gpu": "1"})
    after = NodeStatus(
        capacity={"cpu": "4"},
        addresses=(NodeAddress(type="InternalIP", address="a"), NodeAddress(type="InternalIP", address="b")),
    )
    sent = patch(before, after)
    assert sent is not None
    assert sent["capacity"] == {"cpu": "4", "example.com/gpu": None}
    assert sent["addresses"] == [
        {"type": "InternalIP", "address": "a"},
        {"type": "InternalIP", "address": "b"},
        {"$patch": "replace"},
    ]


def test_only_labels_of_ours_are_ever_removed() -> None:
    current = {"a": "1", "b": "2", "runtime.kubeletx.io/old": "ready"}
    wanted = {"a": "1", "c": "3", "runtime.kubeletx.io/new": "ready"}
    assert map_patch(current, wanted, "runtime.kubeletx.io/") == {
        "c": "3",
        "runtime.kubeletx.io/new": "ready",
        "runtime.kubeletx.io/old": None,
    }


def test_features_that_an_api_server_does_not_keep_are_not_a_reason_to_report() -> None:
    before = NodeStatus(conditions=(READY,))
    after = NodeStatus(conditions=(READY,), declared_features=("ExtendWebSocketsToKubelet",))
    assert patch(before, after) is None
    due = patch(before, after, is_due=True)
    assert due is not None
    assert due["declaredFeatures"] == ["ExtendWebSocketsToKubelet"]
