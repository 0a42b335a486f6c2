"""Resources and QoS (R1 to R4): what is asked of the runtime, and what the kernel's cgroup files say."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kubeletx_testing.lab.cgroups import cgroups_below, list_container_cgroups
from tests.integration.support.bench import Bench, container_id, one_container, with_containers


def limits(cpu: str = "", memory: str = "") -> dict[str, str]:
    return {key: value for key, value in (("cpu", cpu), ("memory", memory)) if value}


_PODS: dict[str, dict[str, Any]] = {
    "guaranteed": {"resources": {"limits": limits("250m", "64Mi")}},
    "burstable": {"resources": {"requests": limits("100m", "6Gi"), "limits": limits("500m")}},
    "best-effort": {},
    "tiny": {"resources": {"requests": limits("1m"), "limits": limits("1m")}},
}


@pytest.fixture(scope="module", autouse=True)
def pods(bench: Bench) -> None:
    for name, container in _PODS.items():
        bench.put(name, container=container)
    for name in _PODS:
        bench.ready(name)


def linux(bench: Bench, name: str, container: str = "main") -> dict[str, Any]:
    found: dict[str, Any] = bench.request(name, container)["linux"]["resources"]
    return found


def cgroup_file(bench: Bench, name: str, file: str, container: str = "main") -> str:
    """A file of the container's cgroup, in whichever hierarchy has it."""
    one = container_id(bench.pod(name), container)
    for path in list_container_cgroups({one}):
        if (path / file).is_file():
            return (path / file).read_text().strip()
    raise AssertionError(f"no {file} for {name}")


def has_v2() -> bool:
    return Path("/sys/fs/cgroup/cgroup.controllers").exists()


def test_qos_classes_are_in_the_status(bench: Bench) -> None:
    found = {name: bench.pod(name).status.qos_class for name in _PODS}
    assert found == {
        "guaranteed": "Guaranteed",
        "burstable": "Burstable",
        "best-effort": "BestEffort",
        "tiny": "Burstable",
    }


def test_cpu_becomes_shares_and_quota(bench: Bench) -> None:
    guaranteed, burstable = linux(bench, "guaranteed"), linux(bench, "burstable")
    assert (guaranteed["cpu_shares"], guaranteed["cpu_period"], guaranteed["cpu_quota"]) == (
        256,
        100_000,
        25_000,
    )
    assert (burstable["cpu_shares"], burstable["cpu_quota"]) == (102, 50_000)
    assert linux(bench, "best-effort")["cpu_shares"] == 2
    assert linux(bench, "best-effort").get("cpu_quota", 0) <= 0
    assert (linux(bench, "tiny")["cpu_shares"], linux(bench, "tiny")["cpu_quota"]) == (2, 1000)


def test_memory_limits_are_asked_for(bench: Bench) -> None:
    assert linux(bench, "guaranteed")["memory_limit_in_bytes"] == 64 * 1024 * 1024
    assert "memory_limit_in_bytes" not in linux(bench, "best-effort")


def test_oom_scores_follow_the_qos_class(bench: Bench) -> None:
    capacity = next(
        int(line.split()[1]) * 1024
        for line in Path("/proc/meminfo").read_text().splitlines()
        if "MemTotal" in line
    )
    assert linux(bench, "guaranteed")["oom_score_adj"] == -997
    assert linux(bench, "best-effort")["oom_score_adj"] == 1000
    expected = min(max(1000 - 1000 * 6 * 2**30 // capacity, 3), 999)
    assert abs(linux(bench, "burstable")["oom_score_adj"] - expected) <= 1
    assert linux(bench, "tiny")["oom_score_adj"] == 999


def test_a_sidecars_oom_score_is_no_worse_than_that_of_a_regular_container(bench: Bench) -> None:
    sidecar = one_container("helper", restartPolicy="Always")
    main = one_container("main", resources={"requests": limits("", "6Gi")})
    bench.put("sidecar-oom", spec=with_containers(main, initContainers=[sidecar]))
    bench.ready("sidecar-oom")
    assert (
        linux(bench, "sidecar-oom", "helper")["oom_score_adj"] == linux(bench, "sidecar-oom")["oom_score_adj"]
    )


def test_the_kernel_has_the_limits(bench: Bench) -> None:
    if has_v2():
        assert cgroup_file(bench, "guaranteed", "cpu.max") == "25000 100000"
        assert cgroup_file(bench, "guaranteed", "memory.max") == str(64 * 1024 * 1024)
    else:
        assert cgroup_file(bench, "guaranteed", "cpu.shares") == "256"
        assert cgroup_file(bench, "guaranteed", "cpu.cfs_quota_us") == "25000"
        assert cgroup_file(bench, "guaranteed", "memory.limit_in_bytes") == str(64 * 1024 * 1024)
        assert cgroup_file(bench, "best-effort", "cpu.shares") == "2"


def test_pods_stand_below_their_qos_class_with_the_sum_of_their_limits(bench: Bench) -> None:
    root = bench.agent.cgroup_root
    paths = {path.name: path for path in cgroups_below(root)}
    places = {"guaranteed": "", "burstable": "burstable", "best-effort": "besteffort"}
    for name, parent in places.items():
        pod = bench.pod(name)
        path = paths[f"pod{pod.metadata.uid}"]
        assert path.parent.name == (parent or "kubepods")
        assert str(path).endswith("/".join(filter(None, (root, "kubepods", parent, path.name))))
        assert f"pod{pod.metadata.uid}" in bench.sandbox_request(name)["linux"]["cgroup_parent"]
    if not has_v2():
        uid = bench.pod("guaranteed").metadata.uid
        for path in cgroups_below(root):
            if path.name == f"pod{uid}" and (path / "memory.limit_in_bytes").exists():
                assert (path / "memory.limit_in_bytes").read_text().strip() == str(64 * 1024 * 1024)
            if path.name == f"pod{uid}" and (path / "cpu.cfs_quota_us").exists():
                assert (path / "cpu.cfs_quota_us").read_text().strip() == "25000"
                assert (path / "cpu.shares").read_text().strip() == "256"


def test_a_pids_limit_holds_for_the_whole_pod(make_bench: Callable[..., Bench]) -> None:
    few = make_bench(flags=("--pod-max-pids=20",))
    few.put("crowd", "for i in $(seq 40); do sleep 5 & done; wait", spec={"restartPolicy": "Never"})
    assert few.ended("crowd").status.phase == "Failed"
    assert "Resource temporarily unavailable" in few.logs("crowd")


def test_huge_pages_are_forbidden_unless_asked_for(bench: Bench) -> None:
    asked = linux(bench, "best-effort").get("hugepage_limits", [])
    sizes = [path.name for path in Path("/sys/kernel/mm/hugepages").glob("hugepages-*")]
    assert len(asked) == len(sizes)
    assert all(not one.get("limit") for one in asked)
