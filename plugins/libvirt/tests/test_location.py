"""Which libvirts a runtime may use."""

from __future__ import annotations

from pathlib import Path

import pytest
from kubeletx_libvirt.plugin import is_this_machine, make_runtime

from kubeletx.api import InvalidConfig
from kubeletx.testing import FakeHost, endpoint

OWN = "Node1.example.org"


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.1.2.3", "::1", "node1.example.org", "NODE1"])
def test_loopback_and_the_machines_own_name_are_this_machine(host: str) -> None:
    assert is_this_machine(host, OWN)


@pytest.mark.parametrize("host", ["10.0.0.7", "fd00::7", "node2", "node2.example.org", "node1.example.com"])
def test_any_other_name_or_address_is_another(host: str) -> None:
    assert not is_this_machine(host, OWN)


@pytest.mark.parametrize(
    "url",
    [
        "qemu+tcp://127.0.0.1/system",
        "qemu+tls://[::1]/system",
        "qemu+ssh://root@localhost:22/system",
        "qemu:///system",
    ],
)
def test_a_way_to_this_machine_is_taken(url: str, tmp_path: Path) -> None:
    assert not make_runtime(endpoint(url, workload_type="vm"), None, FakeHost(tmp_path)).traits().remote


@pytest.mark.parametrize("url", ["qemu:///embed", "qemu:///embed?root=", "qemu:///embed?socket=/x"])
def test_an_embedded_driver_without_a_directory_is_refused_at_the_start(url: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match=r"names no directory .* write qemu:///embed\?root=DIRECTORY"):
        make_runtime(endpoint(url, workload_type="vm"), None, FakeHost(tmp_path))


@pytest.mark.parametrize("url", ["qemu+tcp://10.0.0.7/system", "qemu+tls://far.example/system?no_verify=1"])
def test_a_way_to_another_is_refused_with_the_reason(url: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match=r"on another machine, .* run an agent on that machine"):
        make_runtime(endpoint(url, workload_type="vm"), None, FakeHost(tmp_path))
