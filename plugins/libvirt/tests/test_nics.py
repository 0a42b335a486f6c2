"""Which network an interface joins, and what libvirt is told of it."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree as ET

import msgspec
import pytest
from kubeletx_libvirt.config import NetworkTarget, PortEntry, Route
from kubeletx_libvirt.network.links import GuestLink, LinkKind, interface_xml, to_link
from kubeletx_libvirt.network.names import guest_device, stable_mac
from kubeletx_libvirt.network.nics import Resolved, resolve_nics
from kubeletx_libvirt.nics import list_interfaces

from kubeletx.api import Dns, InvalidPod, Machine, Nic, PodAddress

POD = GuestLink(
    name="eth0",
    kind=LinkKind.DIRECT,
    source="kxp0123456789",
    mac="0a:00:00:00:00:05",
    addresses=("10.88.0.5/22",),
    routes=(Route(destination="0.0.0.0/0", gateway="10.88.0.1"),),
)
NETWORKS = {
    "blue": NetworkTarget(bridge="br-blue", subnet="192.168.7.0/24", dns=("192.168.7.1",)),
    "green": NetworkTarget(network="green"),
    "pods": NetworkTarget(),
}


def resolve(*nics: Nic, vpc: str = "", **tables: Any) -> Resolved:
    tables.setdefault("networks", NETWORKS)
    tables.setdefault("ports", {})
    return resolve_nics(Machine(nics=nics, vpc=vpc), POD, uid="u1", **tables)


def test_a_pod_without_interfaces_has_the_pod_networks_one() -> None:
    assert resolve() == Resolved(links=(POD,))


def test_the_sample_pod_of_the_design_runs_with_a_warning_for_each_unknown_word() -> None:
    sample = Nic(name="eth0", port_id="04fe371d-fddf-43c4-9419-b7d9cd4a2197")
    first = resolve(sample, vpc="demo")
    (link,) = first.links
    assert (link.source, link.addresses) == (POD.source, POD.addresses)
    assert link.mac == stable_mac("port", "04fe371d-fddf-43c4-9419-b7d9cd4a2197")
    assert [warning.split(":")[0] for warning in first.warnings] == ["spec.vpc", "spec.nics[0].portId"]
    assert resolve(sample, vpc="demo") == first


@pytest.mark.parametrize(
    ("nic", "vpc", "field"),
    [(Nic(name="eth0", port_id="p"), "", r"spec\.nics\[0\]\.portId"), (Nic(name="eth0"), "v", r"spec\.vpc")],
)
def test_where_unknown_words_are_refused_the_field_is_named(nic: Nic, vpc: str, field: str) -> None:
    with pytest.raises(InvalidPod, match=field):
        resolve(nic, vpc=vpc, unknown="refuse")


def test_extra_interfaces_join_bridges_and_named_networks() -> None:
    links = resolve(
        Nic(name="eth0"), Nic(name="eth1", network="blue"), Nic(name="eth2", network="green", tag="t")
    ).links
    assert [(link.name, link.kind, link.source, link.dhcp) for link in links] == [
        ("eth0", LinkKind.DIRECT, POD.source, False),
        ("eth1", LinkKind.BRIDGE, "br-blue", True),
        ("eth2", LinkKind.NETWORK, "green", True),
    ]
    assert len({link.mac for link in links}) == 3
    assert links[2].tag == "t"


def test_the_pod_network_stays_even_if_no_interface_names_it() -> None:
    links = resolve(Nic(name="eth0", network="blue")).links
    assert [(link.name, link.source) for link in links] == [("eth0", "br-blue"), ("eth1", POD.source)]


def test_a_vpc_with_a_network_is_joined_without_being_listed() -> None:
    links = resolve(vpc="blue").links
    assert [(link.name, link.source) for link in links] == [("eth0", POD.source), ("eth1", "br-blue")]


def test_a_second_interface_on_the_pod_network_is_refused() -> None:
    with pytest.raises(InvalidPod, match=r"spec\.nics\[1\].*one address"):
        resolve(Nic(name="eth0"), Nic(name="eth1", network="pods"))


def test_an_address_of_the_networks_subnet_is_given_with_its_prefix() -> None:
    (_, link) = resolve(Nic(name="eth0"), Nic(name="eth1", network="blue", ip_address="192.168.7.20")).links
    assert link.addresses == ("192.168.7.20/24",)
    assert link.dns == Dns(servers=("192.168.7.1",))
    assert not link.dhcp


@pytest.mark.parametrize(
    ("nic", "words"),
    [
        (Nic(name="eth1", network="blue", ip_address="10.0.0.1"), "is not in 192.168.7.0/24"),
        (Nic(name="eth1", network="green", ip_address="10.0.0.1"), "has no subnet for green"),
        (Nic(name="eth0", ip_address="10.0.0.1"), "the pod network gave 10.88.0.5"),
        (Nic(name="eth0", ipv6=True), "gives no IPv6"),
        (Nic(name="eth1", network="red"), "use one of: blue, green, pods"),
    ],
)
def test_what_cannot_be_given_is_refused_in_words(nic: Nic, words: str) -> None:
    with pytest.raises(InvalidPod, match=words):
        resolve(nic)


def test_the_address_that_the_pod_network_gave_may_be_asked_for() -> None:
    assert resolve(Nic(name="eth0", ip_address="10.88.0.5")).links == (POD,)


def test_a_port_of_the_table_brings_network_mac_and_address() -> None:
    ports = {"p1": PortEntry(network="blue", mac="02:AA:00:00:00:01", ip_address="192.168.7.9")}
    (_, link) = resolve(Nic(name="eth0"), Nic(name="eth1", port_id="p1"), ports=ports).links
    assert (link.source, link.mac, link.addresses) == ("br-blue", "02:aa:00:00:00:01", ("192.168.7.9/24",))
    with pytest.raises(InvalidPod, match="remove one of the two"):
        resolve(Nic(name="eth1", port_id="p1", ip_address="192.168.7.8"), ports=ports)


def test_the_operators_tables_refuse_unknown_keys_and_bad_addresses() -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"brigde": "br0"}, NetworkTarget)
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"mac": "03:00:00:00:00:01"}, PortEntry)  # multicast


def test_libvirt_gets_a_macvtap_for_the_pod_network_and_taps_for_others() -> None:
    direct = ET.fromstring(interface_xml(POD))
    target, mac, alias = direct.find("target"), direct.find("mac"), direct.find("alias")
    assert target is not None
    assert mac is not None
    assert alias is not None
    assert direct.get("type") == "ethernet"
    assert target.attrib == {"dev": POD.source, "managed": "no"}
    assert mac.get("address") == POD.mac
    assert alias.get("name") == "ua-eth0"
    bridge = ET.fromstring(interface_xml(resolve(Nic(name="eth1", network="blue")).links[1]))
    assert bridge.get("type") == "bridge"


def test_cnis_answer_becomes_addresses_routes_and_names() -> None:
    address = PodAddress(
        ips=("10.1.0.7/24", "fd00::7/64"),
        gateways=("10.1.0.1", "fd00::1"),
        result={
            "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}, {"dst": "10.9.0.0/16", "gw": "10.1.0.9"}],
            "dns": {"nameservers": ["10.1.0.2"], "search": ["pods.example"]},
        },
    )
    link = to_link(address, device="kxp0", mac="02:00:00:00:00:01", mtu=1450, dns=None)
    assert link.routes == (
        Route(destination="0.0.0.0/0", gateway="10.1.0.1"),
        Route(destination="::/0", gateway="fd00::1"),
        Route(destination="10.9.0.0/16", gateway="10.1.0.9"),
    )
    assert link.ips == ("10.1.0.7", "fd00::7")
    assert link.dns == Dns(servers=("10.1.0.2",), searches=("pods.example",))
    assert link.ipv6
    assert to_link(address, device="d", mac="m", mtu=0, dns=Dns(servers=("1.1.1.1",))).dns == Dns(
        servers=("1.1.1.1",)
    )


def test_a_result_of_old_cni_is_understood() -> None:
    result = {"ip4": {"ip": "10.1.0.7/24", "gateway": "10.1.0.1", "routes": [{"dst": "0.0.0.0/0"}]}}
    address = PodAddress(ips=("10.1.0.7/24",), gateways=("10.1.0.1",), result=result)
    link = to_link(address, device="d", mac="m", mtu=0, dns=None)
    assert link.routes == (Route(destination="0.0.0.0/0", gateway="10.1.0.1"),)


def test_device_names_fit_the_kernel_and_macs_are_locally_administered() -> None:
    name = guest_device("4bbd5a6e-8d0c-4d0c-9a43-0d5e2f1f0a11")
    assert len(name) <= 15
    assert name == guest_device("4bbd5a6e-8d0c-4d0c-9a43-0d5e2f1f0a11")
    assert all(int(stable_mac("guest", str(n))[:2], 16) & 3 == 2 for n in range(50))


def test_an_interface_is_listed_with_the_address_that_the_pod_network_gave() -> None:
    other = stable_mac("u1", "eth1")
    kept = {"ua-eth0": POD.mac.upper(), "ua-eth1": other, "ua-eth2": other}
    said = {"ua-eth1": Nic(name="eth1", network="blue", ip_address="192.168.7.20")}
    listed = list_interfaces(None, kept, said, POD)
    assert [one.ips for one in listed] == [("10.88.0.5",), ("192.168.7.20",), ()]


def test_a_port_s_mac_address_does_not_hide_the_pod_networks_address() -> None:
    kept = {"ua-eth0": stable_mac("port", "p")}
    (listed,) = list_interfaces(None, kept, {"ua-eth0": Nic(name="eth0", port_id="p")}, POD)
    assert listed.ips == ("10.88.0.5",)
    (elsewhere,) = list_interfaces(None, kept, {"ua-eth0": Nic(name="eth0", network="blue")}, POD)
    assert elsewhere.ips == ()


@pytest.mark.parametrize("address", ["192.168.7.0", "192.168.7.255"])
def test_an_address_that_no_machine_can_have_is_refused(address: str) -> None:
    with pytest.raises(InvalidPod, match=r"is the first or last of 192\.168\.7\.0/24"):
        resolve(Nic(name="eth1", network="blue", ip_address=address))
