"""A virtual machine's place in the pod network, with the lab's real CNI network.

Instead of a guest a network namespace takes the pod's macvtap, which is an interface as long as no emulator has
opened it, and gives it the link's addresses and routes, as cloud-init does in a guest.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import msgspec
import pytest
from kubeletx_libvirt.network.links import GuestLink
from kubeletx_libvirt.network.names import guest_device, outer_device
from kubeletx_libvirt.network.pod_links import PodLinks

from kubeletx.api import (
    Dns,
    InvalidPod,
    NamespaceMode,
    Namespaces,
    PodUid,
    PortMapping,
    SandboxSpec,
    SystemClock,
    Unavailable,
)
from kubeletx.runtimes.cni import CniPodNetwork
from kubeletx.testing.host import FakeHost
from kubeletx_testing.lab import Lab, free_port
from kubeletx_testing.lab.tools import get_tool
from tests.integration.support.bench import until

_UIDS = (PodUid(f"vm-{number}-5c1e") for number in itertools.count())
_MADE: set[PodUid] = set()


class Node:
    """The pod network and the links of one agent; `restarted` is the next life of the same agent."""

    def __init__(self, lab: Lab, directory: Path, *, conf_dir: Path | None = None) -> None:
        self.lab = lab
        self.directory = directory
        (directory / "state").mkdir(exist_ok=True)
        self.network = CniPodNetwork(
            conf_dir=conf_dir or lab.network.conf_dir,
            bin_dirs=[lab.network.bin_dir],
            state_dir=directory / "cni",
            owner="test",
            clock=SystemClock(),
        )
        self.links = PodLinks(FakeHost(directory / "state", clock=SystemClock(), pod_network=self.network))
        self._networks = [self.network]

    def restarted(self) -> Node:
        after = Node(self.lab, self.directory)
        self._networks.append(after.network)
        after._networks = self._networks
        return after

    def close(self) -> None:
        """End the threads of the pod networks of all lives."""
        for network in self._networks:
            network.close()


@pytest.fixture
async def node(lab: Lab, tmp_path: Path) -> AsyncIterator[Node]:
    before = devices(lab)
    addresses = lab.network.list_addresses()
    one = Node(lab, tmp_path)
    yield one
    one = one.restarted()
    for uid in await one.links.list_uids():
        await one.links.release(uid)
    assert await one.links.list_uids() == ()
    one.close()
    # The kernel takes a namespace, and with it the other end of CNI's pair, down in its own time.
    until(lambda: devices(lab) == before, f"only {before} of {devices(lab)}")
    assert lab.network.list_addresses() == addresses


def run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def ip(*arguments: str) -> str:
    return run("ip", *arguments)


def devices(lab: Lab) -> set[str]:
    """Ports of the lab's bridge, and what stands in the node's namespace for the guests of these tests."""
    net = Path("/sys/class/net")
    names = {name(uid) for uid in _MADE for name in (guest_device, outer_device)}
    ours = {path.name for path in net.iterdir() if path.name in names}
    return ours | {path.name for path in (net / lab.network.bridge / "brif").iterdir()}


def sandbox(uid: PodUid | None = None, *, ports: tuple[PortMapping, ...] = ()) -> SandboxSpec:
    uid = uid or next(_UIDS)
    _MADE.add(uid)
    return SandboxSpec(uid=uid, name=f"pod-{uid}", namespace="default", ports=ports)


class Guest:
    """A namespace that has the pod's device like a guest."""

    def __init__(self, link: GuestLink) -> None:
        self.link = link
        self.name = f"guest-{link.source}"

    def __enter__(self) -> Guest:
        ip("netns", "add", self.name)
        ip("link", "set", self.link.source, "netns", self.name)
        ip("-n", self.name, "link", "set", self.link.source, "name", "eth0", "up")
        for address in self.link.addresses:
            ip("-n", self.name, "address", "add", address, "dev", "eth0")
        for route in self.link.routes:
            ip("-n", self.name, "route", "add", route.destination, "via", route.gateway)
        return self

    def __exit__(self, *exc_info: object) -> None:
        ip("netns", "delete", self.name)

    def asks_dhcp(self, directory: Path) -> dict[str, str]:
        """What a DHCP client in the guest is told."""
        reported, script = directory / "told", directory / "told.sh"
        script.write_text(f'#!/bin/sh\n[ "$1" = bound ] && env > {reported}\nexit 0\n')
        script.chmod(0o755)
        options = ["-i", "eth0", "-n", "-q", "-t", "10", "-T", "2", "-s", str(script)]
        for name in ("dns", "search", "mtu", "staticroutes", "lease", "router", "subnet"):
            options += ["-O", name]
        run("ip", "netns", "exec", self.name, get_tool("busybox"), "udhcpc", *options)
        return dict(line.split("=", 1) for line in reported.read_text().splitlines() if "=" in line)

    @contextlib.contextmanager
    def listens(self, port: int) -> Iterator[None]:
        code = f"import socket; s = socket.create_server(('', {port})); print('up', flush=True)\nwhile True: s.accept()[0].sendall(b'from the guest')"
        command = ["ip", "netns", "exec", self.name, sys.executable, "-c", code]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            try:
                assert process.stdout is not None
                process.stdout.readline()
                yield
            finally:
                process.kill()

    def asks(self, address: str, port: int) -> bytes:
        return ask(address, port, "ip", "netns", "exec", self.name)


def ask(address: str, port: int, *prefix: str) -> bytes:
    code = f"import socket; s = socket.create_connection(({address!r}, {port}), 5); print(s.recv(99).decode(), end='')"
    done = subprocess.run([*prefix, sys.executable, "-c", code], capture_output=True, check=False, timeout=30)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


async def test_node_and_guests_reach_each_other_by_pod_ip(node: Node) -> None:
    first = await node.links.attach(sandbox())
    second = await node.links.attach(sandbox())
    with Guest(first) as one, Guest(second) as two, one.listens(8080):
        assert await asyncio.to_thread(ask, first.ips[0], 8080) == b"from the guest"
        assert await asyncio.to_thread(two.asks, first.ips[0], 8080) == b"from the guest"


async def test_a_host_port_leads_into_the_guest(node: Node) -> None:
    if not node.lab.network.has_portmap:
        pytest.fail("this machine has no NAT; see the lab's can_map_ports")
    port = free_port()
    link = await node.links.attach(sandbox(ports=(PortMapping(container_port=8080, host_port=port),)))
    with Guest(link) as guest, guest.listens(8080):
        assert await asyncio.to_thread(ask, node.lab.network.gateway, port) == b"from the guest"


async def test_a_guest_that_asks_by_dhcp_gets_its_own_address_and_no_other(
    node: Node, tmp_path: Path
) -> None:
    dns = Dns(servers=("10.96.0.10", "fd00::10"), searches=("default.svc.cluster.local", "example.org"))
    asking, other = msgspec.structs.replace(sandbox(), dns=dns), sandbox()
    links = [await node.links.attach(one) for one in (asking, other)]
    for one in (asking, other, asking):
        await node.links.serve(one.uid)
    link = links[0]
    with Guest(link) as guest:
        reported = await asyncio.to_thread(guest.asks_dhcp, tmp_path)
        (route,) = link.routes
        assert reported["ip"] == link.ips[0]
        assert reported["mask"] == link.addresses[0].partition("/")[2]
        assert reported["router"] == route.gateway
        assert reported["staticroutes"] == f"0.0.0.0/0 {route.gateway}"
        assert reported["dns"] == "10.96.0.10"
        assert reported["search"] == "default.svc.cluster.local example.org"
        assert (reported["mtu"], reported["lease"]) == (str(link.mtu), str(0xFFFFFFFF))
        node.links.close()
        after = node.restarted()
        await after.links.serve(asking.uid)
        reported = await asyncio.to_thread(guest.asks_dhcp, tmp_path)
        assert reported["ip"] == link.ips[0]
    await after.links.release(asking.uid)
    assert await after.links.find(asking.uid) is None
    assert not (after.links.directory / f"{asking.uid}.netns").exists()
    after.links.close()


async def test_attaching_again_gives_the_same_link_in_this_life_and_the_next(node: Node) -> None:
    spec = sandbox()
    link = await node.links.attach(spec)
    assert await node.links.attach(spec) == link
    after = node.restarted()
    assert await after.links.find(spec.uid) == link
    assert await after.links.attach(spec) == link
    assert await after.links.check(spec.uid)


async def test_an_attach_that_was_cut_off_anywhere_is_finished_by_the_next(node: Node) -> None:
    spec = sandbox()
    link = await node.links.attach(spec)
    netns = node.links.directory / f"{spec.uid}.netns"
    enter = ["nsenter", f"--net={netns}", "ip"]
    damages = (
        [*enter, "link", "delete", "br0"],
        [*enter, "link", "set", "eth0", "nomaster"],
        [*enter, "link", "set", "guest0", "down"],
        ["ip", "link", "delete", link.source],
        ["rm", str(node.links.directory / f"{spec.uid}.json")],
    )
    for damage in damages:
        run(*damage)
        after = node.restarted()
        assert not await after.links.check(spec.uid), damage
        assert await after.links.attach(spec) == link
        assert await after.links.check(spec.uid)


async def test_after_a_power_cut_the_pod_gets_a_working_link_again(node: Node) -> None:
    spec = sandbox()
    link = await node.links.attach(spec)
    netns = node.links.directory / f"{spec.uid}.netns"
    # The kernel takes a namespace down in its own time: its end of the pair may still be there at the next attach.
    dying = node.directory / "dying"
    dying.touch()
    run("mount", "--bind", str(netns), str(dying))
    run("umount", "--lazy", str(netns))
    ip("link", "delete", link.source)
    after = node.restarted()
    assert await after.links.find(spec.uid) is None
    try:
        again = await after.links.attach(spec)
    finally:
        run("umount", str(dying))
    with Guest(again) as guest, guest.listens(8080):
        assert await asyncio.to_thread(ask, again.ips[0], 8080) == b"from the guest"


async def test_release_gives_everything_back_and_may_come_twice_or_for_nothing(node: Node) -> None:
    spec = sandbox()
    link = await node.links.attach(spec)
    assert link.ips[0] in node.lab.network.list_addresses()
    assert link.source == guest_device(spec.uid)
    await node.links.release(spec.uid)
    assert link.ips[0] not in node.lab.network.list_addresses()
    assert link.source not in devices(node.lab)
    assert await node.links.list_uids() == ()
    assert await node.links.find(spec.uid) is None
    await node.links.release(spec.uid)
    await node.links.release(PodUid("never-was"))


async def test_a_sweep_finds_every_pod_of_a_crashed_agent(node: Node) -> None:
    specs = [sandbox() for _ in range(3)]
    for spec in specs:
        await node.links.attach(spec)
    after = node.restarted()
    assert sorted(await after.links.list_uids()) == sorted(spec.uid for spec in specs)


async def test_ten_pods_at_once_get_ten_addresses_and_leave_none(node: Node) -> None:
    specs = [sandbox() for _ in range(10)]
    before = devices(node.lab)
    links = await asyncio.gather(*(node.links.attach(spec) for spec in specs))
    assert len({link.ips[0] for link in links}) == 10
    assert len({link.mac for link in links}) == 10
    await asyncio.gather(*(node.links.release(spec.uid) for spec in specs))
    assert devices(node.lab) == before


async def test_a_pods_namespace_has_its_loopback_and_no_thread_of_the_agent_stays_in_it(node: Node) -> None:
    spec = sandbox()
    await node.links.attach(spec)
    await node.links.serve(spec.uid)
    netns = node.links.directory / f"{spec.uid}.netns"
    assert "LOOPBACK,UP" in run("nsenter", f"--net={netns}", "ip", "link", "show", "lo")
    of_threads = {os.readlink(path) for path in Path("/proc/self/task").glob("*/ns/net")}
    assert of_threads == {os.readlink("/proc/self/ns/net")}
    node.links.close()


async def test_a_step_that_the_kernel_refuses_is_reported_with_the_pods_name(node: Node) -> None:
    spec = sandbox()
    ip("link", "add", guest_device(spec.uid), "type", "bridge")
    try:
        with pytest.raises(Unavailable, match=rf"of pod {spec.uid} .*: add macvtap kxp\w+: File exists"):
            await node.links.attach(spec)
    finally:
        ip("link", "delete", guest_device(spec.uid))
    assert (await node.links.attach(spec)).ips


async def test_a_failed_attach_is_released_like_a_whole_one(node: Node) -> None:
    spec = sandbox()
    netns = node.links.directory / f"{spec.uid}.netns"
    netns.parent.mkdir()
    netns.touch()
    await node.links.release(spec.uid)
    assert not netns.exists()


async def test_a_pod_on_the_nodes_own_network_is_refused_in_words(node: Node) -> None:
    spec = msgspec.structs.replace(sandbox(), namespaces=Namespaces(network=NamespaceMode.NODE))
    with pytest.raises(InvalidPod, match=r"spec\.hostNetwork.*hostPort"):
        await node.links.attach(spec)
    assert await node.links.list_uids() == ()


async def test_the_nodes_masquerade_rule_works_for_a_guest_as_for_a_container(node: Node) -> None:
    """br_netfilter leads frames of bridges in the node's namespace through these rules (decision 0002)."""
    assert Path("/proc/sys/net/bridge/bridge-nf-call-iptables").read_text().strip() == "1"
    link = await node.links.attach(sandbox())
    masquerade = ["-t", "nat", "-A", "POSTROUTING", "-s", f"{link.ips[0]}/32"]
    masquerade += ["!", "-d", str(node.lab.network.subnet), "-j", "MASQUERADE"]
    with Guest(link) as guest, outside() as server, iptables(masquerade), told_of_callers(server):
        heard = await asyncio.to_thread(guest.asks, OUTSIDE, 8080)
    assert heard.decode() == NODE_OUTSIDE


async def test_a_release_removes_the_masquerade_rule_of_the_plugin_bridge(node: Node) -> None:
    """The plugin deletes the rules of the addresses that it finds on its interface; the guest has them."""
    file = node.directory / "masquerading" / "10.conflist"
    file.parent.mkdir()
    (given,) = node.lab.network.conf_dir.glob("*.conflist")
    network = json.loads(given.read_text())
    network["plugins"][0]["ipMasq"] = True
    file.write_text(json.dumps(network))
    one = Node(node.lab, node.directory, conf_dir=file.parent)
    link = await one.links.attach(sandbox())
    rule = f"-s {link.ips[0]}/32"
    assert rule in run("iptables", "-w", "10", "-t", "nat", "-S", "POSTROUTING")
    for uid in await one.links.list_uids():
        await one.links.release(uid)
    one.close()
    assert rule not in run("iptables", "-w", "10", "-t", "nat", "-S", "POSTROUTING")


OUTSIDE = "198.51.100.2"
NODE_OUTSIDE = "198.51.100.1"


@contextlib.contextmanager
def outside() -> Iterator[str]:
    """A network beyond the node that knows no way back to pods. Yields the name of its namespace."""
    name, device = "kxoutside", "kxo-node"
    ip("netns", "add", name)
    try:
        ip("link", "add", device, "type", "veth", "peer", "name", "eth0", "netns", name)
        ip("address", "add", f"{NODE_OUTSIDE}/30", "dev", device)
        ip("link", "set", device, "up")
        ip("-n", name, "address", "add", f"{OUTSIDE}/30", "dev", "eth0")
        ip("-n", name, "link", "set", "eth0", "up")
        inward, outward = (["-A", "FORWARD", side, device, "-j", "ACCEPT"] for side in ("-i", "-o"))
        with iptables(inward), iptables(outward):
            yield name
    finally:
        subprocess.run(["ip", "link", "delete", device], capture_output=True, check=False)
        ip("netns", "delete", name)


@contextlib.contextmanager
def iptables(rule: list[str]) -> Iterator[None]:
    """One rule more, as first of its chain."""
    run("iptables", "-w", "10", *("-I" if part == "-A" else part for part in rule))
    try:
        yield
    finally:
        run("iptables", "-w", "10", *("-D" if part == "-A" else part for part in rule))


@contextlib.contextmanager
def told_of_callers(namespace: str) -> Iterator[None]:
    """A server in a namespace that reports each caller from which address it comes."""
    code = """import socket
s = socket.create_server(("", 8080))
print("up", flush=True)
while True:
    connection, (caller, _) = s.accept()
    connection.sendall(caller.encode())
    connection.close()
"""
    command = ["ip", "netns", "exec", namespace, sys.executable, "-c", code]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            yield
        finally:
            process.kill()
