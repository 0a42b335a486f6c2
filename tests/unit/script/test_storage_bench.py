"""Figures of the storage benchmarks, and records that are measured with a few of them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from script.benchmarks import storage_records
from script.benchmarks.model import TINY, Figure, Result
from script.benchmarks.storage import many_result, mount_result
from script.benchmarks.storage_child import AGENT, CHECKED, DRIVER, FLOOR, StorageTimes
from script.benchmarks.storage_node import StorageNode
from script.benchmarks.storage_unused import Costs, unused_result


def times(floor: float, checked: float, agent: float, driver: float) -> StorageTimes:
    """Two runs of each side, both with the same seconds."""
    seconds = {FLOOR: [floor] * 2, CHECKED: [checked] * 2, AGENT: [agent] * 2, DRIVER: [driver] * 2}
    return StorageTimes(mount=seconds, unmount=seconds, cpu=seconds)


def figure(result: Result, label: str) -> Figure:
    (found,) = [one for one in result.figures if one.label == label]
    return found


def test_a_mount_is_judged_by_its_milliseconds_over_the_floor() -> None:
    result = mount_result(times(0.010, 0.018, 0.029, 0.081))
    agent = figure(result, "mount of a volume by the storage agent")
    assert (agent.value, agent.floor, agent.goal, agent.is_met) == (29.0, 10.0, "≤ floor + 20 ms", True)
    assert figure(result, "mount of a volume through the driver").is_met is False
    assert figure(result, "unmount of a volume by the storage agent").is_met is True
    assert figure(result, "blkid and fsck before a mount, by hand").value == 8.0
    assert result.series["driver unmount"] == [0.081, 0.081]


def test_many_mounts_are_judged_by_the_same_steps_by_hand() -> None:
    result = many_result(times(1.0, 2.0, 2.5, 4.0), 50)
    agent = figure(result, "mounts of 50 volumes at once")
    assert (agent.value, agent.floor, agent.ratio, agent.is_met) == (20.0, 25.0, 0.8, True)
    alone = figure(result, "mounts of 50 volumes at once, beside losetup, mount and bind alone")
    assert (alone.floor, alone.ratio, alone.is_met) == (50.0, 0.4, None)
    assert figure(result, "CPU of mount and unmount, for each of 50 volumes").value == 50.0


def test_a_plugin_without_volumes_is_measured_by_its_difference_in_each_turn() -> None:
    bare = Costs(start_seconds=0.5, resident_mib=70.0, threads=9, watches=1)
    ours = Costs(start_seconds=0.53, resident_mib=70.5, threads=9, watches=2)
    memory, start = unused_result([bare, bare], [ours, ours]).figures
    assert (memory.value, memory.unit, memory.is_met) == (512, "KiB", True)
    assert (start.value, start.is_met) == (30.0, False)


def test_a_few_records_are_taken_released_and_scanned() -> None:
    result = storage_records.storage_records(TINY)
    assert [len(one.samples) for one in result.figures] == [2, 2, 2, 0]
    assert all(one.value >= 0 for one in result.figures)


def test_a_volume_has_the_same_path_for_driver_and_agent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mkfs.ext4").symlink_to("/bin/true")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    node = StorageNode(tmp_path / "node", volumes=2)
    assert node.names == ["pv-0", "pv-1"]
    request = node.request("pv-1")
    assert request.target == node.target("pv-1").path
    assert Path(request.target).is_dir()
    assert '"kubernetes.io/pvOrVolumeName": "pv-1"' in node.options("pv-1")
