"""The kubelet's API of an agent with real containers (section 15 of the parity table).

Streams of containerd are handed through; the same requests also come from the Python client of Kubernetes, whose
WebSocket ends at containerd (v4) or at the agent (v5).
"""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import re
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kubernetes.client import Configuration
from kubernetes.stream import ws_client
from prometheus_client.parser import text_string_to_metric_families

from kubeletx.api import Channel, Internal, Session, StreamRequest
from kubeletx.streaming import open_port_forward, open_session
from kubeletx.streaming.websocket import connect_session
from kubeletx.testing.contract.streams import echoed, read_until, saying
from kubeletx_testing.apiserver import CertificateAuthority
from kubeletx_testing.https_session import https_session
from kubeletx_testing.lab.registry import free_port
from tests.integration.support.bench import Bench, until
from tests.integration.support.kubelet_client import KubeletClient, command

ECHO = "nc -ll -p 7777 -e cat & echo $$; i=0; while read -r line; do echo got $line; done; sleep 1000"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> CertificateAuthority:
    return CertificateAuthority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def bench(make_bench: Callable[..., Bench], authority: CertificateAuthority, port: int) -> Bench:
    bench = make_bench(
        flags=(
            f"--port={port}",
            "--address=127.0.0.1",
            f"--client-ca-file={authority.ca_file}",
            "--authorization-mode=AlwaysAllow",
        )
    )
    bench.put("streams", ECHO, container={"stdin": True})
    bench.ready("streams")
    return bench


@pytest.fixture(scope="module")
def kubelet(bench: Bench, authority: CertificateAuthority, port: int) -> KubeletClient:
    return KubeletClient(port, authority.client("admin", ["system:masters"]))


async def collect(session: Session) -> tuple[bytes, bytes, int]:
    """What it wrote, and its exit code."""
    output = {Channel.STDOUT: b"", Channel.STDERR: b""}
    try:
        async for channel, data in session.output():
            output[channel] += data
        code = await session.wait()
    finally:
        await session.close()
    return output[Channel.STDOUT], output[Channel.STDERR], code


async def run(kubelet: KubeletClient, request: StreamRequest) -> Session:
    path = command(
        "exec",
        "streams-lab",
        "main",
        *request.command,
        input=request.stdin,
        output=request.stdout,
        error=request.stderr,
        tty=request.tty,
    )
    async with asyncio.timeout(60):
        return await open_session(kubelet.url + path, request, tls=kubelet.tls)


def test_strangers_are_told_nothing(kubelet: KubeletClient, port: int, tmp_path: Path) -> None:
    nobody = KubeletClient(port, None)
    for path in ("/pods", "/nothing", "/exec/default/streams-lab/main?command=ls&output=1"):
        assert nobody.get(path) == (401, "Unauthorized")
    other = CertificateAuthority(tmp_path).client("admin", ["system:masters"])
    with pytest.raises((OSError, http.client.HTTPException)):
        KubeletClient(port, other).get("/pods")


def test_the_key_is_for_its_owner_alone(bench: Bench) -> None:
    pki = bench.agent.root_dir / "pki"
    assert stat.S_IMODE((pki / "kubelet.key").stat().st_mode) == 0o600
    assert (pki / "kubelet.crt").exists()


def test_the_node_names_the_port(bench: Bench, port: int) -> None:
    endpoints = bench.agent.node().status.daemon_endpoints
    assert endpoints is not None
    assert endpoints.kubelet_endpoint is not None
    assert endpoints.kubelet_endpoint.port == port


def test_logs_are_read_whole_in_parts_and_as_they_come(bench: Bench, kubelet: KubeletClient) -> None:
    bench.put(
        "counts", "for i in 1 2 3; do echo line $i; done; sleep 2; echo last", spec={"restartPolicy": "Never"}
    )
    path = "/containerLogs/default/counts-lab/main"
    until(lambda: kubelet.get(path)[1].count("\n") >= 3, "three lines")
    assert kubelet.get(f"{path}?tailLines=1&limitBytes=4")[1] in ("line", "last")
    whole = "line 1\nline 2\nline 3\nlast\n"
    assert kubelet.ask("GET", f"{path}?follow=true") == (200, whole, "text/plain")
    stamped = kubelet.get(f"{path}?timestamps=true&tailLines=1")[1]
    assert stamped.endswith("Z last\n")
    assert kubelet.get(f"{path}?previous=true")[0] == 400
    assert kubelet.get("/containerLogs/default/counts-lab/other")[0] == 404
    assert kubelet.get("/containerLogs/default/none/main")[0] == 404


async def test_commands_run_with_their_streams_and_exit_codes(kubelet: KubeletClient) -> None:
    script = "cat; echo problem >&2; exit 7"
    session = await run(kubelet, StreamRequest(command=("sh", "-c", script), stdin=True))
    data = bytes(range(256)) * 4096

    async def send() -> None:
        await session.write(data)
        await session.close_stdin()

    sending = asyncio.create_task(send())
    assert await collect(session) == (data, b"problem\n", 7)
    await sending


async def test_a_terminal_has_the_size_that_was_sent(kubelet: KubeletClient) -> None:
    request = StreamRequest(command=("sh", "-c", "read x; stty size"), stdin=True, stderr=False, tty=True)
    session = await run(kubelet, request)
    await session.resize(132, 43)
    await asyncio.sleep(0.2)
    await session.write(b"\n")
    out, _, code = await collect(session)
    assert (out.split()[-2:], code) == ([b"43", b"132"], 0)


async def test_what_cannot_run_says_why(kubelet: KubeletClient) -> None:
    session = await run(kubelet, StreamRequest(command=("/nothing",)))
    with pytest.raises(Internal, match="/nothing"):
        await collect(session)


async def test_attach_joins_the_main_process(kubelet: KubeletClient) -> None:
    request = StreamRequest(stdin=True, stderr=False)
    path = command("attach", "streams-lab", "main", input=True, output=True)
    async with asyncio.timeout(60):
        session = await open_session(kubelet.url + path, request, tls=kubelet.tls)
        async with saying(session, b"hello\n"):
            await read_until(session, lambda got: b"got hello" in got)
        await session.close()


async def test_a_megabyte_goes_through_a_forwarded_port_and_back(kubelet: KubeletClient) -> None:
    data = os.urandom(1 << 20)
    async with asyncio.timeout(60):
        session = await open_port_forward(
            f"{kubelet.url}/portForward/default/streams-lab", 7777, tls=kubelet.tls
        )
        assert await echoed(session, data) == data
        await session.close()


@pytest.mark.parametrize("protocols", ["v4.channel.k8s.io", "v5.channel.k8s.io", ""])
def test_the_python_client_runs_commands(kubelet: KubeletClient, protocols: str) -> None:
    assert kubelet.credentials is not None
    configuration = Configuration()
    configuration.verify_ssl = False
    configuration.cert_file = str(kubelet.credentials.cert_file)
    configuration.key_file = str(kubelet.credentials.key_file)
    path = command(
        "exec",
        "streams-lab",
        "main",
        "sh",
        "-c",
        "read x; echo $x; exit 3",
        input=True,
        output=True,
        error=True,
    )
    headers = {"sec-websocket-protocol": protocols} if protocols else None
    client: Any = ws_client.WSClient(  # type: ignore[no-untyped-call]  # the package has no types
        configuration, kubelet.url.replace("https", "wss") + path, headers, capture_all=False
    )
    try:
        assert client.subprotocol == (protocols or "v5.channel.k8s.io")
        client.write_stdin("hello\n")
        client.run_forever(timeout=60)
        assert client.read_channel(ws_client.STDOUT_CHANNEL) == "hello\n"
        assert client.returncode == 3
    finally:
        client.close()
        client.sock.shutdown()  # which it leaves open after the far end has closed


async def test_websocket_v5_can_half_close(kubelet: KubeletClient) -> None:
    path = command("exec", "streams-lab", "main", "cat", input=True, output=True)
    async with asyncio.timeout(60), https_session(kubelet.tls) as client:
        session = await connect_session(client, kubelet.url + path)
        await session.write(b"hello")
        await session.close_stdin()
        assert await collect(session) == (b"hello", b"", 0)


def test_pods_are_shown_as_wanted_and_as_they_run(bench: Bench, kubelet: KubeletClient) -> None:
    wanted = {one["metadata"]["name"] for one in kubelet.json("/pods")["items"]}
    assert wanted == {pod.metadata.name for pod in bench.agent.pods()}
    running = {one["metadata"]["name"]: one for one in kubelet.json("/runningpods/")["items"]}
    assert [one["name"] for one in running["streams-lab"]["spec"]["containers"]] == ["main"]


def test_the_configuration_is_shown(kubelet: KubeletClient, port: int) -> None:
    shown = kubelet.json("/configz")["kubeletconfig"]
    assert (shown["kind"], shown["apiVersion"]) == ("KubeletConfiguration", "kubelet.config.k8s.io/v1beta1")
    assert (shown["port"], shown["authorization"]["mode"]) == (port, "AlwaysAllow")


def test_flags_and_state_are_shown(kubelet: KubeletClient, port: int) -> None:
    code, flags = kubelet.get("/flagz")
    assert (code, f"\nport={port}\n" in flags) == (200, True)
    code, state = kubelet.get("/statusz")
    assert (code, "\nStarted: " in state) == (200, True)


def test_the_log_is_made_more_talkative_and_silent_again(bench: Bench, kubelet: KubeletClient) -> None:
    def lines() -> int:
        return bench.agent.log_path.read_text().count("[debug")

    for verbosity, name in (("4", "loud"), ("0", "quiet")):
        code, text, _ = kubelet.ask("PUT", "/debug/flags/v", body=verbosity)
        assert (code, text) == (200, f"successfully set klog.logging.verbosity to {verbosity}")
        before = lines()
        bench.put(name)
        bench.ready(name)
        bench.remove(name)
        assert (lines() > before) == (verbosity == "4")


def test_the_nodes_own_logs_are_served(kubelet: KubeletClient) -> None:
    code, page = kubelet.get("/logs/")
    assert code == 200
    assert {path.name for path in Path("/var/log").iterdir() if path.is_file()} <= set(
        re.findall(r'<a href="(.*?)"', page)
    )
    log = next(path for path in Path("/var/log").glob("*.log") if path.is_file() and path.stat().st_size)
    code, text = kubelet.get(f"/logs/{log.relative_to('/var/log')}")
    assert code == 200
    assert text[:100] == log.read_text()[:100]
    assert kubelet.get("/logs/../../etc/passwd")[0] == 404


def samples(kubelet: KubeletClient, path: str, pod: str) -> dict[str, float]:
    """Metrics of one pod, by name; of several the last."""
    code, text = kubelet.get(path)
    assert code == 200
    return {
        one.name: one.value
        for family in text_string_to_metric_families(text)
        for one in family.samples
        if one.labels.get("pod") == pod
    }


def test_metrics_have_what_top_and_dashboards_need(bench: Bench, kubelet: KubeletClient) -> None:
    names = {
        "container_cpu_usage_seconds_total",
        "container_memory_working_set_bytes",
        "container_start_time_seconds",
        "pod_cpu_usage_seconds_total",
        "pod_memory_working_set_bytes",
    }
    until(lambda: names <= samples(kubelet, "/metrics/resource", "streams-lab").keys(), "resource metrics")
    assert all(samples(kubelet, "/metrics/resource", "streams-lab")[name] > 0 for name in names)
    more = {
        "container_cpu_usage_seconds_total",
        "container_memory_working_set_bytes",
        "container_memory_cache",
        "container_memory_rss",
        "container_network_receive_bytes_total",
        "container_network_transmit_packets_total",
        "container_fs_usage_bytes",
    }
    until(lambda: more <= samples(kubelet, "/metrics/cadvisor", "streams-lab").keys(), "cadvisor's metrics")
    until(lambda: "runtime" in kubelet.json("/stats/summary")["node"], "disk of the image store")
    summary = kubelet.json("/stats/summary")
    assert summary["node"]["cpu"]["usageCoreNanoSeconds"] > 0
    capacity = summary["node"]["runtime"]["imageFs"]["capacityBytes"]
    assert capacity > 0
    services = [one["imageService"] for one in json.loads(bench.agent.get("/v1/runtimes"))["items"]]
    assert capacity in [
        one["capacityBytes"] for one in services if 0 < (one["availableBytes"] or 0) <= capacity
    ]
    (one,) = (pod for pod in summary["pods"] if pod["podRef"]["name"] == "streams-lab")
    assert one["containers"][0]["memory"]["workingSetBytes"] > 0
    assert one["network"]["name"] == "eth0"


def test_volumes_of_a_pod_are_in_the_summary(bench: Bench, kubelet: KubeletClient) -> None:
    bench.put(
        "filled",
        "head -c 300000 /dev/zero > /disk/file; head -c 500000 /dev/zero > /memory/file; sleep 1000",
        container={
            "volumeMounts": [{"name": one, "mountPath": f"/{one}"} for one in ("disk", "memory", "labels")]
        },
        spec={
            "volumes": [
                {"name": "disk", "emptyDir": {}},
                {"name": "memory", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}},
                {
                    "name": "labels",
                    "downwardAPI": {"items": [{"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}]},
                },
            ]
        },
    )
    bench.ready("filled")

    def volumes() -> dict[str, dict[str, Any]]:
        pods = [
            one for one in kubelet.json("/stats/summary")["pods"] if one["podRef"]["name"] == "filled-lab"
        ]
        return {one["name"]: one for pod in pods for one in pod.get("volume", [])}

    def is_filled(name: str, size: int) -> bool:
        used: int = volumes().get(name, {}).get("usedBytes", 0)
        return used >= size

    until(lambda: is_filled("disk", 300_000) and is_filled("memory", 500_000), "statistics of filled volumes")
    until(lambda: "labels" in volumes(), "statistics of all volumes")
    found = volumes()
    assert found["memory"]["capacityBytes"] == 1 << 20
    for one in found.values():
        assert one["inodesUsed"] >= 2
        assert {"time", "availableBytes", "inodes", "inodesFree"} <= one.keys()


def test_probes_are_counted(bench: Bench, kubelet: KubeletClient) -> None:
    probe = {"exec": {"command": ["true"]}, "periodSeconds": 1}
    bench.put("probed", container={"readinessProbe": probe})
    bench.ready("probed")
    assert samples(kubelet, "/metrics/probes", "probed-lab")["prober_probe_total"] >= 1


def test_commands_without_an_upgrade_run_only_as_run(kubelet: KubeletClient) -> None:
    path = "/exec/default/streams-lab/main?command=ls&output=1"
    assert kubelet.ask("POST", path)[:2] == (400, "Upgrade request required")
    assert kubelet.ask("POST", "/run/default/streams-lab/main?cmd=echo+hello")[:2] == (200, "hello\n")
    assert kubelet.get("/healthz") == (200, "ok")


def test_containers_pods_and_shared_cgroups_have_rows_of_what_the_kernel_counts(
    bench: Bench, kubelet: KubeletClient
) -> None:
    def rows() -> dict[tuple[str, str], dict[str, float]]:
        """Values by metric, of each (container, cgroup)."""
        code, text = kubelet.get("/metrics/cadvisor")
        assert code == 200
        found: dict[tuple[str, str], dict[str, float]] = {}
        for family in text_string_to_metric_families(text):
            for one in family.samples:
                if one.labels.get("pod") == "streams-lab" or not one.labels.get("pod", "x"):
                    key = (one.labels["container"], one.labels["id"])
                    found.setdefault(key, {})[one.name] = one.value
        return found

    of_main = {
        "container_file_descriptors",
        "container_fs_limit_bytes",
        "container_memory_failcnt_total",
        "container_memory_failures_total",
        "container_memory_max_usage_bytes",
        "container_processes",
        "container_sockets",
        "container_spec_cpu_shares",
        "container_threads",
    }
    until(lambda: any(of_main <= row.keys() for (name, _), row in rows().items() if name), "rows")
    found = rows()
    ((_, path), main) = next((key, row) for key, row in found.items() if key[0])
    assert main["container_processes"] >= 1
    assert main["container_threads"] >= main["container_processes"]
    assert main["container_file_descriptors"] >= main["container_sockets"]
    assert main["container_memory_max_usage_bytes"] >= main["container_memory_working_set_bytes"] > 0
    pod_path = path.rpartition("/")[0]
    pod = found["", pod_path]
    assert pod["container_memory_usage_bytes"] >= main["container_memory_usage_bytes"] > 0
    assert pod["container_cpu_usage_seconds_total"] > 0
    assert pod_path.count("/") >= 2, "the pod stands below the cgroup of its QoS class"
    shared = found["", pod_path.rpartition("/")[0]]
    assert shared["container_cpu_usage_seconds_total"] >= pod["container_cpu_usage_seconds_total"]
    assert found["", "/"]["container_cpu_usage_seconds_total"] > 0
    system = {one["name"]: one for one in kubelet.json("/stats/summary")["node"]["systemContainers"]}
    assert system["pods"]["memory"]["workingSetBytes"] > 0
