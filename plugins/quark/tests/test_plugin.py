"""Registration of the plugin, and the settings in an endpoint's URL."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest
from kubeletx_quark.config import QuarkConfig, StopName, StrategyName
from kubeletx_quark.plugin import kubeletx_register_runtimes, make_runtime
from kubeletx_quark.runtime import QuarkRuntime

from kubeletx.api import ENTRY_POINT_GROUP, InvalidConfig, SupportsStandby, UnitState, Unsupported
from kubeletx.testing import FakeHost, endpoint, sandbox_spec, unit_spec
from kubeletx_testing.cri_server import FakeCriServer

URL = "unix:///run/containerd/containerd.sock"


def config(tmp_path: Path, parameters: str) -> QuarkConfig:
    runtime = make_runtime(endpoint(f"{URL}?{parameters}"), None, FakeHost(tmp_path))
    assert isinstance(runtime, QuarkRuntime)
    return runtime.config


def test_it_is_found_by_its_entry_point() -> None:
    (found,) = [e for e in entry_points(group=ENTRY_POINT_GROUP) if e.name == "quark"]
    assert found.load().kubeletx_register_runtimes is kubeletx_register_runtimes


def test_it_serves_containers_over_unix_if_it_is_named() -> None:
    registered: list[tuple[str, Any, dict[str, Any]]] = []

    def register(kind: str, factory: Any, **what: Any) -> None:
        registered.append((kind, factory, what))

    kubeletx_register_runtimes(register)
    ((kind, factory, what),) = registered
    assert (kind, factory) == ("quark", make_runtime)
    assert (what["workload_types"], what["schemes"]) == (("container",), ("unix",))
    assert not what.get("default_claim")


def test_registering_does_not_load_grpc() -> None:
    code = "import sys, kubeletx_quark.plugin; sys.exit('grpc' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_settings_have_defaults_and_are_read_from_the_url(tmp_path: Path) -> None:
    assert config(tmp_path, "") == QuarkConfig(strategy=None, stop=StopName.CRI)
    read = config(tmp_path, "strategy=signal&freeze-signal=10&thaw-signal=12&stop=kill")
    assert read == QuarkConfig(
        strategy=StrategyName.SIGNAL, freeze_signal=10, thaw_signal=12, stop=StopName.KILL
    )
    assert (QuarkConfig().freeze_signal, QuarkConfig().thaw_signal) == (19, 18)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ("strategy=ice", "unknown strategy 'ice' in its URL; use one of: freezer, pause, signal"),
        ("stop=hard", "unknown stop 'hard' in its URL; use one of: cri, kill"),
        ("strategy=signal&freeze-signal=65", "freeze-signal '65' is not a signal"),
        ("strategy=signal&thaw-signal=CONT", "thaw-signal 'CONT' is not a signal"),
    ],
)
def test_wrong_settings_are_refused(tmp_path: Path, parameters: str, message: str) -> None:
    with pytest.raises(InvalidConfig, match=f"runtime under-test: {message}"):
        config(tmp_path, parameters)


async def test_without_a_freezer_pods_run_and_a_freeze_says_why(tmp_path: Path) -> None:
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "mountinfo").write_text("23 1 0:2 / / rw - ext4 /dev/sda rw\n")
    async with FakeCriServer(tmp_path, uuid="1234") as server:
        at = endpoint(f"{server.url}?strategy=freezer")
        runtime = QuarkRuntime(at, None, FakeHost(tmp_path), proc=tmp_path)
        await runtime.open()
        server.model.add_image("busybox")
        sandbox = sandbox_spec("one")
        sandbox_id = await runtime.create_sandbox(sandbox)
        unit_id = await runtime.create_unit(sandbox_id, unit_spec("main"), sandbox)
        await runtime.start_unit(unit_id)
        standby = runtime.capability(SupportsStandby)
        assert standby is not None
        with pytest.raises(Unsupported, match="no cgroup hierarchy with controller freezer is mounted"):
            await standby.freeze(unit_id)
        assert (await runtime.unit_status(unit_id)).summary.state is UnitState.RUNNING
        await runtime.close()


async def test_standby_needs_containerd(tmp_path: Path) -> None:
    async with FakeCriServer(tmp_path) as server:
        runtime = make_runtime(endpoint(server.url), None, FakeHost(tmp_path))
        await runtime.open()
        assert runtime.capability(SupportsStandby) is None
        server.uuid = "1234"
        await runtime.open()
        assert runtime.capability(SupportsStandby) is not None
        await runtime.close()
