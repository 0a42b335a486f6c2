"""Service variables. Expectations: kubelet, pkg/kubelet/envvars/envvars_test.go."""

from __future__ import annotations

from kubeletx.api import ClusterService
from kubeletx.pods.specs.environment import service_variables

KUBERNETES = ClusterService(
    name="kubernetes", namespace="default", address="10.0.0.1", ports=(("https", 443, "TCP"),)
)
WEB = ClusterService(
    name="my-web", namespace="team", address="10.0.0.7", ports=(("http", 80, "TCP"), ("", 53, "UDP"))
)


def test_a_service_gives_host_ports_and_links() -> None:
    assert service_variables([WEB], "team", links=True) == {
        "MY_WEB_SERVICE_HOST": "10.0.0.7",
        "MY_WEB_SERVICE_PORT": "80",
        "MY_WEB_SERVICE_PORT_HTTP": "80",
        "MY_WEB_PORT": "tcp://10.0.0.7:80",
        "MY_WEB_PORT_80_TCP": "tcp://10.0.0.7:80",
        "MY_WEB_PORT_80_TCP_PROTO": "tcp",
        "MY_WEB_PORT_80_TCP_PORT": "80",
        "MY_WEB_PORT_80_TCP_ADDR": "10.0.0.7",
        "MY_WEB_PORT_53_UDP": "udp://10.0.0.7:53",
        "MY_WEB_PORT_53_UDP_PROTO": "udp",
        "MY_WEB_PORT_53_UDP_PORT": "53",
        "MY_WEB_PORT_53_UDP_ADDR": "10.0.0.7",
    }


def test_without_links_only_the_clusters_own_service_is_there() -> None:
    found = service_variables([WEB, KUBERNETES], "team", links=False)
    assert {name.split("_")[0] for name in found} == {"KUBERNETES"}
    both = service_variables([WEB, KUBERNETES], "team", links=True)
    assert {name.split("_")[0] for name in both} == {"KUBERNETES", "MY"}


def test_services_of_other_namespaces_stay_outside() -> None:
    other = ClusterService(name="db", namespace="other", address="10.0.0.9", ports=(("", 1, "TCP"),))
    assert service_variables([other], "team", links=True) == {}
    in_default = ClusterService(name="db", namespace="default", address="10.0.0.9", ports=(("", 1, "TCP"),))
    assert service_variables([in_default], "team", links=True) == {}


def test_a_service_of_the_pods_namespace_wins_over_the_clusters() -> None:
    own = ClusterService(name="kubernetes", namespace="team", address="10.0.0.5", ports=(("", 1, "TCP"),))
    for services in ([own, KUBERNETES], [KUBERNETES, own]):
        found = service_variables(services, "team", links=True)
        assert found["KUBERNETES_SERVICE_HOST"] == "10.0.0.5"


def test_an_address_with_colons_stands_in_brackets_in_links() -> None:
    six = ClusterService(name="six", namespace="team", address="fd00::1", ports=(("", 80, "TCP"),))
    found = service_variables([six], "team", links=True)
    assert (found["SIX_SERVICE_HOST"], found["SIX_PORT"]) == ("fd00::1", "tcp://[fd00::1]:80")
