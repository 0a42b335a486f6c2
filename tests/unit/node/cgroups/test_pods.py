from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest

from kubeletx.api import Internal, Resources
from kubeletx.kube.types.core import Container, Pod, PodSpec, ResourceRequirements
from kubeletx.kube.types.meta import ObjectMeta
from kubeletx.node.capacity import NodeResources
from kubeletx.node.cgroups.pods import (
    PodCgroupManager,
    SystemdSlices,
    make_driver,
    slice_name,
    slice_path,
    slice_properties,
)
from kubeletx.node.cgroups.trees import CgroupTrees, cpu_weight, v1_files, v2_files

T = TypeVar("T")

LIMITS = Resources(
    cpu_shares=512, cpu_quota_us=50_000, cpu_period_us=100_000, memory_limit_bytes=1 << 20, pids_limit=100
)


async def at_once(function: Callable[..., T], /, *args: Any) -> T:
    return function(*args)


def make_pod(
    uid: str = "u-1", *, requests: dict[str, str] | None = None, limits: dict[str, str] | None = None
) -> Pod:
    resources = ResourceRequirements(requests=requests or {}, limits=limits or {})
    return Pod(
        metadata=ObjectMeta(name="web", namespace="default", uid=uid),
        spec=PodSpec(containers=(Container(name="main", image="busybox", resources=resources),)),
    )


GUARANTEED = {"cpu": "1", "memory": "1Gi"}


class RecordingDriver:
    """A driver that remembers."""

    def __init__(self) -> None:
        self.made: list[str] = []
        self.limits: dict[str, Resources] = {}
        self.removed: list[str] = []

    def create(self, path: str) -> None:
        self.made.append(path)

    def limit(self, path: str, limits: Resources) -> None:
        self.limits[path] = limits

    def remove(self, path: str) -> None:
        self.removed.append(path)


def manager(driver: RecordingDriver, **settings: Any) -> PodCgroupManager:
    return PodCgroupManager(
        lambda: driver, limits_of=lambda _pod: Resources(cpu_shares=300), blocking=at_once, **settings
    )


async def test_a_pod_s_cgroup_stands_below_its_qos_class() -> None:
    driver = RecordingDriver()
    pods = manager(driver, root="/demo/")
    assert await pods.create(make_pod()) == "/demo/kubepods/besteffort/podu-1"
    assert await pods.create(make_pod(requests={"cpu": "1"})) == "/demo/kubepods/burstable/podu-1"
    assert await pods.create(make_pod(requests=GUARANTEED, limits=GUARANTEED)) == "/demo/kubepods/podu-1"
    assert driver.made[:3] == ["demo/kubepods", "demo/kubepods/burstable", "demo/kubepods/besteffort"]


async def test_without_qos_cgroups_pods_stand_in_the_root() -> None:
    pods = manager(RecordingDriver(), root="demo", per_qos=False)
    assert await pods.create(make_pod()) == "/demo/podu-1"


async def test_burstable_pods_share_the_sum_of_their_requests() -> None:
    driver = RecordingDriver()
    pods = manager(driver)
    one, two = (
        make_pod("u-1", requests={"cpu": "300m"}),
        make_pod("u-2", requests={"cpu": "300m"}),
    )
    await pods.create(one)
    await pods.create(two)
    await pods.create(two)
    assert driver.limits["kubepods/burstable"].cpu_shares == 600
    await pods.remove(one)
    assert driver.limits["kubepods/burstable"].cpu_shares == 300
    await pods.remove(two)
    assert driver.limits["kubepods/burstable"].cpu_shares == 2
    assert driver.limits["kubepods/besteffort"].cpu_shares == 2


async def test_shares_that_could_not_be_written_are_written_when_the_pod_tries_again() -> None:
    driver = RecordingDriver()
    cgroups = manager(driver)
    pod = make_pod("u-1", requests={"cpu": "1"})
    await cgroups.prepare()
    write = driver.limit

    def refuse(path: str, limits: Resources) -> None:
        if path == "kubepods/burstable":
            raise Internal("no")
        write(path, limits)

    driver.limit = refuse  # type: ignore[method-assign]
    with pytest.raises(Internal):
        await cgroups.create(pod)
    driver.limit = write  # type: ignore[method-assign]
    await cgroups.create(pod)
    assert driver.limits["kubepods/burstable"].cpu_shares == 300


async def test_a_restart_of_the_agent_leaves_the_shares_of_running_pods_alone() -> None:
    driver = RecordingDriver()
    running = [make_pod(f"u-{number}", requests={"cpu": "300m"}) for number in range(3)]
    before = manager(driver)
    for pod in running:
        await before.create(pod)
    after = manager(driver)
    await after.prepare()
    assert driver.limits["kubepods/burstable"].cpu_shares == 900
    await after.resume([*running, make_pod("best-effort")])
    assert driver.limits["kubepods/burstable"].cpu_shares == 900
    await after.remove(running[0])
    assert driver.limits["kubepods/burstable"].cpu_shares == 600


async def test_pods_that_ended_while_the_agent_was_away_are_no_longer_counted() -> None:
    driver = RecordingDriver()
    before = manager(driver)
    await before.create(make_pod("u-1", requests={"cpu": "300m"}))
    after = manager(driver)
    await after.prepare()
    await after.resume([])
    assert driver.limits["kubepods/burstable"].cpu_shares == 2


async def test_all_pods_together_get_the_allocatable() -> None:
    driver = RecordingDriver()
    await manager(driver).prepare(NodeResources(cpu_millicores=1500, memory_bytes=1 << 30))
    assert driver.limits["kubepods"] == Resources(cpu_shares=1536, memory_limit_bytes=1 << 30)


async def test_a_limit_that_running_pods_exceed_does_not_keep_the_agent_from_starting() -> None:
    driver = RecordingDriver()
    own = driver.limit

    def refuse(path: str, limits: Resources) -> None:
        if path == "kubepods":
            raise Internal("cannot write memory.limit_in_bytes: Device or resource busy")
        own(path, limits)

    driver.limit = refuse  # type: ignore[method-assign]
    pods = manager(driver)
    await pods.prepare(NodeResources(cpu_millicores=1500, memory_bytes=1 << 30))
    assert await pods.create(make_pod()) == "/kubepods/besteffort/podu-1"


@pytest.mark.parametrize("uid", ["", "a/b", "..", "../x"])
async def test_a_uid_that_is_not_a_file_name_makes_no_cgroup(uid: str) -> None:
    driver = RecordingDriver()
    with pytest.raises(Internal):
        await manager(driver).create(make_pod(uid))
    assert not [path for path in driver.made if "pod" in path.rpartition("/")[2] and path != "kubepods"]


# --- files ---


def fake_v1(root: Path) -> CgroupTrees:
    for name in ("cpu,cpuacct", "memory", "pids", "cpuset", "systemd"):
        (root / name).mkdir(parents=True)
        (root / name / "cgroup.procs").write_text("")
    (root / "cpu").symlink_to("cpu,cpuacct")
    (root / "unified").mkdir()
    (root / "unified/cgroup.procs").write_text("")
    (root / "unified/cgroup.controllers").write_text("")
    return CgroupTrees(root)


def fake_v2(root: Path) -> CgroupTrees:
    (root / "cgroup.controllers").write_text("cpu memory pids")
    (root / "cgroup.subtree_control").write_text("cpu")
    return CgroupTrees(root)


def test_v1_cgroups_are_made_in_every_tree_but_the_unified_one(tmp_path: Path) -> None:
    trees = fake_v1(tmp_path)
    assert trees.version == 1
    assert sorted(root.name for root in trees.roots) == [
        "cpu,cpuacct",
        "cpuset",
        "memory",
        "pids",
        "systemd",
    ]
    trees.create("a/b")
    trees.create("a/b")
    assert trees.exists("a/b")
    assert not (tmp_path / "unified/a").exists()
    (tmp_path / "unified/a/b").mkdir(parents=True)  # as runc does
    trees.remove("a")
    trees.remove("a")
    assert not trees.exists("a")
    assert not (tmp_path / "unified/a").exists()


def test_limits_are_written_where_the_kernel_has_the_file(tmp_path: Path) -> None:
    trees = fake_v1(tmp_path)
    trees.create("a")
    trees.limit("a", LIMITS)
    assert (tmp_path / "cpu,cpuacct/a/cpu.shares").read_text() == "512"
    assert (tmp_path / "memory/a/memory.limit_in_bytes").read_text() == str(1 << 20)
    with pytest.raises(FileNotFoundError):
        trees.limit("missing", LIMITS)


def test_v2_controllers_are_switched_on_for_children(tmp_path: Path) -> None:
    trees = fake_v2(tmp_path)
    assert trees.version == 2
    (tmp_path / "a").mkdir()
    for name in ("cgroup.controllers", "cgroup.subtree_control"):
        (tmp_path / "a" / name).write_text("")
    trees.create("a/b")
    assert (tmp_path / "cgroup.subtree_control").read_text() == "+pids"
    assert trees.exists("a/b")


def test_the_root_cgroup_is_never_removed(tmp_path: Path) -> None:
    with pytest.raises(Internal, match="never removed"):
        fake_v1(tmp_path).remove("/")


def test_a_cgroup_that_stays_busy_is_an_error(tmp_path: Path) -> None:
    trees = fake_v1(tmp_path)
    trees.create("a")
    (tmp_path / "memory/a/file").write_text("rmdir fails on this")
    with pytest.raises(Internal, match="cannot be removed"):
        trees.remove("a", wait_seconds=0)


def test_only_limits_that_are_set_are_written() -> None:
    assert v1_files(Resources()) == {}
    assert v2_files(Resources()) == {}
    assert list(v1_files(LIMITS)) == [
        ("cpu", "cpu.shares"),
        ("cpu", "cpu.cfs_period_us"),
        ("cpu", "cpu.cfs_quota_us"),
        ("memory", "memory.limit_in_bytes"),
        ("pids", "pids.max"),
    ]
    assert v2_files(LIMITS) == {
        ("cpu", "cpu.weight"): "20",
        ("cpu", "cpu.max"): "50000 100000",
        ("memory", "memory.max"): str(1 << 20),
        ("pids", "pids.max"): "100",
    }
    unlimited = Resources(cpu_quota_us=-1, memory_limit_bytes=-1, pids_limit=-1)
    assert set(v2_files(unlimited).values()) == {"max 100000", "max"}
    assert v1_files(unlimited)["pids", "pids.max"] == "max"
    assert v2_files(Resources(unified={"memory.oom.group": "1"})) == {("memory", "memory.oom.group"): "1"}


@pytest.mark.parametrize(("shares", "weight"), [(2, 1), (1024, 39), (262_144, 10_000), (0, 1)])
def test_shares_become_weights(shares: int, weight: int) -> None:
    assert cpu_weight(shares) == weight


# --- systemd ---


def test_slices_are_named_after_the_path() -> None:
    assert slice_name("/kubepods/burstable/pod1-2") == "kubepods-burstable-pod1_2.slice"
    assert slice_path("kubepods/pod1-2") == "kubepods.slice/kubepods-pod1_2.slice"


def test_slices_get_their_limits_from_systemctl(tmp_path: Path) -> None:
    commands: list[Sequence[str]] = []
    slices = SystemdSlices(fake_v1(tmp_path), run=commands.append)
    slices.create("kubepods/podu")
    slices.limit("kubepods/podu", LIMITS)
    slices.limit("kubepods/podu", Resources())
    slices.remove("kubepods/podu")
    assert commands == [
        ["systemctl", "start", "kubepods-podu.slice"],
        [
            *(
                "systemctl",
                "set-property",
                "--runtime",
                "kubepods-podu.slice",
                "CPUShares=512",
                "CPUQuota=50%",
            ),
            *("CPUQuotaPeriodSec=100000us", "MemoryLimit=1048576", "TasksMax=100"),
        ],
        ["systemctl", "stop", "kubepods-podu.slice"],
    ]
    assert slice_properties(LIMITS, 2)[0] == "CPUWeight=20"


def test_a_command_that_fails_says_what_it_said(tmp_path: Path) -> None:
    path = os.environ["PATH"]
    try:
        os.environ["PATH"] = str(tmp_path)
        with pytest.raises(Internal, match="systemctl start"):
            make_driver("systemd", fake_v1(tmp_path / "cgroup")).create("kubepods")
    finally:
        os.environ["PATH"] = path


async def test_changes_are_timed_by_the_kubelets_words() -> None:
    pods, pod = manager(RecordingDriver()), make_pod(requests={"cpu": "1"})
    await pods.create(pod)
    await pods.create(pod)
    await pods.remove(pod)
    found = {labels[0]: sum(one.counts) for labels, one in pods.durations.items()}
    assert found["create"] == 2  # of all pods, and of this one
    assert found["destroy"] == 1
    assert found["update"] >= 2
