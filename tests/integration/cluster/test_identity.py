"""Who a node is, when that comes to its end, changes under it, or cannot be agreed on because clocks differ.

Certificates against the double and a real API server. What needs a cluster's own clock or its tokens: the double only.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from kubeletx_testing.apiserver import ApiServerDouble, Pair, write_kubeconfig
from kubeletx_testing.lab import PrivateAgent, pod_manifest, put_manifest
from tests.integration.support.clusters import (
    ApiServer,
    ClusterNode,
    ready_namespace,
)
from tests.integration.support.survival import until

MakeAgent = Callable[..., PrivateAgent]
HOUR = timedelta(hours=1)


class Files:
    """The certificate files that a kubeconfig names."""

    def __init__(self, api: ApiServer, directory: Path, name: str) -> None:
        self.api, self.name = api, name
        self._pair = Pair(directory / "node.crt", directory / "node.key")
        self._number = 0

    def give(self, life: timedelta) -> None:
        """Another certificate, good for so long; negative: it is over."""
        self._number += 1
        user, file_name = f"system:node:{self.name}", f"{self.name}-{self._number}"
        fresh = self.api.authority.client(user, ["system:nodes"], life=life, file_name=file_name)
        for one, other in zip(
            (fresh.key_file, fresh.cert_file), (self._pair.key_file, self._pair.cert_file), strict=True
        ):
            shutil.copy(one, other)

    def kubeconfig(self, directory: Path) -> Path:
        return write_kubeconfig(directory / "kubeconfig", self.api.url, self.api.ca_file, self._pair)


def reported(node: ClusterNode, words: str) -> None:
    """Wait until the agent's log has these words."""
    until(lambda: words in node.agent.log_path.read_text(), f"{words!r} in the log")


def test_an_agent_that_starts_with_a_certificate_that_is_over_joins_when_there_is_another(
    api: ApiServer, make_agent: MakeAgent, manifests: Path, tmp_path: Path
) -> None:
    ready_namespace(api.admin)
    files = Files(api, tmp_path, "late-node")
    files.give(-HOUR)
    put_manifest(manifests, pod_manifest("static"))
    agent = make_agent(node_name=files.name, flags=[f"--kubeconfig={files.kubeconfig(tmp_path)}"])
    agent.start()
    node = ClusterNode(api, agent)
    agent.wait_for("static")
    reported(node, "Unauthorized")
    assert node.node() is None
    files.give(HOUR)
    node.wait_ready()
    node.apply("first")
    node.wait_running("first")


def test_a_certificate_that_ends_while_the_agent_runs_costs_nothing_but_time(
    api: ApiServer, make_agent: MakeAgent, tmp_path: Path
) -> None:
    ready_namespace(api.admin)
    files = Files(api, tmp_path, "ending-node")
    files.give(timedelta(seconds=30))
    agent = make_agent(node_name=files.name, flags=[f"--kubeconfig={files.kubeconfig(tmp_path)}"])
    agent.start()
    node = ClusterNode(api, agent)
    node.wait_ready()
    node.apply("before")
    node.wait_running("before")
    reported(node, "Unauthorized")
    node.admin.delete("pods", "before", namespace="default")
    node.apply("after")
    files.give(HOUR)
    node.wait_gone("before")
    node.wait_running("after")


@pytest.fixture
def double(tmp_path: Path) -> Iterator[ApiServerDouble]:
    with ApiServerDouble(tmp_path / "double") as one:
        yield one


def test_a_node_follows_the_file_of_its_token(
    double: ApiServerDouble, make_agent: MakeAgent, tmp_path: Path
) -> None:
    name = "token-node"
    kubeconfig = double.kubeconfig(name, "none")
    token = tmp_path / "token"
    kubeconfig.write_text(kubeconfig.read_text().replace("token: none", f"tokenFile: {token}"))
    token.write_text("never-given")
    agent = make_agent(node_name=name, manifest_dir=None, flags=[f"--kubeconfig={kubeconfig}"])
    agent.start()
    node = ClusterNode(double, agent)
    reported(node, "Unauthorized")
    good = double.add_user(f"system:node:{name}", ["system:nodes"])
    token.write_text(good)
    node.wait_ready()
    token.write_text("")
    node.apply("web")
    node.wait_running("web")
    reported(node, "holds no token")
    shown = agent.log_path.read_text()
    assert good not in shown
    assert "never-given" not in shown


@pytest.mark.parametrize("hours", [-30, 30])
def test_a_cluster_with_another_clock_runs_pods_renews_tokens_and_lets_them_go(
    double: ApiServerDouble, make_agent: MakeAgent, tmp_path: Path, hours: int
) -> None:
    double.settings.clock_offset = timedelta(hours=hours)
    long = double.authority.client("system:node:odd", ["system:nodes"], life=40 * HOUR, since=40 * HOUR)
    agent = make_agent(
        node_name="odd", manifest_dir=None, flags=[f"--kubeconfig={double.kubeconfig('odd', long)}"]
    )
    ready_namespace(double.admin)
    agent.start()
    node = ClusterNode(double, agent)
    node.wait_ready()
    node.apply("web", automountServiceAccountToken=True)
    pod = node.wait_running("web")
    token = node.agent.cli("exec", "web", "--", "cat", "/var/run/secrets/kubernetes.io/serviceaccount/token")
    review = {"spec": {"token": token.stdout}}
    assert double.admin.create("tokenreviews", review)["status"]["authenticated"]
    asked = [one for one in double.requests.all() if one.path.endswith("/token")]
    assert len(asked) == 1, "a token is not over because clocks differ"
    lease = double.admin.get("leases", node.name, namespace="kube-node-lease")
    renewed = datetime.fromisoformat(lease["spec"]["renewTime"])
    assert abs(datetime.now(UTC) - renewed) < HOUR, "the node's own time"
    until(lambda: "Started" in node.events("web"), "events")
    assert pod["status"]["startTime"]
    node.admin.delete("pods", "web", namespace="default")
    node.wait_gone("web")


@pytest.mark.parametrize("hours", [-30, 30])
def test_a_node_joins_a_cluster_with_another_clock(
    double: ApiServerDouble, make_agent: MakeAgent, tmp_path: Path, hours: int
) -> None:
    double.settings.clock_offset = timedelta(hours=hours)
    double.settings.certificate_seconds = 7200
    flags = [
        f"--kubeconfig={tmp_path / 'made.kubeconfig'}",
        f"--bootstrap-kubeconfig={double.bootstrap_kubeconfig()}",
        f"--cert-dir={tmp_path / 'pki'}",
        "--rotate-certificates",
    ]
    ready_namespace(double.admin)
    agent = make_agent(node_name="skewed", manifest_dir=None, flags=flags)
    agent.start()
    node = ClusterNode(double, agent)
    node.wait_ready()
    node.apply("web")
    node.wait_running("web")
    agent.restart()
    node.apply("second")
    node.wait_running("second")
    assert len(double.admin.list("certificatesigningrequests")["items"]) <= 8, "no flood of requests"


def test_a_second_agent_of_the_name_runs_its_static_pods_and_reports_nothing(
    api: ApiServer, make_agent: MakeAgent, tmp_path: Path
) -> None:
    ready_namespace(api.admin)
    name = "one-name"
    nodes = []
    for number in ("first", "second"):
        manifests = tmp_path / number
        manifests.mkdir()
        put_manifest(manifests, pod_manifest(f"static-{number}"))
        kubeconfig = api.node_kubeconfig(name)
        agent = make_agent(node_name=name, manifest_dir=manifests, flags=[f"--kubeconfig={kubeconfig}"])
        agent.start()
        nodes.append(ClusterNode(api, agent))
        agent.wait_for(f"static-{number}")
        if number == "first":
            nodes[0].wait_ready()
    first, second = nodes
    reported(second, "Stopped reporting")
    until(lambda: "DuplicateNode" in first.events(name), "the event in the API")
    first.apply("late")
    first.wait_running("late")
    assert [pod.name for pod in second.agent.pods()] == [f"static-second-{name}"]
    assert second.find(f"static-second-{name}") is None, "it makes no mirrors"
    assert second.agent.pods()[0].status.phase == "Running"
