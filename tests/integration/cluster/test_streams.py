"""Streams of a node in a cluster, as users ask for them: kubectl and the Python client, through an API server.

Each test runs against the double and, where its binaries are, against a real kube-apiserver; with kubectl as a SPDY
client, and as a WebSocket client where it is new enough. The node declares that WebSockets end at it, so a real API
server hands on what it gets.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import kubernetes
import pytest
from kubernetes.stream import portforward, stream

from kubeletx.node.identity import detect_node_ips
from kubeletx_testing.lab import image_ref
from kubeletx_testing.lab.kube_apiserver import KubeApiServer
from kubeletx_testing.lab.registry import free_port
from tests.integration.support.bench import Bench
from tests.integration.support.clusters import (
    API_SERVERS,
    ApiServer,
    ClusterNode,
    ready_namespace,
)
from tests.integration.support.kubectl import FIRST_WITH_DEBUG, SPDY, WEBSOCKET, Kubectl, Terminal, kubectl
from tests.integration.support.survival import until

ECHO = "nc -ll -p 7777 -e cat & while read -r line; do echo got $line; done; sleep 1000"
COUNTER = 'apiserver_websocket_streaming_requests_total{proxy_type="proxied_to_kubelet",subresource="'
COUNT = "i=0; while [ $i -lt 5 ]; do i=$((i+1)); echo line $i; sleep 0.3; done"


@pytest.fixture(scope="module")
def node(api: ApiServer, make_bench: Callable[..., Bench]) -> Iterator[ClusterNode]:
    """A node whose API the API server trusts, with pod ``web`` on it."""
    ready_namespace(api.admin)
    pair = api.authority.server("streams", detect_node_ips(()))
    bench = make_bench(
        node_name="streams",
        flags=(
            f"--kubeconfig={api.node_kubeconfig('streams')}",
            f"--port={free_port()}",
            f"--client-ca-file={api.ca_file}",
            f"--tls-cert-file={pair.cert_file}",
            f"--tls-private-key-file={pair.key_file}",
        ),
    )
    node = ClusterNode(api, bench.agent)
    node.wait_ready()
    node.apply("web", container={"stdin": True, "command": ["sh", "-c", ECHO]})
    node.wait_running("web")
    yield node
    bench.agent.stop()


@pytest.fixture(params=[SPDY, WEBSOCKET])
def client(request: pytest.FixtureRequest, node: ClusterNode) -> Kubectl:
    return kubectl(request.param, node.api.admin_kubeconfig())


@pytest.fixture
def core(node: ClusterNode) -> Iterator[kubernetes.client.CoreV1Api]:
    """The Python client, whose streams are WebSockets."""
    path = str(node.api.admin_kubeconfig())
    with kubernetes.config.new_client_from_config(path) as client:
        yield kubernetes.client.CoreV1Api(client)


def test_the_node_declares_that_websockets_end_at_it(node: ClusterNode) -> None:
    found = node.node()
    assert found is not None
    assert "ExtendWebSocketsToKubelet" in found["status"]["declaredFeatures"]


def test_a_command_has_its_streams_and_its_exit_code(client: Kubectl) -> None:
    done = client.run(
        "exec", "-i", "web", "--", "sh", "-c", "cat; echo problem >&2; exit 7", input_=b"hello\n"
    )
    assert (done.stdout, done.returncode) == (b"hello\n", 7)
    assert done.stderr.startswith(b"problem\n")


def test_a_command_that_cannot_run_says_why(client: Kubectl) -> None:
    done = client.run("exec", "web", "--", "/nothing")
    assert done.returncode != 0
    assert b"/nothing" in done.stderr


def test_a_terminal_follows_the_size_of_the_window(client: Kubectl) -> None:
    with client.terminal("exec", "-it", "web", "--", "sh", columns=100, rows=30) as terminal:
        terminal.type("echo size $(stty size)\n")
        terminal.wait_for("size 30 100")
        terminal.resize(120, 40)
        os.kill(terminal.process.pid, signal.SIGWINCH)
        until(lambda: _size_is(terminal, "40 120"), "the new size")
        terminal.type("exit 4\n")
        assert terminal.process.wait(60) == 4


def _size_is(terminal: Terminal, size: str) -> bool:
    terminal.text = ""
    terminal.type("echo size $(stty size) end\n")
    terminal.wait_for(" end\r\n")
    return f"size {size} end" in terminal.text


def test_attach_joins_the_main_process(client: Kubectl) -> None:
    with client.terminal("attach", "-i", "web", columns=80, rows=24) as terminal:
        until(lambda: _is_answered(terminal), "an answer")


def _is_answered(terminal: Terminal) -> bool:
    terminal.type("hello\n")  # again and again: what is typed before it is attached may be lost
    return "got hello" in terminal.read()


def test_files_are_copied_both_ways(client: Kubectl, tmp_path: Path) -> None:
    data = os.urandom(3_000_000)
    (tmp_path / "there").write_bytes(data)
    client.output("cp", str(tmp_path / "there"), "web:/tmp/copied")
    client.output("cp", "web:/tmp/copied", str(tmp_path / "back"))
    assert (tmp_path / "back").read_bytes() == data


def test_a_forwarded_port_carries_connections_one_after_the_other_and_at_once(client: Kubectl) -> None:
    with client.running("port-forward", "pod/web", ":7777") as process:
        assert process.stdout is not None
        port = int(re.search(rb"127\.0\.0\.1:(\d+)", process.stdout.readline())[1])  # type: ignore[index]
        data = os.urandom(1 << 20)
        for count in (1, 1, 4):
            with ThreadPoolExecutor(count) as pool:
                got = list(pool.map(lambda _: echoed(port, data), range(count)))
            assert got == [data] * count


def echoed(port: int, data: bytes) -> bytes:
    """What a forwarded connection gave back."""
    with closing(socket.create_connection(("127.0.0.1", port), timeout=60)) as connection:
        sending = threading.Thread(target=connection.sendall, args=(data,))
        sending.start()
        got = b""
        while len(got) < len(data) and (chunk := connection.recv(1 << 16)):
            got += chunk
        sending.join(60)
        return got


def test_a_port_that_no_one_listens_on_is_reported_to_the_user(client: Kubectl) -> None:
    with client.running("port-forward", "pod/web", ":7") as process:
        assert process.stdout is not None
        port = int(re.search(rb"127\.0\.0\.1:(\d+)", process.stdout.readline())[1])  # type: ignore[index]
        assert echoed(port, b"") == b""
        with closing(socket.create_connection(("127.0.0.1", port), timeout=60)) as connection:
            assert connection.recv(1) == b""
        reported = b""
        while b"refused" not in reported:
            line = process.stdout.readline()
            assert line, reported
            reported += line


def test_a_log_is_followed_to_its_end(node: ClusterNode, client: Kubectl) -> None:
    node.apply("counts", container={"command": ["sh", "-c", COUNT]}, restartPolicy="Never")
    try:
        node.wait("counts", lambda pod: pod["status"].get("phase") in ("Running", "Succeeded"), "started")
        assert client.output("logs", "-f", "counts") == "".join(f"line {i}\n" for i in range(1, 6))
        assert client.output("logs", "--tail=2", "counts") == "line 4\nline 5\n"
    finally:
        node.admin.delete("pods", "counts", namespace="default")
        node.wait_gone("counts")


def test_a_container_is_added_to_look_around(node: ClusterNode, client: Kubectl) -> None:
    node.apply("ill")
    try:
        client = kubectl(client.protocol, node.api.admin_kubeconfig(), since=FIRST_WITH_DEBUG)
        node.wait_running("ill")
        words = (
            "debug",
            "ill",
            f"--image={image_ref('busybox')}",
            "--container=look",
            "--target=main",
            "--quiet",
        )
        client.output(*words, "--", "sh", "-c", "echo looked; sleep 1000")
        node.wait("ill", _looks, "the added container running")
        until(lambda: client.output("logs", "ill", "-c", "look") == "looked\n", "its log")
        assert "sleep 10000" in client.output("exec", "ill", "-c", "look", "--", "ps")
    finally:
        node.admin.delete("pods", "ill", namespace="default")
        node.wait_gone("ill")


def _looks(pod: dict[str, Any]) -> bool:
    statuses = pod["status"].get("ephemeralContainerStatuses") or []
    return any("running" in one["state"] for one in statuses)


def test_a_pod_is_described_with_its_events(client: Kubectl) -> None:
    text = client.output("describe", "pod", "web")
    assert re.search(r"Status: +Running", text)
    assert re.search(r"Ready +True", text)
    for reason in ("Pulled|Pulling", "Created", "Started"):
        assert re.search(rf"Normal +({reason})", text)


def test_the_python_client_runs_commands_and_forwards_ports(core: kubernetes.client.CoreV1Api) -> None:
    session = stream(
        core.connect_get_namespaced_pod_exec,
        "web",
        "default",
        command=["sh", "-c", "read x; echo $x; exit 3"],
        stdin=True,
        stdout=True,
        stderr=True,
        _preload_content=False,
    )
    session.write_stdin("hello\n")
    session.run_forever(timeout=60)
    assert session.read_stdout() == "hello\n"
    assert session.returncode == 3
    session.close()
    session.sock.shutdown()
    forward = portforward(core.connect_get_namespaced_pod_portforward, "web", "default", ports="7777")
    with closing(forward.socket(7777)) as connection:
        connection.settimeout(60)
        connection.sendall(b"hello")
        assert connection.recv(5) == b"hello"


@pytest.mark.parametrize("api", API_SERVERS[1:], indirect=True)  # the double translates and counts nothing
def test_a_real_api_server_hands_everything_on_to_the_node(node: ClusterNode) -> None:
    assert isinstance(node.api, KubeApiServer)
    client = kubectl(WEBSOCKET, node.api.admin_kubeconfig())
    before = counted(node.api)
    client.output("exec", "web", "--", "true")
    with client.terminal("attach", "-i", "web", columns=80, rows=24) as terminal:
        until(lambda: counted(node.api).get("attach", 0) > before.get("attach", 0), "attach handed on")
        terminal.type("hello\n")
    with client.running("port-forward", "pod/web", ":7777") as process:
        assert process.stdout is not None
        assert b"Forwarding" in process.stdout.readline()
    after = counted(node.api)
    assert {name for name, count in after.items() if count > before.get(name, 0)} == {
        "exec",
        "attach",
        "portforward",
    }
    assert 'proxy_type="translated_at_apiserver"' not in metrics(node.api)
    path = f"/api/v1/nodes/{node.name}/proxy/metrics"
    seen = node.admin.send("GET", path).body.decode()
    for name in ("exec", "attach", "portforward"):
        assert f'kubelet_websocket_streaming_requests_total{{subresource="{name}"}}' in seen


def metrics(api: ApiServer) -> str:
    """Of the API server."""
    return api.admin.send("GET", "/metrics").body.decode()


def counted(api: ApiServer) -> dict[str, float]:
    """Streams that were handed on as they are, by subresource."""
    lines = [line for line in metrics(api).splitlines() if line.startswith(COUNTER)]
    return {line[len(COUNTER) :].partition('"')[0]: float(line.split()[-1]) for line in lines}
