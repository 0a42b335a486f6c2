"""Reading the kernel's files about cgroups and the machine, in both layouts."""

from __future__ import annotations

from pathlib import Path

import pytest

from kubeletx.node.cgroups.processes import read_processes
from kubeletx.node.cgroups.psi import Pressures, PressureStall, Stall
from kubeletx.node.cgroups.text import text_of
from kubeletx.node.cgroups.trees import CgroupTrees
from kubeletx.node.cgroups.usage import (
    BlockDeviceUsage,
    CgroupSpec,
    CgroupUsage,
    children,
    device_name,
    own_cgroup,
    parse_io_stat,
    read_cgroup,
    read_interfaces,
)
from kubeletx.node.host_usage import read_host
from kubeletx.node.info import read_machine

NET_DEV = """Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo:     100       1    0    0    0     0          0         0      100       1    0    0    0     0       0          0
  eth0:    1656      20    1    2    0     0          0         0     1032      14    3    4    0     0       0          0
"""


def write(directory: Path, **files: str) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (directory / name.replace("__", ".")).write_text(text)


def test_the_unified_layout(tmp_path: Path) -> None:
    write(tmp_path, cgroup__controllers="cpu memory")
    unit = tmp_path / "kubepods/pod1/unit"
    write(
        unit,
        cgroup__procs="77\n78\n",
        cpu__stat="usage_usec 9\nuser_usec 4000000\nsystem_usec 500000\nnr_periods 5\nnr_throttled 2\nthrottled_usec 1500000\n",
        memory__stat="anon 30\nfile 20\nfile_mapped 3\npgfault 8\npgmajfault 1\n",
        memory__events="low 0\noom 1\noom_kill 1\n",
        io__stat="8:0 rbytes=1 wbytes=2 rios=3 wios=4 dbytes=0 dios=0\n8:16\n",
    )
    (unit / "memory.swap.current").write_text("6\n")
    trees = CgroupTrees(tmp_path)
    assert read_cgroup(trees, "kubepods/pod1/unit") == CgroupUsage(
        cpu_seconds=9e-6,
        own_major_faults=1,
        own_faults=8,
        periods=5,
        throttled_periods=2,
        throttled_seconds=1.5,
        user_seconds=4.0,
        system_seconds=0.5,
        cache_bytes=20,
        rss_bytes=30,
        mapped_bytes=3,
        swap_bytes=6,
        major_faults=1,
        faults=8,
        oom_kills=1,
        disks=(BlockDeviceUsage(device="8:0", read_bytes=1, write_bytes=2, reads=3, writes=4),),
    )
    assert children(trees, "kubepods/pod1") == ("unit",)
    proc = tmp_path / "proc"
    write(proc / "77/net", dev=NET_DEV)
    (eth0,) = read_interfaces(trees, "kubepods/pod1/unit", proc=proc)
    assert (eth0.name, eth0.rx_bytes, eth0.rx_dropped, eth0.tx_packets, eth0.tx_errors) == (
        "eth0",
        1656,
        2,
        14,
        3,
    )


def test_the_split_layout(tmp_path: Path) -> None:
    for controller in ("cpu", "cpuacct", "memory", "blkio"):
        write(tmp_path / controller, cgroup__procs="")
    write(tmp_path / "cpu/pod1/unit", cpu__stat="nr_periods 5\nnr_throttled 2\nthrottled_time 1500000000\n")
    write(tmp_path / "cpuacct/pod1/unit", cpuacct__stat="user 54\nsystem 130\n")
    write(
        tmp_path / "memory/pod1/unit",
        cgroup__procs="77\n",
        memory__stat="cache 1\ntotal_cache 20\ntotal_rss 30\ntotal_swap 0\ntotal_pgfault 8\n",
        memory__oom_control="oom_kill_disable 0\nunder_oom 0\noom_kill 2\n",
    )
    disk = tmp_path / "blkio/pod1/unit"
    write(disk)
    (disk / "blkio.throttle.io_service_bytes_recursive").write_text(
        "8:0 Read 1\n8:0 Write 2\n8:0 Total 3\nTotal 3\n"
    )
    (disk / "blkio.throttle.io_serviced_recursive").write_text("8:0 Read 5\n8:0 Write 6\nTotal 11\n")
    found = read_cgroup(CgroupTrees(tmp_path), "pod1/unit")
    assert (found.periods, found.throttled_seconds, found.user_seconds) == (5, 1.5, 0.54)
    assert (found.cache_bytes, found.rss_bytes, found.swap_bytes, found.oom_kills) == (20, 30, 0, 2)
    assert found.disks == (BlockDeviceUsage(device="8:0", read_bytes=1, write_bytes=2, reads=5, writes=6),)


def test_what_is_gone_has_no_figures(tmp_path: Path) -> None:
    write(tmp_path, cgroup__controllers="cpu")
    trees = CgroupTrees(tmp_path)
    assert read_cgroup(trees, "gone") == CgroupUsage()
    assert read_interfaces(trees, "gone") == ()
    assert children(trees, "gone") == ()


def test_devices_have_names(tmp_path: Path) -> None:
    write(tmp_path / "8:0", uevent="MAJOR=8\nMINOR=0\nDEVNAME=sda\nDEVTYPE=disk\n")
    assert device_name("8:0", directory=tmp_path) == "/dev/sda"
    assert device_name("8:1", directory=tmp_path) == "8:1"


def test_the_machine(tmp_path: Path) -> None:
    write(
        tmp_path,
        stat="cpu  100 1 50 9999 77 2 3 4 5 6\ncpu0 1 1 1 1\nbtime 1770000000\n",
        meminfo="MemTotal: 1000 kB\nMemFree: 400 kB\nInactive(file): 100 kB\nAnonPages: 50 kB\nSwapTotal: 10 kB\nSwapFree: 4 kB\n",
        vmstat="pgfault 7\npgmajfault 1\n",
        diskstats="   7 0 loop0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n 254 0 vda 1 2 3 4 5 6 7 8 9 10 11 12\n",
    )
    write(tmp_path / "net", dev=NET_DEV)
    found = read_host(tmp_path, proc=tmp_path)
    assert found.cpu_core_ns == (100 + 1 + 50 + 2 + 3 + 4) * 10_000_000
    assert found.booted_at == 1_770_000_000
    assert found.memory_usage_bytes == 600 * 1024
    assert found.memory_working_set_bytes == 500 * 1024
    assert found.swap_usage_bytes == 6 * 1024
    assert found.disks == {"254:0": (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11)}
    assert found.fs is not None


def test_this_machine_can_be_read(tmp_path: Path) -> None:
    before = read_host(tmp_path)
    sum(range(2_000_000))
    after = read_host(tmp_path)
    assert after.cpu_core_ns >= before.cpu_core_ns > 0
    assert 0 < after.memory_working_set_bytes < after.memory_capacity_bytes


def test_a_disks_words_that_are_not_numbers_are_left_out() -> None:
    text = "8:0 rbytes=1 wbytes=2 rios=3 wios=4 cost.vrate=99.80 depth=max avg_lat=7\n8:16 depth=max\n"
    assert parse_io_stat(text) == (
        BlockDeviceUsage(device="8:0", read_bytes=1, write_bytes=2, reads=3, writes=4),
    )


PSI = "some avg10=1.50 avg60=0.20 avg300=0.00 total=3000000\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=1000\n"


def test_memory_limits_and_pressure_of_the_unified_layout(tmp_path: Path) -> None:
    write(tmp_path, cgroup__controllers="cpu memory")
    unit = tmp_path / "unit"
    write(
        unit,
        memory__current="1000",
        memory__peak="4000",
        memory__stat="inactive_file 300\nactive_file 50\nkernel 7\n",
        memory__events="max 12\n",
        memory__max="max",
        memory__min="64",
        cpu__weight="79",
        cpu__max="50000 100000",
        cpu__pressure=PSI,
        io__pressure="some avg10=0.00",
    )
    (unit / "memory.swap.max").write_text("0\n")
    found = read_cgroup(CgroupTrees(tmp_path), "unit")
    assert (found.memory_bytes, found.max_memory_bytes, found.working_set_bytes) == (1000, 4000, 700)
    assert (found.inactive_file_bytes, found.active_file_bytes, found.kernel_bytes) == (300, 50, 7)
    assert found.memory_failures == 12
    assert found.spec == CgroupSpec(
        cpu_shares=2046,
        cpu_quota_us=50_000,
        cpu_period_us=100_000,
        memory_limit_bytes=0,
        memory_reservation_bytes=64,
        swap_limit_bytes=0,
        swap_file_bytes=0,
    )
    some = Stall(avg10=1.5, avg60=0.2, total_us=3_000_000)
    assert found.pressures == Pressures(cpu=PressureStall(some=some, full=Stall(total_us=1000)))


def test_memory_limits_and_pressure_of_the_split_layout(tmp_path: Path) -> None:
    for name in ("cpu", "cpuacct", "memory", "blkio"):
        write(tmp_path / name, cgroup__procs="")
    write(tmp_path / "unified", cgroup__procs="", cgroup__controllers="")
    write(tmp_path / "unified/unit", memory__pressure=PSI)
    write(
        tmp_path / "memory/unit",
        memory__usage_in_bytes="1000",
        memory__max_usage_in_bytes="4000",
        memory__failcnt="12",
        memory__limit_in_bytes="2000",
        memory__soft_limit_in_bytes="9223372036854771712",
        memory__stat="pgfault 1\ntotal_pgfault 3\ntotal_inactive_file 300\n",
    )
    (tmp_path / "memory/unit/memory.memsw.limit_in_bytes").write_text("2500")
    write(tmp_path / "cpu/unit", cpu__shares="512", cpu__cfs_quota_us="-1", cpu__cfs_period_us="100000")
    write(tmp_path / "cpuacct/unit", cpuacct__usage="2500000000")
    found = read_cgroup(CgroupTrees(tmp_path), "unit")
    assert found.cpu_seconds == 2.5
    assert (found.memory_bytes, found.max_memory_bytes, found.working_set_bytes) == (1000, 4000, 700)
    assert (found.own_faults, found.faults, found.memory_failures) == (1, 3, 12)
    assert found.spec == CgroupSpec(
        cpu_shares=512,
        cpu_quota_us=0,
        cpu_period_us=100_000,
        memory_limit_bytes=2000,
        memory_reservation_bytes=0,
        swap_limit_bytes=500,
        swap_file_bytes=2500,
    )
    assert found.pressures.memory is not None
    assert found.pressures.memory.some.total_us == 3_000_000
    assert found.pressures.cpu is None


@pytest.mark.parametrize("version", [1, 2])
def test_processes_threads_files_and_sockets_are_counted(tmp_path: Path, version: int) -> None:
    root = tmp_path / "cgroup"
    if version == 2:
        write(root, cgroup__controllers="cpu memory pids")
        unit = root / "unit"
        write(unit, cgroup__procs="77\n78\n79\n", pids__current="5", pids__max="max")
    else:
        write(root / "memory", cgroup__procs="")
        unit = root / "memory/unit"
        write(unit, cgroup__procs="77\n78\n79\n", tasks="77\n78\n79\n80\n81\n")
    for pid, links in (("77", ("/dev/null", "socket:[1]")), ("78", ("socket:[2]",))):
        directory = tmp_path / "proc" / pid / "fd"
        directory.mkdir(parents=True)
        for number, target in enumerate(links):
            (directory / str(number)).symlink_to(target)
        (directory.parent / "stat").write_text(f"{pid} (a) R) S 1 77 77 0\n")
    found = read_processes(CgroupTrees(root), "unit", proc=tmp_path / "proc")
    assert (found.processes, found.threads) == (3, 5)
    assert found.max_threads == (0 if version == 2 else None)
    assert found.sockets == 2
    assert found.states == {"sleeping": 2, "running": 0, "stopped": 0, "uninterruptible": 0}


def test_a_kernel_that_counts_no_swap_has_the_limit_zero(tmp_path: Path) -> None:
    write(tmp_path / "one/memory", cgroup__procs="")
    write(tmp_path / "one/memory/unit", memory__limit_in_bytes="9")
    write(tmp_path / "two", cgroup__controllers="cpu memory")
    write(tmp_path / "two/unit", memory__max="9")
    for version in ("one", "two"):
        assert read_cgroup(CgroupTrees(tmp_path / version), "unit").spec.swap_limit_bytes == 0


def test_sockets_among_too_many_files_are_not_counted(tmp_path: Path) -> None:
    write(tmp_path / "cgroup/memory", cgroup__procs="")
    write(tmp_path / "cgroup/memory/unit", cgroup__procs="77\n")
    (tmp_path / "77/fd").mkdir(parents=True)
    for number in range(3):
        (tmp_path / f"77/fd/{number}").symlink_to("socket:[1]")
    trees = CgroupTrees(tmp_path / "cgroup")
    # The size of the directory counts as the number of files, as in /proc; for this directory it is another number.
    count = (tmp_path / "77/fd").stat().st_size or 3
    found = read_processes(trees, "unit", proc=tmp_path, max_links=count - 1)
    assert (found.file_descriptors, found.sockets) == (count, None)
    assert read_processes(trees, "unit", proc=tmp_path, max_links=count).sockets == 3


def test_the_machine_has_cores_sockets_and_names(tmp_path: Path) -> None:
    cpus = tmp_path / "sys/devices/system/cpu"
    for number, (socket, core) in enumerate([("0", "0"), ("0", "0"), ("0", "1"), ("1", "0")]):
        write(cpus / f"cpu{number}/topology", physical_package_id=f"{socket}\n", core_id=f"{core}\n")
    write(tmp_path / "etc", machine_id="x")
    (tmp_path / "etc/machine-id").write_text("abc\n")
    found = read_machine(tmp_path)
    assert (found.physical_cores, found.sockets, found.machine_id) == (3, 2, "abc")
    assert read_machine(tmp_path / "none").physical_cores == 0


def test_the_agents_own_cgroup_is_found_in_both_layouts(tmp_path: Path) -> None:
    write(tmp_path / "proc/self", cgroup="5:cpuacct,cpu:/system.slice/kubeletx.service\n0::/unified\n")
    write(tmp_path / "v1/cpuacct", cgroup__procs="")
    write(tmp_path / "v2", cgroup__controllers="cpu")
    assert own_cgroup(CgroupTrees(tmp_path / "v1"), proc=tmp_path / "proc") == "system.slice/kubeletx.service"
    assert own_cgroup(CgroupTrees(tmp_path / "v2"), proc=tmp_path / "proc") == "unified"
    assert own_cgroup(CgroupTrees(tmp_path / "v2"), proc=tmp_path / "none") == ""


def test_a_file_is_read_to_its_end_whatever_is_in_it(tmp_path: Path) -> None:
    file = tmp_path / "memory.stat"
    file.write_bytes(b"x" * 200_000 + b"\xff\n")
    assert len(text_of(file)) == 200_002
    assert text_of(tmp_path / "none") == ""
    assert text_of(tmp_path) == ""
