"""The kubelet API serves a pod of a core like any other, and what a session on it uses is counted."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kubeletx.api import Channel, StreamRequest
from kubeletx.streaming import open_session
from kubeletx_testing.apiserver import CertificateAuthority
from kubeletx_testing.fornaxcore import CoreSettings, FornaxCore, PodRequest, SessionRequest
from kubeletx_testing.lab import PrivateAgent, PrivateContainerd, pod_manifest
from kubeletx_testing.lab.registry import free_port
from tests.integration.support.kubelet_client import KubeletClient, command

SECONDS = 120.0
SCRIPT = "echo first; trap 'exit 0' TERM; while true; do i=$((i+1)); [ $((i % 20000)) = 0 ] && echo $i; done"


async def until(look: Callable[[], Any]) -> Any:
    """Return the first true result of a blocking look."""
    async with asyncio.timeout(SECONDS):
        while not (found := await asyncio.to_thread(look)):
            await asyncio.sleep(0.1)
    return found


async def run_in(kubelet: KubeletClient, *words: str) -> bytes:
    request = StreamRequest(command=words)
    path = command("exec", "web", "main", *words, output=True, error=True)
    session = await open_session(kubelet.url + path, request, tls=kubelet.tls)
    try:
        output = b"".join([data async for channel, data in session.output() if channel is Channel.STDOUT])
        assert await session.wait() == 0
    finally:
        await session.close()
    return output


async def test_a_pod_of_a_core_has_exec_logs_metrics_and_usage(
    make_agent: Callable[..., PrivateAgent], containerd_a: PrivateContainerd, tmp_path: Path
) -> None:
    authority, port = CertificateAuthority(tmp_path), free_port()
    kubelet = KubeletClient(port, authority.client("admin", ["system:masters"]))
    settings = CoreSettings(create_seconds=SECONDS, open_seconds=SECONDS)
    async with FornaxCore(settings) as core:
        agent = make_agent(
            endpoints=f"container:containerd:{containerd_a.endpoint}?handler=runc",
            flags=(
                f"--fornaxcore-url={core.address}",
                f"--port={port}",
                "--address=127.0.0.1",
                f"--client-ca-file={authority.ca_file}",
                "--authorization-mode=AlwaysAllow",
            ),
        )
        await asyncio.to_thread(agent.start)
        await core.wait_for(core.ready_nodes, SECONDS)
        spec = pod_manifest("web", container={"command": ["sh", "-c", SCRIPT]})["spec"]
        spec.pop("nodeName", None)
        core.create_pod(PodRequest(name="web", spec=spec))
        await core.wait_for(lambda: core.pod("default/web").phase == "Running", SECONDS)
        await asyncio.gather(
            check_api(kubelet),
            check_usage(core, agent),
        )
        core.terminate_pod("default/web")
        await core.wait_for(lambda: "default/web" not in core.state.pods, SECONDS)
        await until(lambda: not kubelet.json("/pods").get("items"))
        await asyncio.to_thread(agent.stop)


async def check_api(kubelet: KubeletClient) -> None:
    (pod,) = (await asyncio.to_thread(kubelet.json, "/pods"))["items"]
    assert (pod["metadata"]["name"], pod["status"]["phase"]) == ("web", "Running")
    assert await run_in(kubelet, "echo", "hello") == b"hello\n"
    text = await until(lambda: kubelet.get("/containerLogs/default/web/main")[1])
    assert text.startswith("first\n")
    await until(lambda: 'pod="web"' in kubelet.get("/metrics/resource")[1])
    assert 'pod="web"' in (await asyncio.to_thread(kubelet.get, "/metrics/cadvisor"))[1]
    summary = await asyncio.to_thread(kubelet.json, "/stats/summary")
    assert [one["podRef"]["name"] for one in summary["pods"]] == ["web"]


async def check_usage(core: FornaxCore, agent: PrivateAgent) -> None:
    """A session on a pod that does not serve sessions itself: it is open at once, and the pod's usage is its own."""

    def usage() -> Any:
        return json.loads(agent.cli("session", "usage", "-n", "shop", "-o", "json").stdout)

    session = core.open_session(SessionRequest(id="shop/s1", application="default/shop", pod="default/web"))
    await core.wait_for(lambda: session.status == "Available", SECONDS)
    await until(lambda: usage()["sessions"] and usage()["sessions"][0]["costs"]["cpuSeconds"] > 0)
    core.close_session("shop/s1")
    await core.wait_for(lambda: session.status == "Closed", SECONDS)
    path = agent.root_dir / "sessions" / "usage.jsonl"
    line = json.loads(await until(lambda: path.exists() and path.read_text().strip()))
    assert (line["id"], line["podId"], line["opened"]) == ("shop/s1", "default/web", 1)
    assert line["openSeconds"] > 0
    assert line["memoryByteSeconds"] > 0
    (first,), (last,) = line["logsAtOpen"], line["logsAtClose"]
    assert first["container"] == "main"
    assert first["offset"] < last["offset"]
    (total,) = usage()["applications"]
    assert total["costs"]["cpuSeconds"] == line["cpuSeconds"] > 0
