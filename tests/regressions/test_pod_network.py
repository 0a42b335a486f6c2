"""A pod whose network is not configured yet waits for it, and an event says why."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from kubeletx.runtimes.cni import CniPodNetwork
from kubeletx.testing import FakeClock
from tests.unit.pods.manager_model import Node, a_pod

WHY = "no CNI configuration in /etc/cni/net.d; put a .conflist file there"


@pytest.fixture
def network(tmp_path: Path) -> Iterator[CniPodNetwork]:
    made = CniPodNetwork(
        conf_dir=tmp_path / "net.d",
        bin_dirs=[tmp_path / "bin"],
        state_dir=tmp_path / "state",
        owner="agent",
        clock=FakeClock(),
    )
    yield made
    made.close()


async def test_the_pod_network_reports_why_no_pod_can_be_attached(
    tmp_path: Path, network: CniPodNetwork
) -> None:
    assert "cannot read" in await network.problem()
    (tmp_path / "net.d").mkdir()
    assert "no CNI configuration" in await network.problem()
    plugins = [{"type": "bridge"}]
    (tmp_path / "net.d" / "10.conflist").write_text(json.dumps({"name": "n", "plugins": plugins}))
    assert "'bridge' is not in" in await network.problem()
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "bridge").touch()
    assert await network.problem() == ""


async def test_a_pod_waits_for_the_network_and_its_event_says_what_is_missing(tmp_path: Path) -> None:
    node = Node(tmp_path, "one")
    async with node.running() as manager:
        runtime = node.runtimes["one"]
        runtime.network_ready = False
        await node.until(lambda: not node.registry.get("one").state.network_ready)
        manager.update("file", a_pod())
        await node.until(lambda: "NetworkNotReady" in node.sink.reasons())
        said = next(e.message for e in node.sink.recorded if e.reason == "NetworkNotReady")
        assert said == "network is not ready: NetworkReady is false: Scripted"
        assert node.phase("uid-web") == "Pending"
        runtime.network_ready = True
        await node.until(lambda: node.phase("uid-web") == "Running")
