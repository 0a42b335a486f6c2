"""Who comes in while the node is short of something, or going down."""

from __future__ import annotations

import pytest

from kubeletx.api import PodUid
from kubeletx.kube.types.core import Container, ObjectMeta, Pod, PodSpec, ResourceRequirements, Toleration
from kubeletx.node.readiness import Pressure
from kubeletx.pods.admission import AdmissionNode, NodeAdmission
from kubeletx.pods.admission.pressure import (
    check_pressure,
    tolerates_memory_pressure,
)
from kubeletx.pods.model.facts import DesiredPod, Rejection

MEMORY, DISK, PIDS = Pressure(memory=True), Pressure(disk=True), Pressure(pids=True)


def desired(*, source: str = "api", requests: dict[str, str] | None = None, **spec: object) -> DesiredPod:
    resources = ResourceRequirements(requests=requests or {})
    pod = Pod(
        metadata=ObjectMeta(name="web", namespace="default", uid=PodUid("u")),
        spec=PodSpec(containers=(Container(name="main", image="i", resources=resources),), **spec),  # type: ignore[arg-type]
    )
    return DesiredPod(uid=PodUid("u"), pod=pod, source=source, spec_hash="")


def test_memory_pressure_refuses_pods_that_request_nothing() -> None:
    found = check_pressure(desired(), MEMORY)
    assert found == Rejection(reason="Evicted", message="The node had condition: [MemoryPressure]. ")
    assert check_pressure(desired(requests={"memory": "1Mi"}), MEMORY) is None
    tolerant = Toleration(key="node.kubernetes.io/memory-pressure", operator="Exists")
    assert check_pressure(desired(tolerations=(tolerant,)), MEMORY) is None
    assert check_pressure(desired(), Pressure()) is None


@pytest.mark.parametrize("pressure", [DISK, PIDS, Pressure(memory=True, disk=True)])
def test_other_pressure_refuses_everything_but_critical_pods(pressure: Pressure) -> None:
    everything = Toleration(operator="Exists")
    found = check_pressure(desired(requests={"memory": "1Mi"}, tolerations=(everything,)), pressure)
    assert found is not None
    assert found.reason == "Evicted"
    assert check_pressure(desired(source="file"), pressure) is None
    assert check_pressure(desired(priority=2_000_000_000), pressure) is None


def test_a_node_that_shuts_down_rejects_every_pod() -> None:
    admission = NodeAdmission(AdmissionNode(name="n"))
    admission.is_shutting_down = True
    assert admission.admit(desired(source="file"), None) == Rejection(
        reason="NodeShutdown", message="Pod was rejected as the node is shutting down."
    )


@pytest.mark.parametrize(
    ("toleration", "tolerates"),
    [
        (Toleration(operator="Exists"), True),
        (Toleration(key="node.kubernetes.io/memory-pressure"), True),
        (Toleration(key="node.kubernetes.io/memory-pressure", value="x"), False),
        (Toleration(key="node.kubernetes.io/memory-pressure", operator="Exists", effect="NoExecute"), False),
        (Toleration(key="node.kubernetes.io/disk-pressure", operator="Exists"), False),
    ],
)
def test_tolerations_are_read_as_the_scheduler_reads_them(toleration: Toleration, tolerates: bool) -> None:
    assert tolerates_memory_pressure((toleration,)) is tolerates
