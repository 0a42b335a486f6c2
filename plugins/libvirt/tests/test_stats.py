"""libvirt's figures as ours."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kubeletx_libvirt.domain.metadata import Identity
from kubeletx_libvirt.stats import stats_of

from kubeletx.api import PodUid, SandboxId, UnitId, UnitStats

DISKS = Path("/state/disks/pod")


def test_figures_of_the_emulator_and_of_the_pods_own_disk_count() -> None:
    one = figures_of(
        {
            "cpu.time": 7_000_000_000,
            "balloon.rss": 2048,
            "balloon.usable": 512,
            "block.count": 2,
            "block.0.path": "/state/disks/pod/root-1.qcow2",
            "block.0.allocation": 4096,
            "block.1.path": "/dev/volume",
            "block.1.allocation": 1 << 40,
        }
    )
    assert one.cpu_usage_core_ns == 7_000_000_000
    assert one.memory_working_set_bytes == one.memory_rss_bytes == 2 << 20
    assert one.memory_available_bytes == 512 << 10
    assert one.fs_used_bytes == 4096


def test_what_is_not_measured_is_none_and_not_zero() -> None:
    one = figures_of({"block.count": 1, "block.0.path": "/state/disks/pod/root-1.qcow2"})
    assert (one.cpu_usage_core_ns, one.memory_working_set_bytes, one.fs_used_bytes) == (None, None, None)


def figures_of(figures: dict[str, Any]) -> UnitStats:
    identity = Identity(
        agent_id="a",
        runtime="r",
        sandbox_id=SandboxId("s"),
        uid=PodUid("u"),
        namespace="default",
        pod="web",
        sandbox_attempt=0,
        unit="main",
        attempt=0,
        image="",
        image_ref="",
        created_at_ns=1,
    )
    return stats_of(UnitId("d"), identity, figures, disks=DISKS, at_ns=5)
