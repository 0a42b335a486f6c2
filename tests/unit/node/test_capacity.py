from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeletx.api import InvalidConfig
from kubeletx.node.capacity import (
    NodeResources,
    allocatable,
    missing_resources,
    read_capacity,
    resource_list,
)

MI = 1 << 20


def test_allocatable_is_capacity_less_everything_kept() -> None:
    capacity = NodeResources(
        cpu_millicores=4000, memory_bytes=1000 * MI, ephemeral_storage_bytes=10_000 * MI, pods=110
    )
    found = allocatable(
        capacity,
        kube_reserved={"cpu": "200m", "memory": "100Mi"},
        system_reserved={"cpu": "1", "ephemeral-storage": "500Mi"},
        hard_eviction={"memory.available": "100Mi", "nodefs.available": "10%", "imagefs.available": "15%"},
    )
    assert found == NodeResources(
        cpu_millicores=2800, memory_bytes=800 * MI, ephemeral_storage_bytes=8500 * MI, pods=110
    )


@given(
    st.builds(
        NodeResources,
        cpu_millicores=st.integers(0, 10**6),
        memory_bytes=st.integers(0, 2**45),
        ephemeral_storage_bytes=st.integers(0, 2**50),
        pods=st.integers(0, 1000),
    ),
    st.integers(0, 2**50),
)
def test_allocatable_is_never_negative_nor_above_capacity(capacity: NodeResources, kept: int) -> None:
    found = allocatable(
        capacity,
        system_reserved={"cpu": str(kept), "memory": str(kept), "ephemeral-storage": str(kept)},
        hard_eviction={"memory.available": "5%"},
    )
    assert 0 <= found.cpu_millicores <= capacity.cpu_millicores
    assert 0 <= found.memory_bytes <= capacity.memory_bytes
    assert 0 <= found.ephemeral_storage_bytes <= capacity.ephemeral_storage_bytes
    assert found.pods == capacity.pods


def test_a_quantity_that_makes_no_sense_is_refused_by_name() -> None:
    with pytest.raises(InvalidConfig, match=r"kubeReserved\.cpu"):
        allocatable(NodeResources(), kube_reserved={"cpu": "many"})


def test_a_threshold_that_makes_no_sense_is_refused_by_name_and_one_of_all_there_is_keeps_nothing() -> None:
    capacity = NodeResources(memory_bytes=1000 * MI, ephemeral_storage_bytes=1000 * MI)
    with pytest.raises(InvalidConfig, match=r"evictionHard\.memory\.available"):
        allocatable(capacity, hard_eviction={"memory.available": "much%"})
    off = {"memory.available": "100%", "nodefs.available": "0%"}
    assert allocatable(capacity, hard_eviction=off) == capacity


def test_amounts_are_written_as_the_kubelet_does() -> None:
    resources = NodeResources(
        cpu_millicores=1500,
        memory_bytes=2048 * 1024,
        ephemeral_storage_bytes=5 * 1024,
        pods=7,
        hugepages_bytes={"2Mi": 4 * MI},
    )
    assert resource_list(resources) == {
        "cpu": "1500m",
        "memory": "2048Ki",
        "ephemeral-storage": "5Ki",
        "pods": "7",
        "hugepages-2Mi": "4Mi",
    }


def test_the_machine_s_capacity_is_read(tmp_path: Path) -> None:
    found = read_capacity(tmp_path, max_pods=110)
    assert missing_resources(found) == ()
    assert found.pods == 110
    assert found.cpu_millicores % 1000 == 0
    assert read_capacity(tmp_path, max_pods=110, pods_per_core=1).pods == found.cpu_millicores // 1000


def test_hugepages_are_counted_and_missing_resources_named(tmp_path: Path) -> None:
    pages = tmp_path / "sys/kernel/mm/hugepages/hugepages-2048kB"
    pages.mkdir(parents=True)
    (pages / "nr_hugepages").write_text("3\n")
    (tmp_path / "meminfo").write_text("MemFree: 1 kB\n")
    found = read_capacity(tmp_path, max_pods=0, proc=tmp_path, sys=tmp_path / "sys")
    assert found.hugepages_bytes == {"2Mi": 6 * MI}
    assert missing_resources(found) == ("memory", "pods")
