from __future__ import annotations

from pathlib import Path

import pytest

from kubeletx.pods.specs.host_facts import HostFacts, page_size_name, read_host_facts


def make(root: Path, path: str, text: str = "") -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)


def test_a_machine_with_everything_is_described(tmp_path):
    for size in ("1048576", "2048"):
        make(tmp_path, f"sys/kernel/mm/hugepages/hugepages-{size}kB/nr_hugepages")
    make(tmp_path, "proc/meminfo", "MemTotal: 100 kB\nSwapTotal:        2048 kB\n")
    for name in ("max", "swap.max"):
        make(tmp_path, f"sys/fs/cgroup/system.slice/memory.{name}")
    assert read_host_facts(2, tmp_path, "6.1.0-18-amd64") == HostFacts(
        hugepage_sizes=("2MB", "1GB"),
        swap_capacity_bytes=2 << 20,
        swap_controller=True,
        recursive_read_only=True,
    )


def test_the_old_cgroups_have_their_own_sign(tmp_path):
    assert not read_host_facts(1, tmp_path).swap_controller
    make(tmp_path, "sys/fs/cgroup/memory/memory.memsw.limit_in_bytes")
    assert read_host_facts(1, tmp_path).swap_controller


@pytest.mark.parametrize(
    ("controllers", "swaps", "options", "has_it"),
    [
        ("cpuset cpu io memory pids", "Filename Type\n", "quiet", True),
        ("cpuset cpu io memory pids", None, "quiet", False),
        ("cpuset cpu io memory pids", "Filename Type\n", "quiet swapaccount=0", False),
        ("cpuset cpu io pids", "Filename Type\n", "quiet", False),
    ],
    ids=["all", "kernel without swap", "switched off", "no memory controller"],
)
def test_before_any_cgroup_has_the_memory_controller_the_kernel_s_lists_are_used(
    tmp_path, controllers, swaps, options, has_it
):
    """A node without systemd, at the first start of the agent."""
    make(tmp_path, "sys/fs/cgroup/cgroup.controllers", f"{controllers}\n")
    make(tmp_path, "sys/fs/cgroup/other/cgroup.procs")
    make(tmp_path, "proc/cmdline", f"{options}\n")
    if swaps is not None:
        make(tmp_path, "proc/swaps", swaps)
    assert read_host_facts(2, tmp_path).swap_controller is has_it


def test_a_cgroup_with_the_memory_controller_and_no_limit_of_swap_decides(tmp_path):
    make(tmp_path, "sys/fs/cgroup/cgroup.controllers", "memory\n")
    make(tmp_path, "sys/fs/cgroup/system.slice/memory.max")
    make(tmp_path, "proc/swaps", "Filename Type\n")
    assert not read_host_facts(2, tmp_path).swap_controller


def test_what_cannot_be_read_is_not_there(tmp_path):
    assert read_host_facts(2, tmp_path, "5.4") == HostFacts()


@pytest.mark.parametrize(
    ("size", "name"),
    [(512, "512B"), (65_536, "64KB"), (2 << 20, "2MB"), (1 << 30, "1GB"), (16 << 30, "16GB")],
)
def test_page_sizes_have_the_kernels_names(size, name):
    assert page_size_name(size) == name
