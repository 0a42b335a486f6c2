from pathlib import Path

from kubeletx.api import RuntimeName
from kubeletx.node.pressure import ImageDisk, find_image_disks, read_signals
from kubeletx.node.thresholds import NODE

A, B = RuntimeName("a"), RuntimeName("b")


def test_this_machine_can_be_measured(tmp_path: Path) -> None:
    found = read_signals(tmp_path, find_image_disks(tmp_path, {A: (str(tmp_path),)}), mono=7)
    assert {"memory.available", "nodefs.available", "imagefs.available", "pid.available"} <= {
        one.signal for one in found
    }
    assert all(0 <= one.available <= one.capacity and one.at == 7 for one in found)


def test_what_cannot_be_measured_is_left_out(tmp_path: Path) -> None:
    disk = ImageDisk(place="disk 0:1", path="/no/such", runtimes=frozenset({A}))
    assert read_signals(tmp_path / "missing", (disk,), mono=0, proc=tmp_path) == ()


def test_memory_and_process_ids_are_what_the_kernel_says(tmp_path: Path) -> None:
    (tmp_path / "sys/kernel").mkdir(parents=True)
    (tmp_path / "meminfo").write_text("MemTotal: 1000 kB\nMemAvailable: 10 kB\n")
    (tmp_path / "loadavg").write_text("0.1 0.1 0.1 1/95 7\n")
    (tmp_path / "sys/kernel/pid_max").write_text("100\n")
    (tmp_path / "sys/kernel/threads-max").write_text("200\n")
    found = {one.signal: one for one in read_signals(tmp_path / "missing", mono=0, proc=tmp_path)}
    assert (found["memory.available"].available, found["memory.available"].capacity) == (10240, 1024000)
    assert (found["pid.available"].available, found["pid.available"].capacity) == (5, 100)


def test_stores_on_one_disk_are_one_place_and_the_nodes_own_disk_is_no_other(tmp_path: Path) -> None:
    own = find_image_disks(tmp_path, {A: (str(tmp_path),), B: (str(tmp_path / "missing"),)})
    assert [(disk.place, disk.runtimes) for disk in own] == [(NODE, frozenset({A}))]
    other = find_image_disks(tmp_path, {A: ("/proc",), B: ("/proc/self",)})
    assert [disk.runtimes for disk in other] == [frozenset({A, B})]
    assert other[0].place.startswith("disk ")
