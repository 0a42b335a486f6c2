"""Health, metrics and the node as the agent shows them (W4, N4 to N6, and section 15 of the parity table)."""

from __future__ import annotations

import json
import os
import re
import signal
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any

import pytest

from kubeletx_testing.lab import image_ref
from kubeletx_testing.lab.registry import free_port
from tests.integration.support.bench import Bench, until


@pytest.fixture(scope="module")
def ports() -> tuple[int, int]:
    first = second = free_port()
    while second == first:
        second = free_port()
    return first, second


@pytest.fixture(scope="module")
def bench(make_bench: Callable[..., Bench], ports: tuple[int, int]) -> Bench:
    return make_bench(
        flags=(
            f"--healthz-port={ports[0]}",
            f"--read-only-port={ports[1]}",
            "--address=127.0.0.1",
            "--node-labels=disk=fast",
            "--max-pods=77",
            "--system-reserved=memory=512Mi,cpu=100m",
            "--node-status-update-frequency=1s",
        )
    )


def fetch(port: int, path: str, *, seconds: float = 5) -> tuple[int, str]:
    """Status and body; 0 when no one answers in time."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=seconds) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError:
        return 0, ""


def test_healthz_answers_as_a_whole_and_in_parts(bench: Bench, ports: tuple[int, int]) -> None:
    for port in ports:
        until(lambda port=port: fetch(port, "/healthz") == (200, "ok"), f"health on port {port}")
        assert fetch(port, "/healthz/ping") == (200, "ok")
        assert fetch(port, "/healthz/syncloop") == (200, "ok")
        assert fetch(port, "/healthz/nothing")[0] == 404
    assert "[+]syncloop ok" in fetch(ports[0], "/healthz?verbose")[1]
    assert bench.agent.get("/healthz") == b"ok"


def test_a_loop_that_does_not_turn_does_not_answer(bench: Bench, ports: tuple[int, int]) -> None:
    assert bench.agent.daemon is not None
    bench.agent.daemon.pause()
    try:
        assert fetch(ports[0], "/healthz", seconds=1) == (0, "")
    finally:
        bench.agent.daemon.resume()
    until(lambda: fetch(ports[0], "/healthz") == (200, "ok"), "health again")


def test_the_read_only_port_lists_pods(bench: Bench, ports: tuple[int, int]) -> None:
    bench.put("listed")
    bench.ready("listed")
    code, body = fetch(ports[1], "/pods")
    found = json.loads(body)
    assert (code, found["kind"], found["apiVersion"]) == (200, "PodList", "v1")
    listed = {one["metadata"]["name"]: one for one in found["items"]}
    assert set(listed) == {pod.metadata.name for pod in bench.agent.pods()}
    assert listed["listed-lab"]["status"]["phase"] == "Running"


def metrics(bench: Bench) -> dict[str, float]:
    """Sample to value."""
    lines = bench.agent.get("/metrics").decode().splitlines()
    return {
        line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if not line.startswith("#")
    }


def test_metrics_have_the_kubelets_names(bench: Bench, ports: tuple[int, int]) -> None:
    bench.put("counted")
    bench.ready("counted")
    bench.put("refused", container={"resources": {"requests": {"cpu": "999"}}})
    bench.ended("refused")
    names = (
        'kubelet_node_name{node="lab"}',
        "kubelet_running_pods",
        'kubelet_running_containers{container_state="running"}',
        "kubelet_started_pods_total",
        'kubelet_started_containers_total{container_type="container"}',
        "kubelet_pod_start_duration_seconds_count",
        'kubelet_runtime_operations_total{operation_type="start_unit",runtime="containerd-a"}',
    )
    for name in names:
        until(lambda name=name: metrics(bench).get(name, 0) >= 1, f"metric {name}")
    found = metrics(bench)
    assert any(name.startswith("kubelet_admission_rejections_total") for name in found)
    assert any(name.startswith("kubelet_pleg_relist_duration_seconds") for name in found)
    assert found["process_resident_memory_bytes"] > 1_000_000
    assert fetch(ports[1], "/metrics")[0] == 200


def test_the_node_has_its_fields(bench: Bench) -> None:
    bench.put("listed")  # its image is one of the node's afterwards
    bench.ready("listed")
    wanted = image_ref("busybox")
    until(
        lambda: any(wanted in image.names for image in bench.agent.node().status.images),
        "the image on the node",
    )
    node = bench.agent.node()
    status = node.status
    assert node.metadata.name == "lab"
    labels = node.metadata.labels
    assert (labels["kubernetes.io/hostname"], labels["kubernetes.io/os"], labels["disk"]) == (
        "lab",
        "linux",
        "fast",
    )
    assert labels["kubernetes.io/arch"] == labels["beta.kubernetes.io/arch"]
    assert {one.type for one in status.addresses} == {"InternalIP", "Hostname"}
    assert status.capacity["pods"] == "77"
    assert {"cpu", "memory", "ephemeral-storage", "pods"} <= set(status.allocatable)
    assert int(status.capacity["cpu"]) * 1000 - 100 == int(status.allocatable["cpu"].removesuffix("m"))
    kept = 512 * 1024 + 50 * 1024  # what is reserved, and the threshold of the lab's agents
    found = [int(amount["memory"].removesuffix("Ki")) for amount in (status.capacity, status.allocatable)]
    assert found[0] - found[1] == kept
    info = status.node_info
    assert info is not None
    assert re.fullmatch(r"containerd://1\.\d+\..*", info.container_runtime_version)
    assert re.fullmatch(r"v1\.\d+\.\d+\+kubeletx-[0-9A-Za-z.-]+", info.kubelet_version)
    assert info.boot_id
    assert (info.operating_system, info.kernel_version != "") == ("linux", True)
    handlers = {one.name: one.features for one in status.runtime_handlers}
    assert {"", "containerd-a", "containerd-a--runc", "containerd-a--runc-two"} <= handlers.keys()
    for features in handlers.values():  # this containerd has neither
        assert features is not None
        assert (features.recursive_read_only_mounts, features.user_namespaces) == (False, False)


def test_conditions_stand_in_the_kubelets_order_with_its_reasons(bench: Bench) -> None:
    until(lambda: node_condition(bench, "Ready").status == "True", "a ready node")
    conditions = bench.agent.node().status.conditions
    kubernetes = [one for one in conditions if "/" not in one.type and one.type != "RuntimesReady"]
    assert [one.type for one in kubernetes] == ["MemoryPressure", "DiskPressure", "PIDPressure", "Ready"]
    assert [(one.status, one.reason) for one in kubernetes] == [
        ("False", "KubeletHasSufficientMemory"),
        ("False", "KubeletHasNoDiskPressure"),
        ("False", "KubeletHasSufficientPID"),
        ("True", "KubeletReady"),
    ]
    assert all(one.last_heartbeat_time for one in kubernetes)


def node_condition(bench: Bench, kind: str) -> Any:
    return next((one for one in bench.agent.node().status.conditions if one.type == kind), None)


def test_the_node_is_not_ready_when_no_runtime_answers(bench: Bench) -> None:
    lab = bench.agent.lab
    for one in lab.containerds.values():
        one.stop_daemon()
    try:
        until(lambda: node_condition(bench, "Ready").status == "False", "a node that is not ready")
        ready = node_condition(bench, "Ready")
        assert ready.reason == "KubeletNotReady"
        assert "containerd-a" in ready.message
        assert "containerd-b" in ready.message
    finally:
        for one in lab.containerds.values():
            one.start_daemon()
    until(lambda: node_condition(bench, "Ready").status == "True", "a ready node")

    def reported() -> set[str]:
        everything = json.loads(bench.agent.get("/v1/events"))["items"]
        return {one["reason"] for one in everything if one["involvedObject"]["kind"] == "Node"}

    until(lambda: {"Starting", "NodeReady", "NodeNotReady"} <= reported(), "the node's events")


def test_the_agent_ends_on_a_signal_and_leaves_its_pods_running(bench: Bench) -> None:
    bench.put("survivor")
    before = bench.ready("survivor").status.container_statuses[0].container_id
    os.kill(bench.agent.pid, signal.SIGTERM)
    until(lambda: not bench.agent.is_running, "the end of the agent")
    bench.agent.start()
    assert bench.ready("survivor").status.container_statuses[0].container_id == before
