from __future__ import annotations

import pytest

from kubeletx.api import InvalidPod
from kubeletx.pods.specs.hosts import host_name, hosts_text, sandbox_hostname
from tests.unit.pods.environment_model import make_node, make_pod

NODE = make_node(cluster_domain="cluster.local")


def test_the_file_names_localhost_the_pod_and_its_aliases():
    spec = {
        "hostname": "front",
        "subdomain": "web",
        "hostAliases": [{"ip": "203.0.113.7", "hostnames": ["db", "db.example"]}],
    }
    assert hosts_text(make_pod(spec), NODE, ("10.0.0.9", "fd00::9")) == (
        "# Kubernetes-managed hosts file.\n"
        "127.0.0.1\tlocalhost\n"
        "::1\tlocalhost\tip6-localhost\tip6-loopback\n"
        "fe00::0\tip6-localnet\n"
        "fe00::0\tip6-mcastprefix\n"
        "fe00::1\tip6-allnodes\n"
        "fe00::2\tip6-allrouters\n"
        "10.0.0.9\tfront.web.shop.svc.cluster.local\tfront\n"
        "fd00::9\tfront.web.shop.svc.cluster.local\tfront\n"
        "\n# Entries added by HostAliases.\n"
        "203.0.113.7\tdb\tdb.example\n"
    )


def test_without_an_address_there_is_no_managed_file():
    assert hosts_text(make_pod(), NODE, ()) is None


def test_a_host_network_pod_starts_from_the_nodes_file():
    pod = make_pod({"hostNetwork": True, "hostAliases": [{"ip": "203.0.113.7", "hostnames": ["db"]}]})
    node = make_node({"/etc/hosts": "192.0.2.1 node-1"})
    assert hosts_text(pod, node, ("192.0.2.1",)) == (
        "# Kubernetes-managed hosts file (host network).\n192.0.2.1 node-1\n"
        "\n# Entries added by HostAliases.\n203.0.113.7\tdb\n"
    )


def test_a_node_without_a_hosts_file_is_still_a_node():
    from pathlib import Path

    text = hosts_text(make_pod({"hostNetwork": True}), make_node(hosts_file=Path("/gone")), ())
    assert text == "# Kubernetes-managed hosts file (host network).\n"


@pytest.mark.parametrize(
    ("name", "expected"), [("web", "web"), ("a" * 80, "a" * 63), ("a" * 60 + "-.-bcd", "a" * 60)]
)
def test_a_host_name_is_the_pods_name_within_63_characters(name, expected):
    assert host_name(make_pod(name=name), NODE).name == expected


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, "web"),
        ({"hostname": "front"}, "front"),
        ({"hostNetwork": True}, ""),
        ({"setHostnameAsFQDN": True}, "web"),
        ({"setHostnameAsFQDN": True, "subdomain": "s"}, "web.s.shop.svc.cluster.local"),
        ({"subdomain": "s"}, "web"),
        ({"hostnameOverride": "other.example", "hostname": "front"}, "other.example"),
    ],
)
def test_the_sandbox_is_called_as_the_pod_asks(spec, expected):
    assert sandbox_hostname(make_pod(spec), NODE) == expected


def test_a_full_name_that_is_too_long_is_refused():
    spec = {"setHostnameAsFQDN": True, "subdomain": "s" * 40}
    with pytest.raises(InvalidPod, match="64 characters is the max") as caught:
        sandbox_hostname(make_pod(spec), NODE)
    assert caught.value.reason == "ConfigPodSandboxError"
