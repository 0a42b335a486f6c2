"""Pod cgroups on the real kernel, below a private parent."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from kubeletx.api import Resources
from kubeletx.kube.types.core import Container, Pod, PodSpec, ResourceRequirements
from kubeletx.kube.types.meta import ObjectMeta
from kubeletx.node.cgroups.pods import PodCgroupManager
from kubeletx.node.cgroups.trees import CgroupTrees

LIMITS = Resources(
    cpu_shares=512, cpu_period_us=100_000, cpu_quota_us=50_000, memory_limit_bytes=64 << 20, pids_limit=50
)


@pytest.fixture
def root() -> Iterator[str]:
    """A cgroup of this test alone."""
    name = f"kubeletx-test-{os.getpid()}"
    yield name
    CgroupTrees().remove(name)


@pytest.fixture
def pod() -> Pod:
    """A burstable pod."""
    resources = ResourceRequirements(requests={"cpu": "500m"})
    return Pod(
        metadata=ObjectMeta(name="web", namespace="default", uid="u-1"),
        spec=PodSpec(containers=(Container(name="main", image="x", resources=resources),)),
    )


def read(trees: CgroupTrees, path: str, v1: tuple[str, str], v2: str) -> str:
    directory = Path("/sys/fs/cgroup") if trees.version == 2 else Path("/sys/fs/cgroup", v1[0])
    return (directory / path / (v2 if trees.version == 2 else v1[1])).read_text().strip()


async def test_a_pod_s_cgroup_has_its_limits_takes_processes_and_is_removed_with_them(
    root: str, pod: Pod
) -> None:
    trees = CgroupTrees()
    manager = PodCgroupManager(
        lambda: trees, limits_of=lambda _pod: LIMITS, blocking=asyncio.to_thread, root=root
    )
    path = (await manager.create(pod)).strip("/")
    assert path == f"{root}/kubepods/burstable/podu-1"
    assert trees.exists(path)
    assert read(trees, path, ("memory", "memory.limit_in_bytes"), "memory.max") == str(64 << 20)
    assert read(trees, path, ("pids", "pids.max"), "pids.max") == "50"
    assert read(trees, path, ("cpu", "cpu.shares"), "cpu.weight") in ("512", "20")
    assert read(trees, f"{root}/kubepods/burstable", ("cpu", "cpu.shares"), "cpu.weight") in ("512", "20")

    trees.create(f"{path}/container")
    sleeper = await asyncio.create_subprocess_exec("sleep", "1000")
    for directory in trees.roots:
        (directory / path / "container/cgroup.procs").write_text(str(sleeper.pid))
    assert trees.processes(path) == {sleeper.pid}

    await manager.remove(pod)
    assert await sleeper.wait() == -9
    assert not any((directory / path).exists() for directory in trees.roots)
    await manager.remove(pod)
