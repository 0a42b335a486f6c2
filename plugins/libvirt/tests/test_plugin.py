"""What the plugin registers, and which libvirts a runtime may use."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest
from kubeletx_libvirt.config import ImageSettings, Settings
from kubeletx_libvirt.plugin import (
    PARAMETERS,
    SCHEMES,
    is_this_machine,
    kubeletx_register_runtimes,
    make_runtime,
)
from kubeletx_libvirt.runtime import LibvirtRuntime

from kubeletx.api import ENTRY_POINT_GROUP, InvalidConfig
from kubeletx.testing import FakeHost, endpoint

OWN = "Node1.example.org"


def test_it_is_found_by_its_entry_point() -> None:
    (found,) = [e for e in entry_points(group=ENTRY_POINT_GROUP) if e.name == "libvirt"]
    assert found.load().kubeletx_register_runtimes is kubeletx_register_runtimes


def test_it_claims_machines() -> None:
    registered: list[tuple[str, Any, dict[str, Any]]] = []

    def register(kind: str, factory: Any, **what: Any) -> None:
        registered.append((kind, factory, what))

    kubeletx_register_runtimes(register)
    ((kind, factory, what),) = registered
    assert (kind, factory) == ("libvirt", make_runtime)
    assert what == {
        "workload_types": ("vm",),
        "schemes": SCHEMES,
        "default_claim": True,
        "settings": Settings,
        "parameters": PARAMETERS,
    }


def test_registering_does_not_load_libvirt() -> None:
    code = "import sys, kubeletx_libvirt.plugin; sys.exit('libvirt' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_making_a_runtime_does_not_connect(tmp_path: Path) -> None:
    runtime = make_runtime(
        endpoint("qemu+unix:///system?socket=/no/such", workload_type="vm"), None, FakeHost(tmp_path)
    )
    assert runtime.traits().details == ("machine",)


def test_a_terminal_may_be_asked_for_since_the_console_is_one(tmp_path: Path) -> None:
    runtime = make_runtime(endpoint("test:///default", workload_type="vm"), None, FakeHost(tmp_path))
    assert not {"stdin", "tty"} & set(runtime.traits().refuses)


def test_the_image_stores_defaults_are_the_plugins() -> None:
    """Local images without `imageDirectories` are then allowed to pods of manifests."""
    stores = ImageSettings()
    assert all(getattr(Settings(), name) == getattr(stores, name) for name in ImageSettings.__struct_fields__)


async def test_without_a_pod_network_the_runtime_is_not_ready_and_pods_wait(tmp_path: Path) -> None:
    runtime = make_runtime(endpoint("test:///default", workload_type="vm"), None, FakeHost(tmp_path))
    assert isinstance(runtime, LibvirtRuntime)
    assert "pod-network" not in runtime.traits().refuses
    await runtime.connection.open()
    try:
        health = await runtime.health()
    finally:
        await runtime.connection.close()
    assert not health.network_ready
    assert "--cni-conf-dir" in health.message


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
