from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeletx.api import Dns, Unavailable
from kubeletx.pods.specs.dns import build_dns, parse_resolv_conf
from tests.unit.pods.environment_model import make_node, make_pod

HOST = Dns(
    servers=("192.0.2.53", "192.0.2.54"), searches=("corp.example", "lan"), options=("ndots:2", "edns0")
)
CLUSTER = {"cluster_dns": ("10.96.0.10",), "cluster_domain": "cluster.local"}
CLUSTER_SEARCHES = ("shop.svc.cluster.local", "svc.cluster.local", "cluster.local", "corp.example", "lan")


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"dnsPolicy": "Default"}, HOST),
        ({}, Dns(servers=("10.96.0.10",), searches=CLUSTER_SEARCHES, options=("ndots:5",))),
        ({"dnsPolicy": "ClusterFirst", "hostNetwork": True}, HOST),
        (
            {"dnsPolicy": "ClusterFirstWithHostNet", "hostNetwork": True},
            Dns(servers=("10.96.0.10",), searches=CLUSTER_SEARCHES, options=("ndots:5",)),
        ),
        ({"dnsPolicy": "None"}, Dns()),
        (
            {
                "dnsPolicy": "None",
                "dnsConfig": {
                    "nameservers": ["192.0.2.9"],
                    "searches": ["a.example"],
                    "options": [{"name": "ndots", "value": "3"}, {"name": "edns0"}],
                },
            },
            Dns(servers=("192.0.2.9",), searches=("a.example",), options=("ndots:3", "edns0")),
        ),
    ],
)
def test_each_policy_gives_its_settings(spec, expected):
    result = build_dns(make_pod(spec), make_node(**CLUSTER))
    assert result.dns == expected
    assert result.warnings == ()


def test_dns_config_is_added_and_its_options_win():
    config = {
        "nameservers": ["192.0.2.54", "192.0.2.9"],
        "searches": ["lan", "more.example"],
        "options": [{"name": "ndots", "value": "1"}],
    }
    dns = build_dns(make_pod({"dnsPolicy": "Default", "dnsConfig": config}), make_node()).dns
    assert dns.servers == ("192.0.2.53", "192.0.2.54", "192.0.2.9")
    assert dns.searches == ("corp.example", "lan", "more.example")
    assert dns.options == ("ndots:1", "edns0")


def test_without_a_cluster_dns_the_hosts_settings_are_used_and_in_a_cluster_that_is_a_warning():
    alone = build_dns(make_pod(), make_node())
    assert (alone.dns, alone.warnings) == (HOST, ())
    result = build_dns(make_pod(), make_node(in_cluster=True))
    assert result.dns == HOST
    assert [one.reason for one in result.warnings] == ["MissingClusterDNS"]
    assert "web_shop(u1)" in result.warnings[0].message


@pytest.mark.parametrize(
    ("ips", "servers"), [((), ("127.0.0.1",)), (("192.0.2.1", "2001:db8::1"), ("127.0.0.1", "::1"))]
)
def test_a_node_without_resolv_conf_asks_itself(ips, servers):
    dns = build_dns(make_pod({"dnsPolicy": "Default"}), make_node(resolv_conf=None, host_ips=ips)).dns
    assert (dns.servers, dns.searches) == (servers, (".",))


def test_a_resolv_conf_that_cannot_be_read_is_worth_another_try():
    from pathlib import Path

    with pytest.raises(Unavailable, match="'/gone': No such file") as caught:
        build_dns(make_pod(), make_node(resolv_conf=Path("/gone")))
    assert caught.value.reason == "ConfigPodSandboxError"


def test_a_fourth_name_server_is_left_out_and_said():
    spec = {
        "dnsPolicy": "None",
        "dnsConfig": {"nameservers": ["192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.4"]},
    }
    result = build_dns(make_pod(spec), make_node())
    assert len(result.dns.servers) == 3
    assert result.warnings[0].reason == "DNSConfigForming"
    assert result.warnings[0].message.endswith("192.0.2.1 192.0.2.2 192.0.2.3")


DOMAINS = st.lists(st.text("abc.", min_size=1, max_size=300), max_size=60)


@given(
    DOMAINS,
    st.lists(st.sampled_from(["192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.4", "::1"]), max_size=8),
)
def test_no_input_goes_beyond_what_resolvers_take(searches, servers):
    spec = {"dnsPolicy": "None", "dnsConfig": {"nameservers": servers, "searches": searches}}
    result = build_dns(make_pod(spec), make_node())
    dns = result.dns
    assert len(dns.servers) <= 3
    assert len(dns.searches) <= 32
    assert len(" ".join(dns.searches)) <= 2048
    assert all(len(name) <= 253 for name in dns.searches)
    unique = list(dict.fromkeys(searches))
    kept = [name for name in unique if name in dns.searches]
    assert list(dns.searches) == kept  # the order stays
    complete = len(dns.searches) == len(unique) and len(dns.servers) == len(set(servers))
    assert complete == (result.warnings == ())


@given(st.text())
def test_any_resolv_conf_can_be_read(text):
    parse_resolv_conf(text)


def test_the_root_domain_of_the_node_never_reaches_a_pod():
    assert parse_resolv_conf("search a.example. . b.example\n").searches == ("a.example", "b.example")
    assert parse_resolv_conf("nameserver 192.0.2.1\nsearch .\n").searches == ()
