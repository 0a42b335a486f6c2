"""What the plugin registers."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from kubeletx_libvirt.config import Settings
from kubeletx_libvirt.images.settings import ImageSettings
from kubeletx_libvirt.plugin import PARAMETERS, SCHEMES, kubeletx_register_runtimes, make_runtime

from kubeletx.api import ENTRY_POINT_GROUP
from kubeletx.testing import FakeHost, endpoint


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
    assert "pod-network" not in runtime.traits().refuses
    await runtime.connection.open()
    try:
        health = await runtime.health()
    finally:
        await runtime.connection.close()
    assert not health.network_ready
    assert "--cni-conf-dir" in health.message
