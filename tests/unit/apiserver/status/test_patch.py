"""What is sent of a pod's status: the difference, in our own fields."""

from __future__ import annotations

from datetime import UTC, datetime

from kubeletx.api import names
from kubeletx.apiserver.status.patch import status_patch
from kubeletx.kube.types.core import ContainerStatus, HostIP, PodCondition, PodIP, PodStatus

NOW = datetime(2030, 1, 1, tzinfo=UTC)


def test_equal_statuses_send_nothing() -> None:
    status = PodStatus(phase="Running", conditions=(PodCondition(type="Ready", status="True"),))
    assert status_patch(status, status) is None


def test_only_what_differs_is_sent_and_what_is_gone_is_null() -> None:
    before = PodStatus(phase="Pending", reason="Wait", host_ip="10.0.0.1", qos_class="Burstable")
    after = PodStatus(phase="Running", host_ip="10.0.0.1", qos_class="Burstable")
    assert status_patch(before, after) == {"phase": "Running", "reason": None}


def test_containers_are_sent_whole_and_addresses_replace_the_old_ones() -> None:
    before = PodStatus(pod_ips=(PodIP(ip="10.0.0.1"),), host_ips=(HostIP(ip="1.1.1.1"),))
    after = PodStatus(
        pod_ips=(PodIP(ip="10.0.0.2"),),
        host_ips=(HostIP(ip="1.1.1.1"),),
        container_statuses=(ContainerStatus(name="a", image="i", image_id="", ready=True, restart_count=0),),
    )
    patch = status_patch(before, after)
    assert patch is not None
    assert patch["podIPs"] == [{"ip": "10.0.0.2"}, {"$patch": "replace"}]
    assert "hostIPs" not in patch
    assert [one["name"] for one in patch["containerStatuses"]] == ["a"]


def test_conditions_of_others_are_neither_sent_nor_removed() -> None:
    theirs = PodCondition(type="example.com/gate", status="False")
    ours = PodCondition(type="Ready", status="False", reason="NotYet")
    ready = PodCondition(type="Ready", status="True")
    stale = PodCondition(type="example.com/gate", status="True")
    assert status_patch(PodStatus(conditions=(theirs, ours)), PodStatus(conditions=(stale, ready))) == {
        "conditions": [{"type": "Ready", "status": "True", "reason": None}]
    }


def test_a_condition_of_ours_that_no_longer_holds_is_deleted_by_name() -> None:
    old = PodCondition(type="kubeletx.io/ManifestValid", status="False", last_transition_time=NOW)
    assert status_patch(PodStatus(conditions=(old,)), PodStatus()) == {
        "conditions": [{"$patch": "delete", "type": "kubeletx.io/ManifestValid"}]
    }


def test_a_disruption_is_reported_only_if_no_one_did_before() -> None:
    disruption = PodCondition(type="DisruptionTarget", status="True", reason="Evicted")
    assert status_patch(PodStatus(), PodStatus(conditions=(disruption,))) is not None
    known = PodStatus(conditions=(PodCondition(type="DisruptionTarget", status="True", reason="Drain"),))
    assert status_patch(known, PodStatus(conditions=(disruption,))) is None


def test_fields_of_other_owners_are_never_touched() -> None:
    assert (
        status_patch(PodStatus(nominated_node_name="n", phase="Pending"), PodStatus(phase="Pending")) is None
    )


def test_the_condition_of_a_pod_on_standby_is_sent_and_deleted_by_name() -> None:
    frozen = PodCondition(
        type=names.STANDBY_CONDITION, status="True", reason="Standby", message="frozen in 0.004s"
    )
    runs = PodCondition(type=names.STANDBY_CONDITION, status="False", reason="NotFrozen")
    sent = {
        "type": "kubeletx.io/Standby",
        "status": "True",
        "reason": "Standby",
        "message": "frozen in 0.004s",
    }
    assert status_patch(PodStatus(), PodStatus(conditions=(frozen,))) == {"conditions": [sent]}
    assert status_patch(PodStatus(conditions=(frozen,)), PodStatus(conditions=(runs,))) == {
        "conditions": [
            {"type": "kubeletx.io/Standby", "status": "False", "reason": "NotFrozen", "message": None}
        ]
    }
    assert status_patch(PodStatus(conditions=(runs,)), PodStatus()) == {
        "conditions": [{"$patch": "delete", "type": "kubeletx.io/Standby"}]
    }
