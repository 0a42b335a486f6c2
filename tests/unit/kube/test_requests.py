from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeletx.kube.qos import qos_class
from kubeletx.kube.requests import (
    Amounts,
    effective_limits,
    effective_requests,
    enforceable_limits,
    measured_limits,
    workloads,
)
from kubeletx.kube.types.core import Container, PodSpec, ResourceRequirements
from tests.unit.kube.pod_text import full_pod


def amounts(found: Amounts) -> dict[str, str]:
    return {name: str(amount) for name, amount in found.items()}


def container(
    name: str, cpu: str | None = None, *, memory: str | None = None, sidecar: bool = False
) -> Container:
    given_amounts = {"cpu": cpu, "memory": memory}
    requests = {key: text for key, text in given_amounts.items() if text is not None}
    resources = ResourceRequirements(requests=requests, limits=requests)
    return Container(name=name, resources=resources, restart_policy="Always" if sidecar else None)


@pytest.mark.parametrize(
    ("init", "regular", "cpu"),
    [
        ([], ["1", "500m"], "1500m"),
        ([("2", False)], ["1", "500m"], "2"),
        ([("1", False), ("1", False)], ["1", "500m"], "1500m"),
        ([("1", True)], ["1"], "2"),
        ([("1", True), ("3", False)], ["1"], "4"),
        ([("3", False), ("1", True)], ["1"], "3"),
        ([("1", True), ("1", True), ("1", False)], [], "3"),
    ],
)
def test_init_containers_count_at_their_peak_and_sidecars_always(
    init: list[tuple[str, bool]], regular: list[str], cpu: str
) -> None:
    spec = PodSpec(
        init_containers=tuple(container("i", text, sidecar=sidecar) for text, sidecar in init),
        containers=tuple(container("c", text) for text in regular),
    )
    assert amounts(effective_requests(spec)) == {"cpu": cpu}
    assert amounts(effective_limits(spec)) == {"cpu": cpu}


def test_overhead_is_added_to_requests_and_to_limits_that_exist() -> None:
    spec = PodSpec(containers=(container("c", "1"),), overhead={"cpu": "250m", "memory": "64Mi"})
    assert amounts(effective_requests(spec)) == {"cpu": "1250m", "memory": "64Mi"}
    assert amounts(effective_limits(spec)) == {"cpu": "1250m"}


def test_pod_level_resources_replace_the_sum() -> None:
    spec = PodSpec(
        containers=(container("c", "1", memory="1Gi"),),
        resources=ResourceRequirements(requests={"cpu": "3"}, limits={"cpu": "4"}),
    )
    assert amounts(effective_requests(spec)) == {"cpu": "3", "memory": "1Gi"}
    assert amounts(enforceable_limits(spec)) == {"cpu": "4", "memory": "1Gi"}


def test_a_pod_is_limited_only_by_what_every_container_limits() -> None:
    spec = PodSpec(containers=(container("a", "1", memory="1Gi"), container("b", "1")))
    assert amounts(effective_limits(spec)) == {"cpu": "2", "memory": "1Gi"}
    assert amounts(enforceable_limits(spec)) == {"cpu": "2"}


def test_limits_beside_usage_are_numbers_and_a_quantity_that_cannot_be_read_is_none() -> None:
    limited = PodSpec(containers=(container("a", "1500m", memory="64Mi"),))
    assert measured_limits(limited) == (1500, 64 * 1024 * 1024)
    assert measured_limits(PodSpec(containers=(container("a"),))) == (None, None)
    assert measured_limits(PodSpec(containers=(container("a", "many"),))) == (None, None)


def test_a_machine_is_the_pods_one_workload() -> None:
    spec = full_pod("virtualMachine: {name: vm, image: i, resources: {limits: {cpu: 2, memory: 1Gi}}}").spec
    assert [workload.name for workload in workloads(spec)] == ["vm"]
    assert amounts(effective_requests(spec)) == {"cpu": "2", "memory": "1Gi"}
    assert qos_class(spec) == "Guaranteed"


@given(
    st.lists(st.tuples(st.integers(0, 9), st.booleans()), max_size=5), st.lists(st.integers(0, 9), max_size=4)
)
def test_no_moment_of_a_pods_life_needs_more_than_its_requests(
    init: list[tuple[int, bool]], regular: list[int]
) -> None:
    spec = PodSpec(
        init_containers=tuple(container("i", str(cpu), sidecar=sidecar) for cpu, sidecar in init),
        containers=tuple(container("c", str(cpu)) for cpu in regular),
    )
    moments, sidecars = [0], 0
    for cpu, is_sidecar in init:
        moments.append(sidecars + cpu)
        sidecars += cpu if is_sidecar else 0
    moments.append(sidecars + sum(regular))
    found = effective_requests(spec).get("cpu")
    assert (found.value if found else 0) == max(moments)


@pytest.mark.parametrize(
    ("resources", "qos"),
    [
        ("", "BestEffort"),
        ("resources: {limits: {ephemeral-storage: 1Gi}}", "BestEffort"),
        ("resources: {requests: {cpu: 0}}", "BestEffort"),
        ("resources: {requests: {cpu: 100m}}", "Burstable"),
        ("resources: {limits: {cpu: 1}}", "Burstable"),
        ("resources: {limits: {cpu: 1, memory: 1Gi}}", "Guaranteed"),
        ("resources: {limits: {cpu: 1000m, memory: 1024Mi}, requests: {cpu: 1, memory: 1Gi}}", "Guaranteed"),
        ("resources: {limits: {cpu: 1, memory: 1Gi}, requests: {cpu: 500m}}", "Burstable"),
    ],
)
def test_the_qos_class_follows_cpu_and_memory(resources: str, qos: str) -> None:
    assert qos_class(full_pod(container=resources).spec) == qos


def test_one_container_without_limits_makes_the_pod_burstable() -> None:
    text = "resources: {limits: {cpu: 1, memory: 1Gi}}"
    assert (
        qos_class(
            full_pod(
                f"initContainers: [{{name: i, image: i}}], containers: [{{name: c, image: i, {text}}}]"
            ).spec
        )
        == "Burstable"
    )
    assert (
        qos_class(full_pod(f"containers: [{{name: b, image: i}}, {{name: c, image: i, {text}}}]").spec)
        == "Burstable"
    )


def test_pod_level_resources_decide_alone() -> None:
    spec = "resources: {requests: {cpu: 1}, limits: {cpu: 1, memory: 1Gi}}"
    assert qos_class(full_pod(spec, container="resources: {requests: {cpu: 100m}}").spec) == "Guaranteed"


def test_a_pod_with_limits_requests_what_its_containers_do_and_else_its_limits() -> None:
    found = full_pod(
        "resources: {limits: {cpu: 400m, memory: 200Mi}}", container="resources: {requests: {cpu: 50m}}"
    )
    assert found.spec.resources.requests == {"cpu": "50m", "memory": "200Mi"}
    assert qos_class(found.spec) == "Burstable"
    assert full_pod("resources: {requests: {cpu: 1}}").spec.resources.requests == {"cpu": "1"}
