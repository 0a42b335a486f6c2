"""How often a pod's place in the network is looked at; what it is made of, the tests with a real network show."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from kubeletx_libvirt.network import PodLinks, pod_links
from kubeletx_libvirt.network.ip import Ip

from kubeletx.api import PodAddress, PodUid
from kubeletx.testing import FakeClock, FakeHost, sandbox_spec

NIC = {"flags": ["UP"], "mtu": 1500}


class Network:
    """A pod network that always gives the same address."""

    async def add(self, uid: str, name: str, namespace: str, netns: str, ports: list[Any]) -> PodAddress:
        return PodAddress(ips=("10.1.2.3/24",), netns=netns, interface="eth0", mac="02:00:00:00:00:01")

    async def check(self, uid: PodUid) -> bool:
        return True

    async def delete(self, uid: PodUid) -> None:
        pass


class CountingIp(Ip):
    """No program runs; `inside` is what the pod's namespace holds."""

    def __init__(self) -> None:
        super().__init__()
        self.looks = 0
        self.inside: dict[str, dict[str, Any]] = {"eth0": NIC}

    async def make_namespace(self, path: Path) -> None:
        pass

    async def hold_no_more(self, path: Path) -> None:
        os.unlink(path)

    async def batch(self, lines: Sequence[str], *, netns: Path | None = None) -> None:
        if netns is not None:
            port = {**NIC, "master": pod_links.INNER_BRIDGE}
            self.inside = {"eth0": port, pod_links.INNER_DEVICE: port, pod_links.INNER_BRIDGE: NIC}

    async def find_links(self, *names: str, netns: Path | None = None) -> dict[str, dict[str, Any]]:
        self.looks += 1
        return self.inside


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def ip() -> CountingIp:
    return CountingIp()


@pytest.fixture
def devices(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    there = [True]
    monkeypatch.setattr(pod_links, "_is_held", os.path.exists)
    monkeypatch.setattr(pod_links, "_is_device", lambda name: there[0])
    return there


@pytest.fixture
def links(tmp_path: Path, clock: FakeClock, ip: CountingIp, devices: list[bool]) -> PodLinks:
    host = FakeHost(tmp_path, clock=clock, pod_network=Network())
    return PodLinks(host, ip=ip)


async def test_a_start_looks_into_the_namespace_once(links: PodLinks, ip: CountingIp) -> None:
    sandbox = sandbox_spec("one")
    link = await links.attach(sandbox)
    assert await links.attach(sandbox) == link
    assert await links.check(sandbox.uid)
    assert ip.looks == 1


async def test_a_link_that_lost_its_inside_is_found_out_after_some_seconds(
    links: PodLinks, ip: CountingIp, clock: FakeClock
) -> None:
    sandbox = sandbox_spec("one")
    await links.attach(sandbox)
    ip.inside = {}
    clock.advance(pod_links.TRUSTED_SECONDS)
    assert not await links.check(sandbox.uid)


async def test_a_link_that_lost_its_device_is_found_out_at_once(links: PodLinks, devices: list[bool]) -> None:
    sandbox = sandbox_spec("one")
    await links.attach(sandbox)
    devices[0] = False
    assert not await links.check(sandbox.uid)


async def test_a_released_link_is_trusted_no_more(
    links: PodLinks, devices: list[bool], ip: CountingIp
) -> None:
    sandbox = sandbox_spec("one")
    await links.attach(sandbox)
    devices[0] = False
    await links.release(sandbox.uid)
    devices[0] = True
    assert await links.find(sandbox.uid) is None
    await links.attach(sandbox)
    assert ip.looks == 2
