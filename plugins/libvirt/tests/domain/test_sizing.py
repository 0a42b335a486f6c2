"""How big a machine is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kubeletx_libvirt.domain.sizing import MIB, check_maximums, size_of

from kubeletx.api import InvalidPod, Machine, Resources

GIB = 1 << 30


def size(resources: Resources, **machine: int):  # type: ignore[no-untyped-def]
    return size_of(resources, Machine(**machine), default_memory_bytes=GIB, max_vcpus=64)


def test_half_a_cpu_is_one_processor_with_a_quota() -> None:
    found = size(Resources(cpu_limit_millicores=500))
    assert (found.vcpus, found.quota_us, found.period_us) == (1, 50_000, 100_000)


def test_a_whole_number_of_cpus_has_no_quota() -> None:
    assert (
        size(Resources(cpu_limit_millicores=2000)).vcpus,
        size(Resources(cpu_limit_millicores=2000)).quota_us,
    ) == (2, None)


def test_without_a_memory_limit_it_is_the_default_and_says_so() -> None:
    found = size(Resources())
    assert (found.memory_bytes, found.memory_is_default, found.vcpus) == (GIB, True, 1)


def test_maximums_are_never_below_the_size() -> None:
    found = size(
        Resources(cpu_limit_millicores=3000, memory_limit_bytes=GIB), max_vcpus=2, max_memory_bytes=MIB
    )
    assert (found.max_vcpus, found.max_memory_bytes) == (3, GIB)


def test_more_processors_than_the_node_allows_are_refused() -> None:
    with pytest.raises(InvalidPod, match="65 processors"):
        size(Resources(cpu_limit_millicores=64_001))


@given(st.integers(1, 64_000), st.integers(1, 1 << 40))
def test_quotas_add_up_to_the_limit_and_memory_to_whole_mebibytes(millicores: int, memory: int) -> None:
    found = size(Resources(cpu_limit_millicores=millicores, memory_limit_bytes=memory))
    assert found.vcpus == -(-millicores // 1000)
    if found.quota_us is not None and found.quota_us > 1_000:
        assert found.quota_us * found.vcpus <= millicores * found.period_us // 1000
    assert found.memory_bytes % MIB == 0
    assert memory <= found.memory_bytes < memory + MIB


@pytest.mark.parametrize(
    ("machine", "words"),
    [
        (Machine(max_vcpus=65), "65 processors are more than the 64 that a machine may have here"),
        (Machine(max_vcpus=1), "1 processors are less than the 2 that the machine starts with"),
        (
            Machine(max_memory_bytes=512 << 20),
            "512 MiB are less than the 1024 MiB that the machine gets by default",
        ),
    ],
)
def test_maximums_that_a_machine_cannot_have_are_refused_for_good(machine: Machine, words: str) -> None:
    resources = Resources(cpu_limit_millicores=2000)
    size = size_of(resources, machine, default_memory_bytes=1 << 30, max_vcpus=64)
    with pytest.raises(InvalidPod, match=words) as raised:
        check_maximums(size, machine, max_vcpus=64)
    assert raised.value.reason == "RuntimeUnsupported"
    check_maximums(size, Machine(max_vcpus=64, max_memory_bytes=1 << 30), max_vcpus=64)
