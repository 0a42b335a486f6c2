"""The kubelet's API of an agent with one real guest: log, console, commands, a port, figures (DECISIONS 32).

Nothing is handed through here: the agent itself is the SPDY and the WebSocket server of machines.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from kubeletx.api import Channel, Internal, Session, StreamRequest
from kubeletx.streaming import open_port_forward, open_session
from kubeletx.streaming.remote_client import forward_over
from kubeletx.streaming.spdy import SpdyConnection
from kubeletx.streaming.tunnel import TUNNEL_PROTOCOLS, Tunnel
from kubeletx.testing.contract.streams import read_until
from kubeletx_testing.apiserver import CertificateAuthority
from kubeletx_testing.https_session import https_session
from kubeletx_testing.lab import Lab, put_manifest
from kubeletx_testing.lab.machines import UP, load_machine_image
from kubeletx_testing.lab.registry import free_port
from tests.integration.support.bench import Bench, until
from tests.integration.support.kubelet_client import KubeletClient, command
from tests.integration.support.machines import wait_console
from tests.integration.support.vm_pods import make_machines

pytestmark = pytest.mark.timeout(300)  # above what the waits of any one test allow together

POD = "apivm-lab"
FORWARD_PATH = f"/portForward/default/{POD}"
BOOT_SECONDS = 150
SECONDS = 60


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> CertificateAuthority:
    return CertificateAuthority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def bench(
    make_bench: Callable[..., Bench],
    lab: Lab,
    tmp_path_factory: pytest.TempPathFactory,
    authority: CertificateAuthority,
    port: int,
) -> Bench:
    fields: dict[str, Any] = {
        "address": "127.0.0.1",
        "authentication": {"x509": {"clientCAFile": str(authority.ca_file)}},
        "authorization": {"mode": "AlwaysAllow"},
    }
    bench = make_machines(
        lambda **more: make_bench(**{**more, "flags": (*more["flags"], f"--port={port}")}),
        lab,
        tmp_path_factory.mktemp("api"),
        agent=fields,
    )
    machine = {
        "name": "vm",
        "image": str(load_machine_image()),
        "resources": {"limits": {"cpu": "1", "memory": "192Mi"}},
    }
    manifest = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "apivm"},
        "spec": {"virtualMachine": machine, "terminationGracePeriodSeconds": 1},
    }
    put_manifest(bench.manifests, manifest)
    wait_console(bench.agent, POD, UP, timeout_seconds=BOOT_SECONDS)
    return bench


@pytest.fixture(scope="module")
def kubelet(bench: Bench, authority: CertificateAuthority, port: int) -> KubeletClient:
    return KubeletClient(port, authority.client("admin", ["system:masters"]))


async def run(kubelet: KubeletClient, *words: str, stdin: bool = False, tty: bool = False) -> Session:
    path = command("exec", POD, "vm", *words, input=stdin, output=True, error=not tty, tty=tty)
    request = StreamRequest(command=words, stdin=stdin, stderr=not tty, tty=tty)
    return await open_session(kubelet.url + path, request, tls=kubelet.tls)


async def test_commands_run_in_the_guest_with_their_exit_codes(bench: Bench, kubelet: KubeletClient) -> None:
    async with asyncio.timeout(SECONDS):
        session = await run(kubelet, "sh", "-c", "cat; echo problem >&2; exit 3", stdin=True)
        await session.write(b"hello")
        await session.close_stdin()
        got = [item async for item in session.output()]
        assert b"".join(data for channel, data in got if channel is Channel.STDOUT) == b"hello"
        assert b"".join(data for channel, data in got if channel is Channel.STDERR) == b"problem\n"
        assert await session.wait() == 3
        await session.close()


async def test_a_terminal_is_refused_with_what_to_do_instead(kubelet: KubeletClient) -> None:
    words = f"commands in machine default/{POD} have no terminal; leave -t out"
    async with asyncio.timeout(SECONDS):
        with pytest.raises(Internal, match=words):
            await run(kubelet, "sh", stdin=True, tty=True)


async def test_attach_is_the_console_of_the_guest(kubelet: KubeletClient) -> None:
    path = command("attach", POD, "vm", input=True, output=True, tty=True)
    request = StreamRequest(stdin=True, stderr=False, tty=True)
    async with asyncio.timeout(SECONDS):
        session = await open_session(kubelet.url + path, request, tls=kubelet.tls)
        await session.resize(100, 30)
        await session.write(b"\n")
        await read_until(session, lambda got: bool(got.strip()))
        await session.close()


async def test_a_websocket_of_the_older_kind_reaches_the_guest(kubelet: KubeletClient) -> None:
    path = command("exec", POD, "vm", "echo", "hello", output=True)
    async with (
        asyncio.timeout(SECONDS),
        https_session(kubelet.tls) as client,
        client.ws_connect(kubelet.url + path, protocols=("v4.channel.k8s.io",)) as ws,
    ):
        messages = [message.data async for message in ws]
    assert b"".join(one[1:] for one in messages if one[0] == Channel.STDOUT) == b"hello\n"
    assert b'"Success"' in messages[-1]


async def test_a_port_leads_into_the_guest(kubelet: KubeletClient) -> None:
    async with asyncio.timeout(SECONDS):
        await ask_guest(await open_port_forward(kubelet.url + FORWARD_PATH, 80, tls=kubelet.tls))


async def test_a_port_leads_into_the_guest_through_a_websocket_too(kubelet: KubeletClient) -> None:
    async with (
        asyncio.timeout(SECONDS),
        https_session(kubelet.tls) as client,
        client.ws_connect(kubelet.url + FORWARD_PATH, protocols=TUNNEL_PROTOCOLS) as ws,
        Tunnel(ws) as tunnel,
    ):
        await ask_guest(await forward_over(SpdyConnection(tunnel, tunnel), 80))


async def ask_guest(session: Session) -> None:
    await session.write(b"GET /index.html HTTP/1.0\r\n\r\n")
    assert (await read_until(session, lambda got: len(got) >= 7)).startswith(b"HTTP/1.")
    await session.close()


def test_the_console_is_the_log(kubelet: KubeletClient) -> None:
    code, text = kubelet.get(f"/containerLogs/default/{POD}/vm")
    assert (code, UP in text) == (200, True)


@pytest.mark.parametrize(
    ("path", "wanted"),
    [
        ("/metrics/resource", {"container_cpu_usage_seconds_total", "container_memory_working_set_bytes"}),
        (
            "/metrics/cadvisor",
            {"container_network_receive_bytes_total", "container_network_transmit_bytes_total"},
        ),
    ],
)
def test_the_machine_has_figures_for_top_and_dashboards(
    kubelet: KubeletClient, path: str, wanted: set[str]
) -> None:
    def shown() -> set[str]:
        code, text = kubelet.get(path)
        assert code == 200
        return {
            one.name
            for family in text_string_to_metric_families(text)
            for one in family.samples
            if one.labels.get("pod") == POD and one.value
        }

    until(lambda: wanted <= shown(), "figures of the machine")


def test_the_machine_can_write_no_checkpoint(kubelet: KubeletClient) -> None:
    code, text, _ = kubelet.ask("POST", f"/checkpoint/default/{POD}/vm")
    assert (code, "cannot write checkpoints" in text) == (405, True), text
