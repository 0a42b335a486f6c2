"""Which driver makes pods' cgroups, and what becomes of a runtime that uses another one."""

from __future__ import annotations

import pytest
import structlog

from kubeletx.api import RuntimeHealth, Traits
from kubeletx.runtimes.cgroup_driver import CGROUPFS, MISMATCH, NodeCgroupDriver, choose
from kubeletx.runtimes.fleet import FleetConfig
from tests.unit.runtimes.conftest import World

HEALTHY = RuntimeHealth(runtime_ready=True, network_ready=True)


@pytest.mark.parametrize(
    ("configured", "reported", "driver"),
    [
        ("", [], "cgroupfs"),
        ("systemd", [], "systemd"),
        ("systemd", ["", ""], "systemd"),
        ("cgroupfs", ["systemd", ""], "systemd"),
        ("", ["", "systemd", "systemd"], "systemd"),
        ("", ["systemd", "cgroupfs"], "systemd"),
        ("cgroupfs", ["systemd", "cgroupfs"], "cgroupfs"),
    ],
)
def test_runtimes_decide_where_they_agree_and_the_flag_where_they_do_not(
    configured: str, reported: list[str], driver: str
) -> None:
    assert choose(configured, reported) == driver


def test_a_driver_in_use_stays_and_a_runtime_with_another_is_not_ready() -> None:
    reported = ["cgroupfs"]
    node = NodeCgroupDriver("", lambda: reported)
    assert node.use() == "cgroupfs"
    reported.insert(0, "systemd")
    assert node.use() == "cgroupfs"
    assert node.judge(HEALTHY, "cgroupfs") == HEALTHY
    assert node.judge(HEALTHY, "") == HEALTHY
    judged = node.judge(HEALTHY, "systemd")
    assert not judged.runtime_ready
    assert judged.conditions[-1].reason == MISMATCH
    assert "this runtime uses cgroup driver systemd, the node cgroupfs" in judged.message


def test_an_answer_against_the_configuration_is_reported_once() -> None:
    node = NodeCgroupDriver("systemd", lambda: [CGROUPFS])
    with structlog.testing.capture_logs() as said:
        assert [node.use(), node.use()] == ["cgroupfs", "cgroupfs"]
    assert [(line["driver"], line["configured"]) for line in said] == [("cgroupfs", "systemd")]


def test_without_cgroups_of_pods_nothing_has_to_agree() -> None:
    node = NodeCgroupDriver(None, lambda: ["systemd", "cgroupfs"])
    assert node.judge(HEALTHY, "cgroupfs") == HEALTHY


@pytest.mark.parametrize(("configured", "refused"), [("", "two"), ("systemd", "one"), (None, None)])
async def test_runtimes_that_disagree_are_distinguished(
    world: World, configured: str | None, refused: str | None
) -> None:
    world.endpoints = (world.endpoint("one"), world.endpoint("two"))
    world.plan_more = {"cgroup_driver": configured}
    world.traits = {"one": Traits(cgroup_driver="cgroupfs"), "two": Traits(cgroup_driver="systemd")}
    async with world.running() as registry:
        await world.until(lambda: all(handle.is_listed for handle in registry.handles()))
        await world.until(
            lambda: {h.name for h in registry.handles() if not h.state.ready} == ({refused} - {None})
        )
        if refused is not None:
            assert MISMATCH in registry.get(refused).state.message
            assert not (await registry.get(refused).health()).runtime_ready
    assert FleetConfig().cgroup_driver is None
