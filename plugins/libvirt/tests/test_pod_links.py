"""How often a pod's place in the network is looked at; what it is made of, the tests with a real network show."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from kubeletx_libvirt.network.names import INNER_BRIDGE, INNER_DEVICE
from kubeletx_libvirt.network.namespaces import OwnThreads
from kubeletx_libvirt.network.netlink import Device
from kubeletx_libvirt.network.pod_links import TRUSTED_SECONDS, PodLinks
from kubeletx_libvirt.network.wiring import Wiring

from kubeletx.api import PodAddress, PodUid, Unavailable
from kubeletx.testing import FakeClock, FakeHost, sandbox_spec


class Network:
    """A pod network that always gives the same address."""

    async def add(self, uid: str, name: str, namespace: str, netns: str, ports: list[Any]) -> PodAddress:
        return PodAddress(ips=("10.1.2.3/24",), netns=netns, interface="eth0", mac="02:00:00:00:00:01")

    async def problem(self) -> str:
        return ""

    async def check(self, uid: PodUid) -> bool:
        return True

    async def delete(self, uid: PodUid) -> None:
        pass


class CountingWiring(Wiring):
    """Nothing is made; `inside` is what the pod's namespace holds."""

    def __init__(self) -> None:
        super().__init__(OwnThreads())
        self.domains = 0
        self.has_devices = True
        self.inside: dict[str, Device] = {}

    def is_held(self, netns: Path) -> bool:
        return netns.exists()

    def has_device(self, name: str) -> bool:
        return self.has_devices

    async def make_namespace(self, uid: str, path: Path) -> None:
        pass

    async def give_back(self, uid: str, netns: Path, interface: str, ips: Iterable[str]) -> None:
        raise Unavailable("network: the interface is gone")  # does not keep a pod from ending

    async def unmount(self, uid: str, path: Path) -> None:
        path.unlink()

    async def join(self, uid: str, netns: Path, interface: str, mac: str) -> int | None:
        self.domains += 1
        bridge = Device(name=INNER_BRIDGE, index=1, is_up=True, mtu=1500)
        ports = [
            Device(name=name, index=2, is_up=True, mtu=1500, master=bridge.index)
            for name in (interface, INNER_DEVICE)
        ]
        self.inside = {one.name: one for one in (bridge, *ports)}
        return 1500

    async def list_devices(self, uid: str, netns: Path) -> dict[str, Device]:
        self.domains += 1
        return self.inside

    async def remove(self, uid: str) -> None:
        pass


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def wiring() -> CountingWiring:
    return CountingWiring()


@pytest.fixture
def links(tmp_path: Path, clock: FakeClock, wiring: CountingWiring) -> PodLinks:
    host = FakeHost(tmp_path, clock=clock, pod_network=Network())
    return PodLinks(host, wiring=wiring)


async def test_a_start_looks_into_the_namespace_once(links: PodLinks, wiring: CountingWiring) -> None:
    sandbox = sandbox_spec("one")
    link = await links.attach(sandbox)
    assert await links.attach(sandbox) == link
    assert await links.check(sandbox.uid)
    assert wiring.domains == 1


async def test_a_link_that_lost_its_inside_is_found_out_after_some_seconds(
    links: PodLinks, wiring: CountingWiring, clock: FakeClock
) -> None:
    sandbox = sandbox_spec("one")
    await links.attach(sandbox)
    wiring.inside = {}
    clock.advance(TRUSTED_SECONDS)
    assert not await links.check(sandbox.uid)


async def test_a_link_that_lost_its_device_is_found_out_at_once(
    links: PodLinks, wiring: CountingWiring
) -> None:
    sandbox = sandbox_spec("one")
    await links.attach(sandbox)
    wiring.has_devices = False
    assert not await links.check(sandbox.uid)


async def test_a_released_link_is_trusted_no_more(links: PodLinks, wiring: CountingWiring) -> None:
    sandbox = sandbox_spec("one")
    await links.attach(sandbox)
    wiring.has_devices = False
    await links.release(sandbox.uid)
    wiring.has_devices = True
    assert await links.find(sandbox.uid) is None
    await links.attach(sandbox)
    assert wiring.domains == 2
