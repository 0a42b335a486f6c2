"""The ranges of pods' addresses reach the runtimes that take them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from kubeletx.api import SupportsNetworkConfig, Unavailable
from kubeletx.kube.types.meta import ObjectMeta
from kubeletx.kube.types.node import Node, NodeSpec
from kubeletx.runtimes.pod_cidrs import PodCidrs
from kubeletx.runtimes.registry import RuntimeRegistry
from tests.unit.runtimes.conftest import World

RANGES = ("10.1.2.0/24", "fd00::/64")
Three = tuple[World, RuntimeRegistry, PodCidrs]


@pytest.fixture
async def three(world: World) -> AsyncIterator[Three]:
    """Runtimes one, two and three, which takes no ranges."""
    world.endpoints = tuple(world.endpoint(name) for name in ("one", "two", "three"))
    world.without["three"] = (SupportsNetworkConfig,)
    async with world.running() as registry:
        cidrs = PodCidrs(registry, clock=world.clock)
        task = asyncio.create_task(cidrs.run())
        yield world, registry, cidrs
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def ranges(world: World) -> list[tuple[str, ...]]:
    return [runtime.pod_cidrs for runtime in world.runtimes.values()]


async def test_a_runtime_that_fails_gets_the_ranges_later_and_disturbs_no_other(
    three: Three,
) -> None:
    world, _, cidrs = three
    world.runtimes["one"].script("set_pod_cidrs", times=2, error=Unavailable("busy"))
    await cidrs.apply(RANGES)
    assert ranges(world) == [(), RANGES, ()]
    await world.until(lambda: ranges(world) == [RANGES, RANGES, ()])
    assert len(world.runtimes["two"].calls("set_pod_cidrs")) == 1


async def test_a_runtime_that_comes_back_gets_the_ranges_again(three: Three) -> None:
    world, registry, cidrs = three
    await cidrs.apply(RANGES)
    two = world.runtimes["two"]
    two.backend.kill()
    await world.until(lambda: not registry.get("two").state.reachable)
    two.pod_cidrs = ()
    two.backend.revive()
    await world.until(lambda: ranges(world) == [RANGES, RANGES, ()])
    assert len(world.runtimes["one"].calls("set_pod_cidrs")) == 1


async def test_ranges_of_a_cluster_reach_the_runtimes(three: Three) -> None:
    world, _, cidrs = three
    cidrs.node_changed(None)
    cidrs.node_changed(Node(metadata=ObjectMeta(name="n"), spec=NodeSpec(pod_cidr=RANGES[0])))
    await world.until(lambda: ranges(world) == [RANGES[:1], RANGES[:1], ()])
    cidrs.node_changed(Node(metadata=ObjectMeta(name="n"), spec=NodeSpec(pod_cidrs=RANGES)))
    await world.until(lambda: ranges(world) == [RANGES, RANGES, ()])
    cidrs.node_changed(Node(metadata=ObjectMeta(name="n")))
    await cidrs.apply(RANGES)
    assert [len(one.calls("set_pod_cidrs")) for one in world.runtimes.values()] == [2, 2, 0]
