"""A node gets its identity by a bootstrap, renews it, and serves its API with the cluster's certificate (C1-C3).

The API server is the double, which signs as a controller manager does.
"""

from __future__ import annotations

import math
import socket
import ssl
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kubeletx_testing.apiserver import ApiServerDouble
from kubeletx_testing.lab import PrivateAgent, pod_manifest, put_manifest
from kubeletx_testing.lab.registry import free_port
from tests.integration.support.clusters import ClusterNode, condition, is_ready
from tests.integration.support.survival import until

MakeAgent = Callable[..., PrivateAgent]
NAME = "joining"


@pytest.fixture
def api(tmp_path: Path) -> Iterator[ApiServerDouble]:
    """A cluster for each test: what it approves differs."""
    with ApiServerDouble(tmp_path / "api") as double:
        yield double


def joining(api: ApiServerDouble, make_agent: MakeAgent, root: Path, *flags: str) -> ClusterNode:
    """A node that has a bootstrap token and nothing else."""
    agent = make_agent(
        name=NAME,
        node_name=NAME,
        flags=[
            f"--kubeconfig={root / 'made.kubeconfig'}",
            f"--bootstrap-kubeconfig={api.bootstrap_kubeconfig()}",
            f"--cert-dir={root / 'pki'}",
            *flags,
        ],
    )
    agent.start()
    return ClusterNode(api, agent)


def approve_all(api: ApiServerDouble) -> int:
    """Approve what waits; how many."""
    waiting = [
        one
        for one in api.admin.list("certificatesigningrequests")["items"]
        if not one.get("status", {}).get("conditions")
    ]
    approved = {"type": "Approved", "status": "True", "reason": "Test", "message": ""}
    for one in waiting:
        api.admin.replace(
            "certificatesigningrequests", {**one, "status": {"conditions": [approved]}}, "approval"
        )
    return len(waiting)


def metric(node: ClusterNode, name: str) -> float:
    """The value of a metric without labels."""
    lines = node.agent.get("/metrics").decode().splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith(f"{name} "))


def requests(api: ApiServerDouble) -> list[str]:
    return [one["metadata"]["name"] for one in api.admin.list("certificatesigningrequests")["items"]]


def test_static_pods_run_while_no_one_approves_the_node(
    api: ApiServerDouble, make_agent: MakeAgent, manifests: Path, tmp_path: Path
) -> None:
    api.settings.auto_approve = False
    put_manifest(manifests, pod_manifest("early"))
    node = joining(api, make_agent, tmp_path)
    node.agent.wait_for(f"early-{NAME}")
    until(lambda: requests(api), "a certificate request")
    assert node.node() is None
    assert approve_all(api) == 1
    node.wait_ready()
    node.wait(f"early-{NAME}", is_ready, "the mirror of the static pod")


def test_a_request_outlives_the_agent(api: ApiServerDouble, make_agent: MakeAgent, tmp_path: Path) -> None:
    api.settings.auto_approve = False
    node = joining(api, make_agent, tmp_path)
    until(lambda: requests(api), "a certificate request")
    node.agent.kill()
    node.agent.start()
    approve_all(api)
    node.wait_ready()
    assert len(requests(api)) == 1


def test_what_is_written_is_for_the_agent_alone_and_serves_the_next_start(
    api: ApiServerDouble, make_agent: MakeAgent, tmp_path: Path
) -> None:
    node = joining(api, make_agent, tmp_path)
    node.wait_ready()
    files = [tmp_path / "made.kubeconfig", *(tmp_path / "pki").glob("kubelet-client-*.pem")]
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
    before = requests(api)
    node.agent.restart()
    heartbeat = condition(node.wait_ready(), "Ready")["lastHeartbeatTime"]
    assert heartbeat
    assert requests(api) == before


def test_a_certificate_that_ends_soon_is_renewed_and_the_node_stays(
    api: ApiServerDouble, make_agent: MakeAgent, tmp_path: Path
) -> None:
    api.settings.certificate_seconds = 60
    node = joining(api, make_agent, tmp_path, "--rotate-certificates")
    node.wait_ready()
    current = tmp_path / "pki" / "kubelet-client-current.pem"
    first = current.read_bytes()
    until(lambda: current.read_bytes() != first, "another client certificate")
    api.settings.certificate_seconds = 24 * 3600
    pod = node.apply("later")
    assert pod["spec"]["nodeName"] == NAME
    node.wait_running("later")
    until(
        lambda: 0 < metric(node, "kubelet_certificate_manager_client_ttl_seconds") <= 24 * 3600,
        "the life of the certificate in the metrics",
    )
    assert metric(node, "kubelet_certificate_manager_client_expiration_renew_errors") == 0


def test_the_api_of_the_node_is_served_with_the_clusters_certificate(
    api: ApiServerDouble, make_agent: MakeAgent, tmp_path: Path
) -> None:
    port = free_port()
    node = joining(api, make_agent, tmp_path, "--rotate-server-certificates", f"--port={port}")
    found = node.wait_ready()
    address = next(a["address"] for a in found["status"]["addresses"] if a["type"] == "InternalIP")
    trusted = ssl.create_default_context(cafile=str(api.ca_file))

    def is_trusted() -> bool:
        try:
            with (
                socket.create_connection((address, port), timeout=10) as raw,
                trusted.wrap_socket(raw, server_hostname=address),
            ):
                return True
        except OSError:
            return False

    until(is_trusted, "a certificate that the cluster's authority vouches for")
    until(
        lambda: 0 < metric(node, "kubelet_certificate_manager_server_ttl_seconds") < math.inf,
        "the life of the certificate in the metrics",
    )
    assert metric(node, "kubelet_server_expiration_renew_errors") == 0
