from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kubeletx.api import RuntimeVersion, Traits
from kubeletx.kube.types.node import ContainerImage, Node
from kubeletx.node.readiness import RuntimeFacts
from kubeletx.node.status import NodePlan, NodeReporter, is_ready, top_images
from kubeletx.runtimes.handles.health import RuntimeState
from kubeletx.testing import FakeClock

NOW = datetime(2030, 1, 1, tzinfo=UTC)


def report(
    name: str,
    type_: str = "container",
    *,
    ready: bool = True,
    cordoned: bool = False,
    handlers: tuple[str, ...] = ("runc",),
    traits: Traits | None = None,
) -> RuntimeFacts:
    state = RuntimeState(
        ready=ready,
        network_ready=ready,
        reachable=ready,
        cordoned=cordoned,
        reason="" if ready else "Unreachable",
        message="",
        since=NOW,
        handlers=handlers,
    )
    version = RuntimeVersion(name=name, version="1.0") if ready else None
    return RuntimeFacts(name=name, workload_type=type_, state=state, version=version, traits=traits)


def reporter(root: Path) -> NodeReporter:
    plan = NodePlan(
        root_dir=root,
        version="v0.1.0",
        hostname_override="Node-1",
        node_ips=("10.0.0.1",),
        labels={"zone": "a"},
        system_reserved={"cpu": "500m"},
    )
    made = NodeReporter(plan, clock=FakeClock())
    made.load()
    return made


def test_what_eviction_keeps_free_is_taken_from_what_is_offered_and_not_from_the_limit_of_all_pods(
    tmp_path: Path,
) -> None:
    plan = NodePlan(
        root_dir=tmp_path,
        version="v0.1.0",
        kube_reserved={"memory": "50Mi"},
        hard_eviction={"memory.available": "100Mi"},
    )
    made = NodeReporter(plan, clock=FakeClock())
    made.load()
    assert made.pods_limit.memory_bytes == made.capacity.memory_bytes - (50 << 20)
    assert made.allocatable.memory_bytes == made.pods_limit.memory_bytes - (100 << 20)


def test_the_node_has_name_labels_addresses_capacity_and_conditions(tmp_path: Path) -> None:
    node_reporter = reporter(tmp_path)
    runtimes = [report("libvirt", "vm"), report("containerd")]
    assert node_reporter.update(runtimes)
    node = node_reporter.build(runtimes)
    assert node.metadata.name == "node-1"
    assert node.metadata.labels["kubernetes.io/hostname"] == "node-1"
    assert node.metadata.labels["zone"] == "a"
    assert [a.address for a in node.status.addresses] == ["10.0.0.1", "node-1"]
    assert node.status.capacity["pods"] == "110"
    assert node.status.allocatable["cpu"] != node.status.capacity["cpu"]
    assert node.status.conditions[-1].type == "Ready"
    assert node.status.node_info is not None
    assert node.status.node_info.container_runtime_version == "containerd://1.0"
    assert is_ready(node.status.conditions)


def test_classes_may_name_every_runtime_and_its_handlers(tmp_path: Path) -> None:
    refused = ("recursive-read-only", "user-namespace")
    traits = Traits(handler_refuses={"kata": refused})
    runtimes = [
        report("libvirt", "vm", handlers=(), traits=Traits(refuses=("user-namespace", "strict-groups"))),
        report("containerd", handlers=("kata", "runc"), traits=traits),
        report("away", ready=False, handlers=()),
    ]
    status = reporter(tmp_path).build(runtimes).status
    shown = {
        one.name: (one.features.recursive_read_only_mounts, one.features.user_namespaces)
        if one.features is not None
        else None
        for one in status.runtime_handlers
    }
    assert shown == {
        "": (True, True),
        "libvirt": (True, False),
        "containerd": (True, True),
        "containerd--kata": (False, False),
        "containerd--runc": (True, True),
        "away": None,
        "kata": (False, False),
        "runc": (True, True),
    }
    assert status.features is None
    features = reporter(tmp_path).build(runtimes[:2]).status.features
    assert features is not None
    assert features.supplemental_groups_policy is False


def test_an_update_reports_whether_a_condition_changed(tmp_path: Path) -> None:
    node_reporter = reporter(tmp_path)
    assert node_reporter.update([report("a")])
    assert not node_reporter.update([report("a")])
    assert node_reporter.update([report("a", ready=False)])
    assert not is_ready(node_reporter.conditions)


def test_the_node_names_the_workload_type_of_each_runtime_beside_its_version(tmp_path: Path) -> None:
    notes = reporter(tmp_path).build([report("kvm", "vm", ready=False), report("ctd")]).metadata.annotations
    assert {key: value for key, value in notes.items() if "kubeletx.io/" in key} == {
        "workload-type.kubeletx.io/kvm": "vm",
        "workload-type.kubeletx.io/ctd": "container",
        "version.kubeletx.io/ctd": "ctd 1.0",
    }


def test_a_runtime_that_never_answered_has_no_version(tmp_path: Path) -> None:
    runtimes = [report("a", ready=False)]
    node_reporter = reporter(tmp_path)
    node_reporter.update(runtimes)
    info = node_reporter.build(runtimes).status.node_info
    assert info is not None
    assert info.container_runtime_version == ""


def test_the_largest_images_are_reported_with_at_most_five_names() -> None:
    images = [ContainerImage(names=tuple(f"i{n}:{t}" for t in range(9)), size_bytes=n) for n in range(60)]
    found = top_images(images)
    assert len(found) == 50
    assert found[0].size_bytes == 59
    assert all(len(image.names) == 5 for image in found)


def test_the_node_does_not_say_that_controllers_attach_its_volumes(tmp_path: Path) -> None:
    notes = reporter(tmp_path).build([report("one")]).metadata.annotations
    assert "volumes.kubernetes.io/controller-managed-attach-detach" not in notes


def test_the_number_of_images_in_the_status_is_the_operators() -> None:
    images = [ContainerImage(names=(f"i{n}",), size_bytes=n) for n in range(60)]
    assert [len(top_images(images, limit)) for limit in (-1, 0, 7, 99)] == [60, 0, 7, 60]


def test_with_an_external_cloud_the_node_leaves_its_addresses_to_the_cloud_controller(tmp_path: Path) -> None:
    def built(**plan: Any) -> Node:
        made = NodeReporter(
            NodePlan(root_dir=tmp_path, version="v0.1.0", hostname_override="one", **plan), clock=FakeClock()
        )
        made.load()
        return made.build([report("containerd")])

    named = built(external_cloud=True, node_ips=("10.0.0.1",))
    assert [a.address for a in named.status.addresses] == ["10.0.0.1", "one"]
    assert named.metadata.annotations["alpha.kubernetes.io/provided-node-ip"] == "10.0.0.1"
    unnamed = built(external_cloud=True)
    assert [(a.type, a.address) for a in unnamed.status.addresses] == [("Hostname", "one")]
    for node in (unnamed, built(node_ips=("10.0.0.1",)), built(external_cloud=True, node_ips=("0.0.0.0",))):
        assert "alpha.kubernetes.io/provided-node-ip" not in node.metadata.annotations
