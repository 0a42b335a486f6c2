import socket
from pathlib import Path

import pytest

from kubeletx.api import InvalidConfig
from kubeletx.node.identity import (
    check_node_ips,
    detect_node_ips,
    local_addresses,
    node_addresses,
    node_name,
)

FIB = """Main:
  +-- 0.0.0.0/0 3 0 5
     |-- 0.0.0.0
        /0 universe UNICAST
     +-- 127.0.0.0/8 2 0 2
        |-- 127.0.0.1
           /32 host LOCAL
     +-- 192.168.1.0/24 2 0 2
        |-- 192.168.1.7
           /32 host LOCAL
        |-- 192.168.1.255
           /32 link BROADCAST
"""


def test_the_name_is_the_override_or_the_host_s_name_in_lower_case() -> None:
    assert node_name(None, hostname="Node-1.Example") == "node-1.example"
    assert node_name(" Other ", hostname="node-1") == "other"
    assert node_name("", hostname="node-1") == "node-1"


@pytest.mark.parametrize("bad", ["node_1", "-x", "a..b", "x" * 254])
def test_a_name_that_is_not_a_dns_name_is_refused(bad: str) -> None:
    with pytest.raises(InvalidConfig, match="--hostname-override"):
        node_name(bad)


def test_given_addresses_are_checked() -> None:
    assert check_node_ips(["10.0.0.1", "fd00::1"]) == ("10.0.0.1", "fd00::1")
    for bad in (["x"], ["0.0.0.0"], ["224.0.0.1"], ["10.0.0.1", "10.0.0.2"]):
        with pytest.raises(InvalidConfig, match="--node-ip"):
            check_node_ips(bad)


def test_there_is_always_an_address() -> None:
    assert len(detect_node_ips()) == 1
    assert detect_node_ips(["10.9.8.7"]) == ("10.9.8.7",)
    assert detect_node_ips(["10.9.8.7", "fd00::7"]) == ("10.9.8.7", "fd00::7")


def test_an_unspecified_node_ip_names_the_family_of_the_one_to_find() -> None:
    routes = {socket.AF_INET: "10.1.1.1", socket.AF_INET6: "fd00::1"}
    assert detect_node_ips([], lambda family, _: routes.get(family)) == ("10.1.1.1",)
    assert detect_node_ips(["0.0.0.0"], lambda family, _: routes.get(family)) == ("10.1.1.1",)
    assert detect_node_ips(["::"], lambda family, _: routes.get(family)) == ("fd00::1",)
    del routes[socket.AF_INET6]
    assert detect_node_ips(["::"], lambda family, _: routes.get(family)) == ("10.1.1.1",)
    with pytest.raises(InvalidConfig, match="'::' cannot be a node's address"):
        detect_node_ips(["10.1.1.1", "::"])


def test_local_addresses_are_read_from_the_routing_table(tmp_path: Path) -> None:
    table = tmp_path / "fib_trie"
    table.write_text(FIB)
    assert local_addresses(table) == ("192.168.1.7",)
    assert local_addresses(tmp_path / "missing") == ()


def test_the_node_s_addresses_are_internal_ones_and_the_name() -> None:
    assert [(a.type, a.address) for a in node_addresses("n", ["10.0.0.1"])] == [
        ("InternalIP", "10.0.0.1"),
        ("Hostname", "n"),
    ]
