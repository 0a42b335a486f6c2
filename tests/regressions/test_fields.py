"""A field that this agent does not carry out is refused or holds the pod back; it is never ignored."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from kubeletx.api import InvalidPod, PodUid, Traits, names
from kubeletx.kube.manifests.machine_form import machine_of
from kubeletx.kube.manifests.static_refs import refused_references
from kubeletx.kube.types.core import (
    Container,
    ContainerResizePolicy,
    Pod,
    PodResourceClaim,
    PodSchedulingGate,
    PodSpec,
    PodStatus,
    ResourceClaim,
    ResourceRequirements,
    Toleration,
)
from kubeletx.kube.types.node import Taint
from kubeletx.pods.admission import AdmissionNode, NodeAdmission
from kubeletx.pods.admission.chain import held_back, tolerates
from kubeletx.pods.model.facts import DesiredPod
from kubeletx.pods.model.sources import API, FILE
from kubeletx.runtimes.binding.features import missing
from kubeletx.volumes import VolumeError
from tests.unit.pods.manager_model import Node, a_pod
from tests.unit.volumes.volume_doubles import FakeCluster, make_pod, make_preparer

UID = PodUid("uid-web")
CLAIM = PodResourceClaim(name="gpu", resource_claim_name="my-gpu")
CLAIMED = ResourceRequirements(claims=(ResourceClaim(name="gpu"),))


@pytest.mark.parametrize(
    ("pod", "field"),
    [
        (Pod(spec=PodSpec(resource_claims=(CLAIM,))), "spec.resourceClaims[0]"),
        (Pod(spec=PodSpec(resources=CLAIMED)), "spec.resources.claims"),
        (
            Pod(spec=PodSpec(containers=(Container(name="a"), Container(name="b", resources=CLAIMED)))),
            "spec.containers[1].resources.claims",
        ),
        (
            Pod(spec=PodSpec(init_containers=(Container(name="a", resources=CLAIMED),))),
            "spec.initContainers[0].resources.claims",
        ),
        (
            Pod(status=PodStatus(extended_resource_claim_status={"resourceClaimName": "made-by-scheduler"})),
            "status.extendedResourceClaimStatus",
        ),
    ],
)
def test_a_claim_for_devices_holds_the_pod_back_wherever_it_stands(pod: Pod, field: str) -> None:
    waiting = held_back(pod)
    assert waiting is not None
    assert waiting.reason == "FailedPrepareDynamicResources"
    assert f": {field}: this agent does not carry out resource claims" in waiting.message


def test_a_pod_without_claims_is_not_held_back() -> None:
    assert held_back(Pod(spec=PodSpec(containers=(Container(name="a"),)))) is None


async def test_a_pod_with_a_claim_waits_with_an_event_and_can_be_deleted(tmp_path: Path) -> None:
    node = Node(tmp_path)
    async with node.running() as manager:
        pod = a_pod()
        manager.update(API, replace(pod, spec=replace(pod.spec, resource_claims=(CLAIM,))))
        await node.until(lambda: "FailedPrepareDynamicResources" in node.sink.reasons())
        assert node.phase(UID) == "Pending"
        status = node.services.board.statuses[UID]
        assert status.container_statuses[0].state.waiting is not None
        assert status.container_statuses[0].state.waiting.reason == "FailedPrepareDynamicResources"
        assert not node.runtimes["one"].backend.sandboxes
        manager.remove(API, UID)
        await node.until(lambda: not manager.workers)
    assert node.sink.reasons().count("FailedPrepareDynamicResources") == 1


def test_gates_of_the_scheduler_are_refused_in_a_manifest() -> None:
    pod = Pod(spec=PodSpec(scheduling_gates=(PodSchedulingGate(name="example.com/wait"),)))
    assert [one.field for one in refused_references(pod, "web.yaml")] == ["spec.schedulingGates"]


def desired(source: str, *tolerations: Toleration) -> DesiredPod:
    pod = Pod(spec=PodSpec(containers=(Container(name="c"),), tolerations=tolerations))
    return DesiredPod(uid=pod.uid, pod=pod, source=source, spec_hash="")


def test_a_pod_of_the_cluster_must_tolerate_what_the_node_is_tainted_with() -> None:
    admission = NodeAdmission(AdmissionNode(name="n"))
    admission.relabel(
        {}, [Taint(key="a", value="1", effect="NoSchedule"), Taint(key="down", effect="NoExecute")]
    )
    rejection = admission.admit(desired(API), Traits())
    assert rejection is not None
    assert rejection.reason == "TaintToleration"
    assert rejection.message.endswith("taints that the pod didn't tolerate: down:NoExecute")
    for allowed in (
        desired(FILE),
        desired(API, Toleration(key="down", operator="Exists", effect="NoExecute")),
    ):
        assert admission.admit(allowed, Traits()) is None
        admission.release(allowed.uid)
    admission.relabel({})
    assert admission.admit(desired(API), Traits()) is None


@pytest.mark.parametrize(
    ("toleration", "expected"),
    [
        (Toleration(operator="Exists"), True),
        (Toleration(key="k", operator="Exists"), True),
        (Toleration(key="k", value="5"), True),
        (Toleration(key="k", operator="Equal", value="6"), False),
        (Toleration(value="5"), False),
        (Toleration(key="other", operator="Exists"), False),
        (Toleration(key="k", operator="Exists", effect="NoSchedule"), False),
        (Toleration(key="k", operator="Gt", value="4"), True),
        (Toleration(key="k", operator="Lt", value="4"), False),
        (Toleration(key="k", operator="Lt", value="x"), False),
    ],
)
def test_tolerations_match_as_the_api_says(toleration: Toleration, expected: bool) -> None:
    assert tolerates(toleration, Taint(key="k", value="5", effect="NoExecute")) is expected


def test_a_stop_signal_needs_a_runtime_that_sends_it() -> None:
    container = {"name": "c", "lifecycle": {"stopSignal": "SIGUSR1"}}
    pod = msgspec.convert({"spec": {"containers": [container]}}, Pod)
    assert missing(pod, Traits(refuses=("stop-signal",))) == ("stop-signal",)
    assert missing(pod, Traits()) == ()


def test_the_resize_policy_of_a_machine_written_as_a_container_counts() -> None:
    policy = ContainerResizePolicy(resource_name="memory", restart_policy="RestartContainer")
    other = ContainerResizePolicy(resource_name="cpu", restart_policy="NotRequired")
    pod = Pod(spec=PodSpec(containers=(Container(name="m", resize_policy=(policy, other)),)))
    machine = machine_of(pod, on_vm_runtime=True)
    assert machine is not None
    assert {one.resource_name: one.policy for one in machine.resize_policy} == {
        "memory": "RestartContainer",
        "cpu": "NoRestart",
    }


@pytest.mark.parametrize(
    ("source", "field"),
    [
        ({"image": {"reference": "data:1", "pullPolicy": "Always"}}, "image.pullPolicy"),
        (
            {"projected": {"sources": [{"clusterTrustBundle": {"path": "ca", "optional": True}}]}},
            "projected.sources[0].clusterTrustBundle",
        ),
    ],
)
async def test_what_a_volume_cannot_have_here_is_reported(
    tmp_path: Path, source: dict[str, Any], field: str
) -> None:
    pod = make_pod({"volumes": [{"name": "v", **source}]})
    with pytest.raises(VolumeError) as caught:
        await make_preparer(tmp_path).prepare(pod, FakeCluster())
    assert isinstance(caught.value, InvalidPod)
    assert caught.value.reason == names.Event.FAILED_MOUNT
    assert f"(spec.volumes[0].{field})" in str(caught.value)
