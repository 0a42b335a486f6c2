"""Interfaces besides the pod network's: on a named network of a libvirtd, on a bridge of the node, plugged in later.

Both guests boot Linux once; the tests of this file follow each other with them.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import libvirt
import pytest

from kubeletx_testing.lab import Lab, put_manifest
from kubeletx_testing.lab.libvirt import PrivateLibvirtd
from kubeletx_testing.lab.tools import get_tool
from tests.integration.support.bench import Bench, until
from tests.integration.support.machines import machine_manifest
from tests.integration.support.vm_pods import address_of, ask, make_machines

NETWORK_BRIDGE, BRIDGE = f"kxn{os.getpid()}", f"kxb{os.getpid()}"
NETWORK = f"""
<network>
  <name>quiet</name>
  <bridge name='{NETWORK_BRIDGE}' stp='off' delay='0'/>
  <forward mode='open'/>
  <dns enable='no'/>
  <ip address='10.77.1.254' prefix='24'/>
</network>
"""
"""Neither DHCP nor DNS, so that it needs no dnsmasq, and no rules of a firewall."""

BOOT_SECONDS = 120
SMALL = {"limits": {"cpu": "1", "memory": "192Mi"}, "requests": {"cpu": "10m"}}

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def libvirtd(lab: Lab) -> Iterator[PrivateLibvirtd]:
    one = PrivateLibvirtd(lab.base_dir, name="lv-nics")
    one.start()
    yield one
    one.end()


@pytest.fixture(scope="module")
def networks(libvirtd: PrivateLibvirtd) -> Iterator[dict[str, Any]]:
    """The operator's table, with what its entries name."""
    run("ip", "link", "add", BRIDGE, "up", "type", "bridge")
    try:
        handle = libvirt.open(libvirtd.url)
        network = handle.networkCreateXML(NETWORK)
        yield {
            "storage": {"network": "quiet", "subnet": "10.77.1.0/24"},
            "plain": {"bridge": BRIDGE, "subnet": "10.77.2.0/24"},
            "absent": {"network": "not-there", "subnet": "10.77.3.0/24"},
        }
        network.destroy()
        handle.close()
    finally:
        run("ip", "link", "delete", BRIDGE)


@pytest.fixture(scope="module")
def bench(
    make_bench: Callable[..., Bench],
    lab: Lab,
    libvirtd: PrivateLibvirtd,
    networks: dict[str, Any],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Bench]:
    one = make_machines(
        make_bench, lab, tmp_path_factory.mktemp("nics"), endpoint=libvirtd.endpoint, networks=networks
    )
    for number in (1, 2):
        nics = [
            {"name": "eth0"},
            {"name": "eth1", "subnetName": "storage", "ipAddress": f"10.77.1.{number}"},
            {"name": "eth2", "subnetName": "plain", "ipAddress": f"10.77.2.{number}"},
        ]
        put_manifest(one.manifests, manifest(f"wired-{number}", nics))
    for number in (1, 2):
        ask(address_of(one, f"wired-{number}"))
    yield one
    one.remove("wired-1", "wired-2")
    assert ports(NETWORK_BRIDGE) == ports(BRIDGE) == set()


def manifest(name: str, nics: list[dict[str, str]]) -> dict[str, Any]:
    return machine_manifest(name, machine={"resources": SMALL}, spec={"nics": nics})


def run(*command: str) -> str:
    return subprocess.run(
        [get_tool(command[0]), *command[1:]], check=True, capture_output=True, text=True
    ).stdout


def ports(bridge: str) -> set[str]:
    """Devices on a bridge: one for each interface of a guest."""
    return {path.name for path in Path("/sys/class/net", bridge, "brif").iterdir()}


def in_guest(bench: Bench, name: str, script: str) -> str:
    """What a script prints in the guest, through its agent, once that answers."""

    def say() -> str:
        done = bench.agent.cli("exec", f"{name}-lab", "--", "sh", "-c", script)
        return done.stdout if done.returncode == 0 else ""

    said: str = until(say, f"{script} in {name}", seconds=BOOT_SECONDS)
    return said


def nic_lines(bench: Bench, name: str) -> dict[str, list[str]]:
    """Words of ``vm nic list`` by the interface's name."""
    lines = bench.agent.cli("vm", "nic", "list", f"{name}-lab").stdout.splitlines()[1:]
    return {line.split()[0]: line.split() for line in lines}


@pytest.mark.parametrize("network", ["10.77.1", "10.77.2"])
def test_two_machines_reach_each_other_at_the_addresses_that_their_pods_say(
    bench: Bench, network: str
) -> None:
    assert len(ports(NETWORK_BRIDGE)) == len(ports(BRIDGE)) == 2
    for one, other in ((1, 2), (2, 1)):
        request = f"printf 'GET / HTTP/1.0\\r\\n\\r\\n' | nc -w 5 {network}.{other} 80"
        assert in_guest(bench, f"wired-{one}", request).endswith(f"\nwired-{other}\n")


def test_an_interface_on_a_libvirt_network_comes_and_goes_while_the_guest_runs(bench: Bench) -> None:
    attach = ("vm", "nic", "attach", "wired-1-lab", "eth3", "--network", "storage", "--ip", "10.77.1.9")
    done = bench.agent.cli(*attach)
    assert done.returncode == 0, done.stderr
    until(lambda: nic_lines(bench, "wired-1").get("eth3", ["", ""])[1] == "attached", "eth3")
    mac = nic_lines(bench, "wired-1")["eth3"][2]
    assert len(ports(NETWORK_BRIDGE)) == 3
    device = f"$(grep -l {mac} /sys/class/net/*/address | cut -d / -f 5)"
    in_guest(bench, "wired-1", f"ip link set dev {device} up && ip link show dev {device}")
    bench.agent.cli("vm", "stop", "wired-1-lab")
    until(lambda: len(ports(NETWORK_BRIDGE)) == 1, "the end of the machine")
    bench.agent.cli("vm", "start", "wired-1-lab")
    addresses = in_guest(bench, "wired-1", f"ip -o -4 address show dev {device}")
    assert " 10.77.1.9/24 " in addresses
    done = bench.agent.cli("vm", "nic", "detach", "wired-1-lab", "eth3")
    assert done.returncode == 0, done.stderr
    until(lambda: "eth3" not in nic_lines(bench, "wired-1"), "the end of eth3")
    assert len(ports(NETWORK_BRIDGE)) == 2


@pytest.mark.parametrize(
    ("nic", "words"),
    [
        ({"subnetName": "storage", "ipAddress": "10.78.0.1"}, "10.78.0.1 is not in 10.77.1.0/24"),
        ({"subnetName": "unheard"}, "'unheard' is not in libvirt.networks of this node"),
    ],
)
def test_a_pod_waits_in_words_for_an_interface_that_the_settings_do_not_allow(
    bench: Bench, nic: dict[str, str], words: str
) -> None:
    put_manifest(bench.manifests, manifest("refused", [{"name": "eth0"}, {"name": "eth1", **nic}]))
    assert words in (bench.waiting("refused", "RuntimeUnsupported", of="refused").message or "")
    bench.remove("refused")


@pytest.mark.parametrize(
    ("nic", "words"),
    [
        ({"subnetName": "absent", "ipAddress": "10.77.3.1"}, "not-there"),
        (
            {"subnetName": "storage", "ipAddress": "10.77.1.2"},
            "pod default/waiting-lab: spec.nics[eth1].ipAddress: 10.77.1.2 on quiet is the address of "
            "pod default/wired-2-lab",
        ),
    ],
    ids=["a network that is not there", "another pod's address"],
)
def test_what_may_be_given_later_is_waited_for_with_words(
    bench: Bench, nic: dict[str, str], words: str
) -> None:
    put_manifest(bench.manifests, manifest("waiting", [{"name": "eth0"}, {"name": "eth1", **nic}]))
    until(lambda: [one for one in bench.events("waiting") if words in one["message"]], words)
    assert bench.pod("waiting").status.phase == "Pending"
    bench.remove("waiting")
