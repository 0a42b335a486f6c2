"""What the double hands on to a node: logs and upgraded connections."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web

from kubeletx_testing.apiserver import ApiServerDouble, StatusError
from kubeletx_testing.https_session import https_session

GUARD_SECONDS = 60


class NodeServer:
    """The node's side: answers logs, and echoes what comes over an upgraded connection."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str, dict[str, str]]] = []
        self.users: list[str] = []

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.seen.append((request.method, request.path_qs, dict(request.headers)))
        assert request.transport is not None
        certificate = request.transport.get_extra_info("peercert")
        parts = [pair for relative in certificate["subject"] for pair in relative]
        self.users.append(dict(parts)["commonName"])
        if request.path.startswith("/containerLogs/"):
            return web.Response(text="a line\n")
        if request.headers.get("Upgrade") == "SPDY/3.1":
            offered = request.headers.getall("X-Stream-Protocol-Version")
            return web.Response(status=403, text=" ".join(offered))
        response = web.WebSocketResponse(protocols=("v4.channel.k8s.io",))
        await response.prepare(request)
        async for message in response:
            await response.send_bytes(message.data)
        return response


@pytest.fixture
async def node(api: ApiServerDouble) -> AsyncIterator[NodeServer]:
    """A node whose server runs in the test's loop, with pod ``one`` on it."""
    served = NodeServer()
    pair = api.authority.server("node")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(pair.cert_file, pair.key_file)
    tls.load_verify_locations(api.ca_file)
    tls.verify_mode = ssl.CERT_REQUIRED
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", served.handle)
    runner = web.AppRunner(app, shutdown_timeout=0)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
    await site.start()
    port = runner.addresses[0][1]
    status = {
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
    }
    api.admin.create("nodes", {"metadata": {"name": "n1"}, "status": status})
    spec = {"nodeName": "n1", "containers": [{"name": "c", "image": "busybox"}]}
    api.admin.create("pods", {"metadata": {"name": "one"}, "spec": spec}, "default")
    yield served
    assert runner.server is not None
    for connection in runner.server.connections:  # the test's loop has no time for TLS to say good-bye
        if connection.transport is not None:
            connection.transport.abort()
    await runner.cleanup()


async def test_a_log_comes_from_the_node(api: ApiServerDouble, node: NodeServer) -> None:
    path = "/api/v1/namespaces/default/pods/one/log"
    reply = await asyncio.to_thread(api.admin.send, "GET", path, query={"tailLines": "5", "pretty": "x"})
    assert (reply.code, reply.body) == (200, b"a line\n")
    assert node.seen[0][:2] == ("GET", "/containerLogs/default/one/c?tailLines=5")
    assert node.users == ["kube-apiserver-kubelet-client"]


async def exec_on(api: ApiServerDouble, protocol: str) -> Any:
    tls = ssl.create_default_context(cafile=str(api.ca_file))
    url = (
        f"{api.url}/api/v1/namespaces/default/pods/one/exec?command=echo&command=a+b&stdout=true&stdin=false"
    )
    headers = {"Authorization": f"Bearer {api.admin_token}"}
    async with (
        asyncio.timeout(GUARD_SECONDS),
        https_session(tls, headers=headers) as session,
        session.ws_connect(url, protocols=(protocol,)) as socket,
    ):
        await socket.send_bytes(b"\x00hello")
        return (await socket.receive()).data


async def test_bytes_of_exec_are_handed_through(api: ApiServerDouble, node: NodeServer) -> None:
    assert await exec_on(api, "v4.channel.k8s.io") == b"\x00hello"
    method, path, headers = node.seen[0]
    assert (method, path) == ("GET", "/exec/default/one/c?command=echo&command=a+b&output=1")
    assert "Authorization" not in headers


async def test_all_protocols_that_a_client_speaks_are_handed_on(
    api: ApiServerDouble, node: NodeServer
) -> None:
    path = "/api/v1/namespaces/default/pods/one/exec?command=true"
    words = ("v4.channel.k8s.io", "channel.k8s.io")
    headers = [
        ("Connection", "Upgrade"),
        ("Upgrade", "SPDY/3.1"),
        *(("X-Stream-Protocol-Version", word) for word in words),
    ]
    async with (
        asyncio.timeout(GUARD_SECONDS),
        https_session(api.admin.tls, headers=api.admin.headers) as session,
        session.post(api.url + path, headers=headers) as answer,
    ):
        assert await answer.text() == " ".join(words)


async def test_what_is_not_translated_is_refused(api: ApiServerDouble, node: NodeServer) -> None:
    import aiohttp

    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        await exec_on(api, "v5.channel.k8s.io")
    assert refused.value.status == 400
    path = "/api/v1/namespaces/default/pods/one/exec?command=true"
    headers = {"Upgrade": "websocket", "Sec-WebSocket-Protocol": "v5.channel.k8s.io"}
    async with (
        asyncio.timeout(GUARD_SECONDS),
        https_session(api.admin.tls, headers=api.admin.headers) as session,
        session.get(api.url + path, headers=headers) as answer,
    ):
        text = (await answer.json())["message"]
    assert "does not translate v5.channel.k8s.io to SPDY" in text
    assert "node n1 does not declare ExtendWebSocketsToKubelet" in text
    assert node.seen == []


async def test_exec_needs_an_upgrade(api: ApiServerDouble, node: NodeServer) -> None:
    with pytest.raises(StatusError) as error:
        api.admin.ask("POST", "/api/v1/namespaces/default/pods/one/exec?command=true")
    assert (error.value.code, error.value.message) == (400, "Upgrade request required")
