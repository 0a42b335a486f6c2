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
    make(tmp_path, "sys/fs/cgroup/system.slice/memory.swap.max")
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


def test_what_cannot_be_read_is_not_there(tmp_path):
    assert read_host_facts(2, tmp_path, "5.4") == HostFacts()


@pytest.mark.parametrize(
    ("size", "name"),
    [(512, "512B"), (65_536, "64KB"), (2 << 20, "2MB"), (1 << 30, "1GB"), (16 << 30, "16GB")],
)
def test_page_sizes_have_the_kernels_names(size, name):
    assert page_size_name(size) == name
