"""Words that no one may read stay where they belong: not in logs, events, command lines, the database or other files.

The agent runs with its most talkative log, and every kind of secret passes through it, also through what fails.
"""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kubeletx_testing.apiserver import ApiServerDouble
from kubeletx_testing.lab import PrivateAgent
from kubeletx_testing.lab.images import load_images
from kubeletx_testing.lab.mounts import list_mounts
from kubeletx_testing.lab.process import list_pids
from kubeletx_testing.lab.registry import PrivateRegistry, free_port
from tests.integration.support.clusters import ClusterNode, ready_namespace
from tests.integration.support.kubelet_client import KubeletClient
from tests.integration.support.survival import until

MakeAgent = Callable[..., PrivateAgent]
SPACE, NAME = "default", "keeper"
FILE, VARIABLE, USER, WORD = "in-a-file-7Xq", "in-a-variable-8Yr", "pull-user-9Zs", "pull-word-4Wt"
STRANGER = "a-strangers-token-3Vu"


class CommandLines:
    """Every command line of the machine that is seen while the block runs."""

    def __init__(self) -> None:
        self.seen: set[bytes] = set()
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> CommandLines:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._ends.wait(0.02):
            for pid in list_pids():
                try:
                    self.seen.add(Path(f"/proc/{pid}/cmdline").read_bytes())
                except OSError:  # it has ended
                    continue


@pytest.fixture
def double(tmp_path: Path) -> Iterator[ApiServerDouble]:
    with ApiServerDouble(tmp_path / "api") as one:
        yield one


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[PrivateRegistry]:
    with PrivateRegistry(tmp_path / "registry", protected=True) as one:
        one.push(image for image in load_images() if image.name == "busybox")
        yield one


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def test_secrets_are_in_no_log_event_command_line_or_file(
    double: ApiServerDouble, make_agent: MakeAgent, registry: PrivateRegistry, tmp_path: Path
) -> None:
    node_token, viewer = double.add_user(f"system:node:{NAME}", ["system:nodes"]), double.add_user("viewer")
    token_file = tmp_path / "token"
    token_file.write_text(node_token)
    kubeconfig = double.kubeconfig(NAME, "none")
    kubeconfig.write_text(kubeconfig.read_text().replace("token: none", f"tokenFile: {token_file}"))
    ready_namespace(double.admin)
    make_secrets(double, registry)
    port = free_port()
    flags = [
        f"--kubeconfig={kubeconfig}",
        f"--client-ca-file={double.ca_file}",
        "--v=10",
        "--address=127.0.0.1",
    ]
    agent = make_agent(node_name=NAME, manifest_dir=None, flags=[*flags, f"--port={port}"])
    with CommandLines() as lines:
        agent.start()
        node = ClusterNode(double, agent)
        node.wait_ready()
        apply_pods(node, registry)
        node.wait_running("holder")
        until(lambda: "Failed" in node.events("refused"), "a pull that is refused")
        until(lambda: "FailedMount" in node.events("incomplete"), "a volume that cannot be")
        for token in (viewer, STRANGER):
            status = ask_with(port, token)
            assert status in (401, 403)
        pod_token = agent.cli("exec", "holder", "--", "cat", "/t/token").stdout
        assert agent.cli("exec", "holder", "--", "cat", "/s/key").stdout == FILE
        double.admin.patch("secrets", "words", {"data": {"key": encoded(FILE + "-new")}}, SPACE)
        until(
            lambda: agent.cli("exec", "holder", "--", "cat", "/s/key").stdout == FILE + "-new", "the new word"
        )
        double.admin.delete("secrets", "registry", SPACE)
        node.admin.delete("pods", "holder", namespace=SPACE)
        node.wait_gone("holder")
    agent.stop()
    words = [FILE, VARIABLE, WORD, STRANGER, node_token, viewer, pod_token.split(".")[-1]]
    forbidden = [form for word in words for form in (word, encoded(word))] + [encoded(f"{USER}:{WORD}")]
    assert all(len(word) >= 8 for word in forbidden)
    for word in forbidden:
        assert word not in agent.log_path.read_text(), "the log"
        assert word not in json.dumps(double.admin.list("events", SPACE)), "events"
        assert word not in json.dumps(double.admin.list("nodes")), "the node"
        assert word not in json.dumps(double.admin.list("pods", SPACE)), "pods"
        assert not any(word.encode() in line for line in lines.seen), "command lines"
        assert [path for path in files_of(agent) if word.encode() in path.read_bytes()] == []
    assert (agent.root_dir / "kubeletx.db").stat().st_size > 0


def make_secrets(double: ApiServerDouble, registry: PrivateRegistry) -> None:
    config = {"auths": {registry.address: {"username": USER, "password": WORD}}}
    for name, data in {
        "words": {"key": encoded(FILE), "variable": encoded(VARIABLE)},
        "registry": {".dockerconfigjson": encoded(json.dumps(config))},
    }.items():
        type_ = "kubernetes.io/dockerconfigjson" if name == "registry" else "Opaque"
        double.admin.create("secrets", {"metadata": {"name": name}, "type": type_, "data": data}, SPACE)


def apply_pods(node: ClusterNode, registry: PrivateRegistry) -> None:
    """One that gets everything, one whose pull is refused, one whose volume names a key that is not there."""
    token = {"serviceAccountToken": {"path": "token", "expirationSeconds": 600}}
    node.apply(
        "holder",
        container={
            "env": [{"name": "V", "valueFrom": {"secretKeyRef": {"name": "words", "key": "variable"}}}],
            "envFrom": [{"secretRef": {"name": "words"}}],
            "volumeMounts": [{"name": "s", "mountPath": "/s"}, {"name": "t", "mountPath": "/t"}],
        },
        volumes=[
            {"name": "s", "secret": {"secretName": "words"}},
            {"name": "t", "projected": {"sources": [token, {"secret": {"name": "words"}}]}},
        ],
    )
    node.apply(
        "refused",
        container={"image": f"{registry.address}/busybox:1", "imagePullPolicy": "Always"},
        imagePullSecrets=[{"name": "registry"}],
    )
    items = [{"key": "variable", "path": "v"}, {"key": "absent", "path": "a"}]
    node.apply(
        "incomplete",
        container={"volumeMounts": [{"name": "s", "mountPath": "/s"}]},
        volumes=[{"name": "s", "secret": {"secretName": "words", "items": items}}],
    )


def ask_with(port: int, token: str) -> int:
    """Status of a request to the kubelet's API with a bearer token."""
    import http.client

    client = KubeletClient(port, None)
    connection = http.client.HTTPSConnection("127.0.0.1", port, context=client.tls, timeout=60)
    try:
        connection.request("GET", "/pods", headers={"Authorization": f"Bearer {token}"})
        return connection.getresponse().status
    finally:
        connection.close()


def files_of(agent: PrivateAgent) -> list[Path]:
    """Everything that the agent has written to a disk: what is in memory (tmpfs of volumes) is not among it."""
    mounts = list_mounts(agent.root_dir)
    roots = (agent.root_dir, agent.logs_dir)
    return [
        path
        for root in roots
        for path in root.rglob("*")
        if path.is_file() and not any(str(path).startswith(f"{mount}/") for mount in mounts)
    ]
