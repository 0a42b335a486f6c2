"""Upgraded connections on their way to a node: what an API server hands on as it is."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import http.client
import socket
import socketserver
import ssl
import threading
from collections.abc import Iterator
from typing import Any, BinaryIO, Self

import pytest
import websocket

from kubeletx_testing.apiserver import ApiClient, ApiServerDouble, Pair
from kubeletx_testing.lab.kube_apiserver import KubeApiServer
from testing.tests.compared.api_cluster import GUARD_SECONDS, NodeUnderTest, pod

FEATURE = "ExtendWebSocketsToKubelet"
TUNNEL = "SPDY/3.1+portforward.k8s.io"
WEBSOCKET_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
"""RFC 6455, section 1.3."""


class NodeServer:
    """The node's server, in threads: echoes the first message of a WebSocket, remembers who asked for what."""

    def __init__(self, pair: Pair) -> None:
        self.asked: list[tuple[str, str]] = []
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._tls.load_cert_chain(pair.cert_file, pair.key_file)
        outer = self

        class Connection(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                outer._serve(self.rfile, self.wfile)

        class Server(socketserver.ThreadingTCPServer):
            def get_request(self) -> tuple[socket.socket, Any]:
                accepted, address = super().get_request()
                return outer._tls.wrap_socket(accepted, server_side=True), address

        self._server = Server(("127.0.0.1", 0), Connection)
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(GUARD_SECONDS)

    def _serve(self, reader: BinaryIO, writer: BinaryIO) -> None:
        path = reader.readline().split(b" ")[1].decode()
        headers = http.client.parse_headers(reader)
        self.asked.append((headers.get("Upgrade", "").lower(), path))
        if self.asked[-1][0] != "websocket":
            writer.write(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            return
        key = hashlib.sha1(headers["Sec-WebSocket-Key"].encode() + WEBSOCKET_GUID)
        writer.write(
            b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            b"Sec-WebSocket-Accept: %b\r\nSec-WebSocket-Protocol: %b\r\n\r\n"
            % (base64.b64encode(key.digest()), headers["Sec-WebSocket-Protocol"].encode())
        )
        head = reader.read(2)
        size = head[1] & 0x7F
        mask, data = reader.read(4), reader.read(size)
        writer.write(bytes((head[0], size)) + bytes(a ^ b for a, b in zip(data, mask * size, strict=False)))
        writer.write(b"\x88\x00")  # close
        reader.read(2)


@pytest.fixture
def served(
    server: ApiServerDouble | KubeApiServer, node: NodeUnderTest, namespace: str
) -> Iterator[NodeServer]:
    """The server of a node with pod ``one``."""
    with NodeServer(server.authority.server(node.name)) as made:
        status = {
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": made.port}},
        }
        node.client.patch("nodes", node.name, {"status": status}, subresource="status")
        one = pod("one", nodeName=node.name, automountServiceAccountToken=False)
        server.admin.create("pods", one, namespace)
        yield made


def declare(node: NodeUnderTest) -> None:
    """The node ends WebSockets itself."""
    status = {"declaredFeatures": [FEATURE]}
    node.client.patch("nodes", node.name, {"status": status}, subresource="status")


def echoed(admin: ApiClient, path: str, protocol: str) -> bytes:
    """What came back of a message. Raises WebSocketBadStatusException."""
    with contextlib.closing(
        websocket.create_connection(
            admin.url.replace("https", "wss") + path,
            sslopt={"context": admin.tls},
            header=admin.headers,
            subprotocols=[protocol],
            timeout=GUARD_SECONDS,
        )
    ) as ws:
        assert ws.subprotocol == protocol.lower()  # as this client tells it
        ws.send_binary(b"\x00hello")
        got: bytes = ws.recv()
        return got


@pytest.mark.parametrize(
    ("protocol", "verb", "query", "path"),
    [
        (
            "v4.channel.k8s.io",
            "exec",
            "command=a&command=b+c&stdout=true",
            "/exec/{}/one/c?command=a&command=b+c&output=1",
        ),
        (
            "v5.channel.k8s.io",
            "exec",
            "command=a&stdin=true&stdout=true&tty=true",
            "/exec/{}/one/c?command=a&input=1&output=1&tty=1",
        ),
        ("v5.channel.k8s.io", "attach", "stdout=true&stderr=true", "/attach/{}/one/c?error=1&output=1"),
        ("v4.channel.k8s.io", "portforward", "ports=80&ports=81", "/portForward/{}/one?port=80%2C81"),
        (TUNNEL, "portforward", "", "/portForward/{}/one"),
    ],
)
def test_websockets_end_at_a_node_that_declares_it(
    admin: ApiClient,
    node: NodeUnderTest,
    namespace: str,
    served: NodeServer,
    protocol: str,
    verb: str,
    query: str,
    path: str,
) -> None:
    declare(node)
    asked = f"/api/v1/namespaces/{namespace}/pods/one/{verb}?{query}"
    assert echoed(admin, asked, protocol) == b"\x00hello"
    assert served.asked == [("websocket", path.format(namespace))]


@pytest.mark.parametrize(("protocol", "verb"), [("v5.channel.k8s.io", "exec"), (TUNNEL, "portforward")])
def test_newer_websockets_never_reach_a_node_that_does_not_declare_it(
    admin: ApiClient, node: NodeUnderTest, namespace: str, served: NodeServer, protocol: str, verb: str
) -> None:
    asked = f"/api/v1/namespaces/{namespace}/pods/one/{verb}?command=a&stdout=true"
    with contextlib.suppress(
        websocket.WebSocketBadStatusException
    ):  # which a real server does not need to raise:
        # it answers the upgrade before it has asked the node, and has nothing to echo then
        assert echoed(admin, asked, protocol) != b"\x00hello"
    assert "websocket" not in [upgrade for upgrade, _ in served.asked]


def test_older_websockets_are_handed_on_to_every_node(
    admin: ApiClient, namespace: str, served: NodeServer
) -> None:
    asked = f"/api/v1/namespaces/{namespace}/pods/one/exec?command=a&stdout=true"
    assert echoed(admin, asked, "v4.channel.k8s.io") == b"\x00hello"
    assert [upgrade for upgrade, _ in served.asked] == ["websocket"]
