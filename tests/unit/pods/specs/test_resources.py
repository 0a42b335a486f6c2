from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeletx.pods.specs.resources import (
    cpu_quota_us,
    cpu_shares,
    oom_score_adj,
    overhead_resources,
    pod_cgroup_resources,
    sandbox_resources,
    unit_resources,
)
from tests.unit.pods.environment_model import make_node, make_pod, with_container

GIB = 1 << 30


@pytest.mark.parametrize(
    ("millicores", "shares"),
    [(0, 2), (1, 2), (2, 2), (100, 102), (1000, 1024), (256_000, 262_144), (10**6, 262_144)],
)
def test_shares_follow_the_request(millicores, shares):
    assert cpu_shares(millicores) == shares


@pytest.mark.parametrize(("millicores", "quota"), [(1, 1000), (10, 1000), (100, 10_000), (1500, 150_000)])
def test_quota_follows_the_limit(millicores, quota):
    assert cpu_quota_us(millicores, 100_000) == quota


def needs(limits: dict[str, str] | None = None, requests: dict[str, str] | None = None) -> dict[str, Any]:
    return {"resources": {"limits": limits or {}, "requests": requests or {}}}


def test_limits_become_cgroup_values():
    pod, container = with_container(needs({"cpu": "500m", "memory": "64Mi", "ephemeral-storage": "1Gi"}))
    found = unit_resources(pod, container, make_node(hugepage_sizes=("2MB", "1GB")))
    assert (found.cpu_shares, found.cpu_period_us, found.cpu_quota_us) == (512, 100_000, 50_000)
    assert (found.cpu_request_millicores, found.cpu_limit_millicores) == (500, 500)
    assert (found.memory_request_bytes, found.memory_limit_bytes) == (64 << 20, 64 << 20)
    assert found.ephemeral_storage_limit_bytes == GIB
    assert found.hugepage_limits_bytes == {"2MB": 0, "1GB": 0}
    assert found.unified == {"memory.oom.group": "1"}
    assert found.memory_swap_limit_bytes is None


def test_without_limits_nothing_is_limited():
    pod, container = with_container({})
    found = unit_resources(pod, container, make_node())
    assert (found.cpu_shares, found.cpu_quota_us, found.memory_limit_bytes) == (2, None, None)


@pytest.mark.parametrize(
    ("changes", "quota", "unified"),
    [
        ({"cpu_cfs_quota": False}, None, {"memory.oom.group": "1"}),
        ({"cgroup_version": 1}, 50_000, {}),
        ({"single_process_oom_kill": True}, 50_000, {}),
        ({"cpu_cfs_quota_period_us": 10_000}, 5_000, {"memory.oom.group": "1"}),
    ],
)
def test_settings_of_the_node_count(changes, quota, unified):
    pod, container = with_container(needs({"cpu": "500m"}))
    found = unit_resources(pod, container, make_node(**changes))
    assert (found.cpu_quota_us, found.unified) == (quota, unified)


def test_hugepages_are_named_by_their_size():
    pod, container = with_container(
        needs({"hugepages-2Mi": "4Mi", "hugepages-1Gi": "2Gi", "hugepages-64Ki": "64Ki"})
    )
    found = unit_resources(pod, container, make_node(hugepage_sizes=("2MB",)))
    assert found.hugepage_limits_bytes == {"2MB": 4 << 20, "1GB": 2 * GIB, "64KB": 65_536}


BURSTABLE = ({"memory": "1Gi"}, {"memory": "512Mi"})
GUARANTEED = ({"cpu": "1", "memory": "1Gi"}, {"cpu": "1", "memory": "1Gi"})


@pytest.mark.parametrize(
    ("mode", "resources", "swap"),
    [
        ("NoSwap", BURSTABLE, "0"),
        ("LimitedSwap", BURSTABLE, str(128 << 20)),
        ("LimitedSwap", GUARANTEED, "0"),
        ("LimitedSwap", ({}, {}), "0"),
        ("LimitedSwap", ({"memory": "1Gi"}, {"cpu": "1"}), "0"),
    ],
)
def test_swap_is_off_except_for_burstable_pods_that_may(mode, resources, swap):
    pod, container = with_container(needs(*resources))
    node = make_node(swap_controller=True, memory_swap=mode, swap_capacity_bytes=2 * GIB)
    found = unit_resources(pod, container, node)
    assert (found.unified["memory.swap.max"], found.memory_swap_limit_bytes) == (swap, None)


@pytest.mark.parametrize(("controller", "expected"), [(True, GIB), (False, None)])
def test_the_old_cgroups_limit_memory_and_swap_together(controller, expected):
    pod, container = with_container(needs(*BURSTABLE))
    found = unit_resources(pod, container, make_node(cgroup_version=1, swap_controller=controller))
    assert (found.memory_swap_limit_bytes, found.unified) == (expected, {})


@pytest.mark.parametrize(
    ("container", "spec", "score"),
    [
        ({}, {}, 1000),
        (needs({"cpu": "1", "memory": "1Gi"}, {"cpu": "1", "memory": "1Gi"}), {}, -997),
        (needs(requests={"memory": "1Gi"}), {}, 875),
        (needs(requests={"cpu": "1"}), {}, 999),
        (needs(requests={"memory": "100Gi"}), {}, 3),
        ({}, {"priorityClassName": "system-node-critical", "priority": 2_000_001_000}, -997),
        ({}, {"priorityClassName": "system-node-critical"}, 1000),
    ],
)
def test_oom_scores_follow_quality_of_service(container, spec, score):
    pod, made = with_container(container, **spec)
    assert oom_score_adj(pod, made, 8 * GIB) == score


def test_a_static_pod_of_the_critical_class_is_critical():
    pod = make_pod(
        {"priorityClassName": "system-node-critical"}, annotations={"kubernetes.io/config.source": "file"}
    )
    assert oom_score_adj(pod, pod.spec.containers[0], 8 * GIB) == -997


def test_a_sidecar_does_not_die_before_the_containers_it_serves():
    sidecar = {"name": "s", "restartPolicy": "Always", **needs(requests={"memory": "1Mi"})}
    pod, regular = with_container(needs(requests={"memory": "2Gi"}), initContainers=[sidecar])
    assert oom_score_adj(pod, regular, 8 * GIB) == 750
    assert oom_score_adj(pod, pod.spec.init_containers[0], 8 * GIB) == 750


@given(st.integers(0, 10**13), st.integers(0, 10**12))
def test_burstable_scores_stay_between_the_other_classes(request, capacity):
    pod, container = with_container(needs(requests={"memory": str(request), "cpu": "1"}))
    assert 3 <= oom_score_adj(pod, container, capacity) <= 999


def test_a_sandbox_is_the_sum_of_its_containers_and_overhead_stands_apart():
    spec = {
        "overhead": {"cpu": "250m", "memory": "10Mi"},
        "containers": [
            {"name": "a", **needs({"cpu": "1", "memory": "100Mi"}, {"cpu": "500m", "memory": "50Mi"})},
            {"name": "b", **needs({"cpu": "1", "memory": "100Mi"}, {"cpu": "500m", "memory": "50Mi"})},
        ],
    }
    pod, node = make_pod(spec), make_node()
    whole = sandbox_resources(pod, node)
    assert (whole.cpu_request_millicores, whole.cpu_limit_millicores) == (1000, 2000)
    assert (whole.memory_request_bytes, whole.memory_limit_bytes) == (100 << 20, 200 << 20)
    overhead = overhead_resources(pod, node)
    assert overhead is not None
    assert (overhead.cpu_limit_millicores, overhead.memory_limit_bytes) == (250, 10 << 20)
    assert overhead_resources(make_pod(), node) is None


@pytest.mark.parametrize(
    ("container", "shares", "memory"),
    [
        ({}, 2, None),
        (needs({"cpu": "1", "memory": "1Gi"}, {"cpu": "1", "memory": "1Gi"}), 1024, GIB),
        (needs({"memory": "1Gi"}, {"cpu": "100m"}), 102, GIB),
    ],
)
def test_a_pod_has_the_limits_that_all_its_containers_have(container, shares, memory):
    pod, _ = with_container(container)
    found = pod_cgroup_resources(pod, make_node(pod_pids_limit=100))
    assert (found.cpu_shares, found.memory_limit_bytes, found.pids_limit) == (shares, memory, 100)


def test_one_free_container_means_that_the_pod_is_not_limited():
    spec = {"containers": [{"name": "a", **needs({"memory": "1Gi"})}, {"name": "b"}]}
    assert pod_cgroup_resources(make_pod(spec), make_node()).memory_limit_bytes is None


def test_a_container_without_a_limit_of_its_own_has_the_pods():
    pod, container = with_container(
        needs({"memory": "64Mi"}),
        resources={"limits": {"cpu": "500m", "memory": "1Gi"}, "requests": {"cpu": "100m", "memory": "64Mi"}},
    )
    found = unit_resources(pod, container, make_node())
    assert (found.cpu_quota_us, found.memory_limit_bytes) == (50_000, 64 << 20)


def test_what_the_pod_requests_beyond_its_containers_counts_for_each_of_them():
    regular = {"name": "a", "image": "i", **needs(requests={"memory": "1Gi"})}
    pod = make_pod(
        {
            "resources": {"requests": {"memory": "4Gi"}},
            "containers": [regular],
            "initContainers": [{"name": "s", "image": "i", "restartPolicy": "Always"}],
        }
    )
    both = [oom_score_adj(pod, one, 8 * GIB) for one in (*pod.spec.containers, *pod.spec.init_containers)]
    assert both == [1000 - 1000 * 5 // 16, 1000 - 1000 * 5 // 16]
