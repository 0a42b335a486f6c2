"""Admission (A2 to A6): a pod that cannot run here is Failed at once, with the kubelet's reason."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from kubeletx_testing.lab import pod_manifest
from tests.integration.support.bench import Bench, container_id

MakeBench = Callable[..., Bench]

STATIC_PODS_ARE_CRITICAL = "UnexpectedAdmissionError"
"""The reason where there is no room for a pod of a manifest, and none can be made."""
HUGE = {"resources": {"requests": {"cpu": "100000"}}}


@pytest.fixture(scope="module")
def bench(make_bench: MakeBench) -> Bench:
    return make_bench(
        flags=(
            "--max-pods=12",
            "--node-labels=disk=fast,number=7",
            "--allowed-unsafe-sysctls=net.ipv4.conf.*",
        )
    )


def cpu_millicores(bench: Bench) -> int:
    """What this node's pods may have."""
    amount = bench.agent.node().status.allocatable["cpu"]
    return int(amount[:-1]) if amount.endswith("m") else int(amount) * 1000


def add(bench: Bench, name: str, **parts: Any) -> Callable[[], None]:
    """Apply a pod, which is not critical as pods of manifests are; returns what removes it."""
    path = bench.manifests.parent / f"{name}.json"
    path.write_text(json.dumps(pod_manifest(name, **parts)))
    bench.agent.cli("apply", "-f", str(path)).check_returncode()

    def remove() -> None:
        bench.agent.cli("delete", "-f", str(path)).check_returncode()
        bench.agent.wait_gone(name)

    return remove


def affinity(key: str, operator: str, *values: str) -> dict[str, Any]:
    term = {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    return {"affinity": {"nodeAffinity": required}}


_REJECTED: dict[str, tuple[str, dict[str, Any]]] = {
    "cpu": ("OutOfcpu", {"container": HUGE}),
    "memory": ("OutOfmemory", {"container": {"resources": {"requests": {"memory": "100Ti"}}}}),
    "storage": (
        "OutOfephemeral-storage",
        {"container": {"resources": {"requests": {"ephemeral-storage": "900Ti"}}}},
    ),
    "selector": ("NodeAffinity", {"spec": {"nodeSelector": {"disk": "slow"}}}),
    "affinity": ("NodeAffinity", {"spec": affinity("number", "Gt", "7")}),
    "windows": ("PodOSNotSupported", {"spec": {"os": {"name": "windows"}}}),
    "os-label": (
        "PodOSSelectorNodeLabelDoesNotMatch",
        {"metadata": {"labels": {"kubernetes.io/os": "windows"}}},
    ),
    "sysctl": (
        "SysctlForbidden",
        {"spec": {"securityContext": {"sysctls": [{"name": "kernel.msgmax", "value": "1"}]}}},
    ),
}


@pytest.mark.parametrize("case", sorted(_REJECTED))
def test_a_pod_that_does_not_fit_is_rejected_with_the_kubelets_reason(bench: Bench, case: str) -> None:
    reason, parts = _REJECTED[case]
    remove = add(bench, f"no-{case}", **parts)
    pod = bench.ended(f"no-{case}")
    assert (pod.status.phase, pod.status.reason) == ("Failed", reason)
    assert (pod.status.message or "").startswith("Pod was rejected: ")
    assert pod.status.container_statuses == ()
    reported = bench.event(f"no-{case}", reason)
    assert reported["type"] == "Warning"
    remove()


def test_a_static_pod_that_no_other_may_end_for_is_rejected_with_the_kubelets_reason(bench: Bench) -> None:
    bench.put("no-room", container=HUGE)
    pod = bench.ended("no-room")
    assert (pod.status.phase, pod.status.reason) == ("Failed", STATIC_PODS_ARE_CRITICAL)
    assert "Node didn't have enough resource: cpu, requested: 100000000" in (pod.status.message or "")
    bench.remove("no-room")


def test_a_resource_that_no_node_has_is_the_schedulers_business(bench: Bench) -> None:
    bench.put("device", container={"resources": {"limits": {"example.com/gpu": "1"}}})
    bench.ready("device")
    bench.remove("device")


def test_what_fits_by_labels_is_admitted(bench: Bench) -> None:
    bench.put("fits", spec={"nodeSelector": {"disk": "fast"}, **affinity("number", "Lt", "8")})
    bench.ready("fits")
    bench.remove("fits")


def test_an_unsafe_sysctl_that_the_operator_allows_is_set(bench: Bench) -> None:
    sysctls = [
        {"name": "net.ipv4.conf.lo.forwarding", "value": "0"},
        {"name": "net.ipv4.ip_local_port_range", "value": "20000 20100"},
    ]
    text = bench.run(
        "sysctls",
        "cat /proc/sys/net/ipv4/conf/lo/forwarding /proc/sys/net/ipv4/ip_local_port_range",
        spec={"securityContext": {"sysctls": sysctls}},
    )
    assert text.split() == ["0", "20000", "20100"]
    bench.remove("sysctls")


def test_the_second_pod_on_a_host_port_is_rejected(bench: Bench) -> None:
    port = {"ports": [{"containerPort": 8080, "hostPort": 28080}]}
    bench.put("first-port", container=port)
    bench.ready("first-port")
    bench.put("second-port", container=port)
    pod = bench.ended("second-port")
    assert (pod.status.phase, pod.status.reason) == ("Failed", "NodePorts")
    bench.remove("second-port", "first-port")


def test_pods_count_until_they_end(bench: Bench) -> None:
    most = cpu_millicores(bench) * 6 // 10
    half = {"resources": {"requests": {"cpu": f"{most}m"}}}
    bench.put("big-one", container=half)
    bench.ready("big-one")
    remove = add(bench, "big-two", container=half)
    pod = bench.ended("big-two")
    assert pod.status.reason == "OutOfcpu"
    assert f"requested: {most}" in (pod.status.message or "")
    remove()
    bench.remove("big-one")
    bench.put("big-three", container=half)
    bench.ready("big-three")
    bench.remove("big-three")


def test_more_pods_than_max_pods_are_rejected(bench: Bench) -> None:
    crowd = [f"crowd-{number}" for number in range(12)]
    for name in crowd:
        bench.put(name, spec={"hostNetwork": True})
    assert [bench.ready(name).status.phase for name in crowd] == ["Running"] * 12
    remove = add(bench, "crowd-12", spec={"hostNetwork": True})
    assert bench.ended("crowd-12").status.reason == "OutOfpods"
    bench.put("crowd-13", spec={"hostNetwork": True})
    assert bench.ended("crowd-13").status.reason == STATIC_PODS_ARE_CRITICAL
    remove()
    bench.remove(*crowd, "crowd-13")


def test_a_rejected_pod_frees_nothing_and_stays_rejected_over_a_restart(bench: Bench) -> None:
    bench.put("never", container=HUGE)
    bench.ended("never")
    most = cpu_millicores(bench) * 7 // 10
    bench.put("always", container={"resources": {"requests": {"cpu": f"{most}m"}}})
    before = container_id(bench.ready("always"))
    bench.agent.restart()
    assert container_id(bench.ready("always")) == before
    assert bench.ended("never").status.reason == STATIC_PODS_ARE_CRITICAL
    bench.remove("never", "always")


def test_what_only_the_kernel_or_runtime_can_do_is_rejected_not_ignored(bench: Bench) -> None:
    wishes: dict[str, dict[str, Any]] = {
        "apparmor": {
            "securityContext": {"appArmorProfile": {"type": "RuntimeDefault"}},
        },
        "strict": {"securityContext": {"supplementalGroupsPolicy": "Strict"}},
        "users": {"hostUsers": False},
    }
    for name, wish in wishes.items():
        bench.put(f"wish-{name}", spec=wish)
    reasons = {}
    for name in wishes:
        pod = bench.until(
            f"wish-{name}", lambda pod: pod.status.phase == "Running" or bool(pod.status.reason)
        )
        reasons[name] = (pod.status.phase, pod.status.reason)
    assert reasons == {
        "apparmor": ("Failed", "AppArmor"),
        "strict": ("Failed", "SupplementalGroupsPolicyNotSupported"),
        "users": ("Pending", "RuntimeUnsupported"),
    }
    bench.remove(*(f"wish-{name}" for name in wishes))
