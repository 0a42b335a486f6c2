"""Port-forward to a pod on standby: it stays open while the pod is frozen, and each connection wakes the pod."""

from __future__ import annotations

import asyncio
import re
import subprocess
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kubeletx.kube.types.core import Pod
from kubeletx.streaming.spdy import SpdyConnection
from kubeletx.streaming.upgrade import connect_spdy
from kubeletx_testing.apiserver import CertificateAuthority
from kubeletx_testing.lab import PrivateAgent, PrivateContainerd, pod_manifest, put_manifest
from kubeletx_testing.lab.registry import free_port
from tests.integration.support.kubelet_client import KubeletClient

NAME = "web-lab"
REQUEST = b"GET /healthz HTTP/1.0\r\n\r\n"


@pytest.fixture
def authority(tmp_path: Path) -> CertificateAuthority:
    return CertificateAuthority(tmp_path)


@pytest.fixture
def kubelet(authority: CertificateAuthority) -> KubeletClient:
    return KubeletClient(free_port(), authority.client("admin", ["system:masters"]))


@pytest.fixture
def agent(
    make_agent: Callable[..., PrivateAgent],
    containerd_a: PrivateContainerd,
    authority: CertificateAuthority,
    kubelet: KubeletClient,
) -> PrivateAgent:
    """An agent with a runtime that can freeze containers, and with the kubelet's API."""
    flags = (
        f"--port={kubelet.port}",
        "--address=127.0.0.1",
        f"--client-ca-file={authority.ca_file}",
        "--authorization-mode=AlwaysAllow",
    )
    one = make_agent(endpoints=f"container:quark:{containerd_a.endpoint}?handler=runc", flags=flags)
    one.start()
    return one


@contextmanager
def forwarded(agent: PrivateAgent, pod: str = NAME, ports: str = ":8080") -> Iterator[str]:
    """The URL of a page of the pod through ``kubeletx port-forward``, while the command runs."""
    argv = [agent.argv()[0], f"--root-dir={agent.root_dir}", "port-forward", pod, ports]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            assert line.startswith("Forwarding from "), line
            yield f"http://{line.split()[2]}/healthz"
        finally:
            process.terminate()


def is_frozen(pod: Pod) -> bool:
    return any((one.type, one.status) == ("kubeletx.io/Standby", "True") for one in pod.status.conditions)


async def test_a_port_forward_lets_the_pod_rest_and_each_connection_wakes_it(
    agent: PrivateAgent, manifests: Path, kubelet: KubeletClient
) -> None:
    probe = {"readinessProbe": {"httpGet": {"path": "/healthz", "port": 8080}, "periodSeconds": 1}}
    put_manifest(manifests, pod_manifest("web", runtime="quark", image="web", command=None, container=probe))
    agent.wait_for("web")
    with forwarded(agent) as url:
        async with asyncio.timeout(120):
            reader, writer, _ = await connect_spdy(
                f"{kubelet.url}/portForward/default/{NAME}", ["portforward.k8s.io"], tls=kubelet.tls
            )
            connection = SpdyConnection(reader, writer)
            running = asyncio.create_task(connection.run())
            answer = agent.cli("pod", "standby", NAME, "--hibernate")
            assert answer.returncode == 0, answer.stderr
            agent.wait_for("web", is_frozen)

            with await asyncio.to_thread(urllib.request.urlopen, url, timeout=60) as page:
                assert page.read() == b"ok\n"
            agent.wait_for("web", is_frozen)

            headers = (("port", "8080"), ("requestid", "0"))
            await connection.open_stream((("streamtype", "error"), *headers), fin=True)
            data = await connection.open_stream((("streamtype", "data"), *headers))
            await asyncio.to_thread(agent.wait_for, "web", lambda pod: not is_frozen(pod))
            await data.write(REQUEST)
            assert (await data.read_all()).endswith(b"ok\n")
            pod = await asyncio.to_thread(agent.wait_for, "web", is_frozen)
            await connection.close()
            await running
    assert "Activated" in agent.cli("get", "events").stdout
    assert pod.status.container_statuses[0].restart_count == 0


def test_the_first_try_of_the_page_works_as_it_is_shown(
    agent: PrivateAgent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (Path(__file__).parents[3] / "docs" / "standby.md").read_text()
    tried = page.partition("## First try")[2].partition("\n## ")[0]
    commands = [
        line.partition("#")[0].split() for line in re.findall(r"^\$ kubeletx (.*)$", tried, re.MULTILINE)
    ]
    assert [words[0] for words in commands] == ["apply", "pod", "describe", "port-forward", "pod"]
    put_manifest(tmp_path, pod_manifest("web", image="web", command=None), name="web.yaml")
    monkeypatch.chdir(tmp_path)
    for words in commands:
        if words[0] == "port-forward":
            with forwarded(agent, "web", words[-1].replace("8080:", ":")) as url:
                with urllib.request.urlopen(url, timeout=60) as page_of_pod:
                    assert page_of_pod.read() == b"ok\n"
                agent.wait_for("web", is_frozen)
            continue
        answer = agent.cli(*words)
        assert answer.returncode == 0, answer.stderr
        if words[0] == "describe":
            assert re.search(
                r"^Standby: +Hibernated since .*memory: .* before, .* after", answer.stdout, re.M
            )
    agent.wait_for("web")
