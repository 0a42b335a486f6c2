"""No two machines have the same address on a network of the operator's."""

from __future__ import annotations

from pathlib import Path

import pytest
from kubeletx_libvirt.addresses import Addresses, Holder
from kubeletx_libvirt.config import NetworkTarget, Settings
from kubeletx_libvirt.domain.metadata import Identity
from kubeletx_libvirt.network.links import GuestLink, LinkKind
from kubeletx_libvirt.records import Records, SandboxRecord, UnitRecord
from msgspec.structs import replace

from kubeletx.api import InvalidPod, Machine, Nic, PodUid, SandboxId, UnitId
from kubeletx.testing import FakeHost, sandbox_spec, unit_spec

SETTINGS = Settings(networks={"blue": NetworkTarget(bridge="br-blue", subnet="192.168.7.0/24")})


class Node:
    """Records of pods a and b, and of the machine of those that were `made`."""

    def __init__(self, root: Path) -> None:
        self.records = Records(FakeHost(root))
        self.made: dict[str, Identity] = {}
        self.addresses = Addresses(SETTINGS, self.records, self)  # type: ignore[arg-type]
        for name in ("a", "b"):
            self.stand(name)

    def identity(self, unit_id: str) -> Identity | None:
        return self.made.get(unit_id)

    def stand(self, name: str, *, stopped: bool = False) -> None:
        spec = replace(sandbox_spec(), uid=PodUid(name), name=name)
        self.records.sandboxes[SandboxId(f"s-{name}")] = SandboxRecord(
            spec=spec, created_at_ns=1, is_stopped=stopped
        )

    def make(self, name: str, *nics: Nic) -> None:
        unit = replace(unit_spec(), detail=Machine(nics=nics))
        self.records.units[UnitId(f"u-{name}")] = UnitRecord(spec=unit)
        self.made[f"u-{name}"] = Identity(
            agent_id="agent",
            runtime="kvm",
            sandbox_id=SandboxId(f"s-{name}"),
            uid=PodUid(name),
            namespace="default",
            pod=name,
            sandbox_attempt=0,
            unit="main",
            attempt=0,
            image="i",
            image_ref="i",
            created_at_ns=1,
        )

    def hold(self, name: str, address: str = "192.168.7.9", source: str = "br-blue") -> None:
        link = GuestLink(
            name="eth1", kind=LinkKind.BRIDGE, source=source, mac="", addresses=(f"{address}/24",)
        )
        self.addresses.hold(Holder(PodUid(name), f"default/{name}"), (link,))


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_the_second_pod_with_an_address_is_refused_with_both_names(node: Node) -> None:
    node.hold("a")
    node.hold("a")
    with pytest.raises(InvalidPod) as caught:
        node.hold("b")
    assert str(caught.value) == (
        "pod default/b: spec.nics[eth1].ipAddress: 192.168.7.9 on br-blue is the address of pod default/a; "
        "choose another, or delete that pod"
    )
    assert caught.value.reason is None, "it may heal"
    node.hold("b", "192.168.7.10")
    node.hold("b", source="br-other")


def test_after_a_restart_of_the_agent_machines_that_were_made_hold_their_addresses(node: Node) -> None:
    pod_network = Nic(name="eth0", ip_address="10.88.0.5")
    node.make("a", pod_network, Nic(name="eth1", network="blue", ip_address="192.168.7.9"))
    with pytest.raises(InvalidPod, match="default/a"):
        node.hold("b")
    node.hold("a")


def test_a_pod_that_was_refused_holds_nothing(node: Node) -> None:
    node.hold("a")
    with pytest.raises(InvalidPod):
        node.hold("b")
    node.stand("a", stopped=True)
    node.stand("c")
    node.hold("c")


def test_a_pod_that_has_ended_holds_nothing(node: Node) -> None:
    node.make("a", Nic(name="eth1", network="blue", ip_address="192.168.7.9"))
    node.hold("a")
    node.stand("a", stopped=True)
    node.hold("b")


def test_one_address_has_many_spellings(node: Node) -> None:
    node.hold("a", "fd00::1")
    with pytest.raises(InvalidPod, match="fd00::1"):
        node.hold("b", "FD00:0::1")


def test_an_interface_that_was_taken_out_holds_nothing(node: Node) -> None:
    nic = Nic(name="eth1", network="blue", ip_address="192.168.7.9")
    node.make("a")
    node.hold("a")
    with pytest.raises(InvalidPod):
        node.hold("b")
    node.addresses.release(UnitId("u-a"), nic)
    node.hold("b")
    node.addresses.release(UnitId("u-a"), nic)
    with pytest.raises(InvalidPod, match="default/b"):
        node.hold("a")
