"""Requests that an API server forwards to a node: logs, exec, attach, port-forward and the node's own paths.

The node is the one in the pod's spec.nodeName. The host is the first IP address in the Node's addresses, an
InternalIP before an ExternalIP (a real server tries the types of --kubelet-preferred-address-types in order).
The port is the one in daemonEndpoints. Source: kubernetes, pkg/registry/core/pod/strategy.go LogLocation and
streamLocation; pkg/kubelet/client/kubelet_client.go.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import urlencode

import aiohttp
import msgspec
from aiohttp import web

from kubeletx.api import Unavailable
from kubeletx.streaming.takeover import TakenOver, pass_through

from ..https_session import https_session
from .ca import Pair
from .errors import Json, StatusError, bad_request, not_found
from .requests import Asked
from .resources import resource
from .store import Store

DEFAULT_PORT: Final = 10250
_LOG_QUERY: Final = (
    "follow",
    "limitBytes",
    "previous",
    "sinceSeconds",
    "sinceTime",
    "stream",
    "tailLines",
    "timestamps",
)
_CHUNK: Final = 256 * 1024
_STREAMS: Final = {"stdin": "input", "stdout": "output", "stderr": "error", "tty": "tty"}
_TRUE: Final = ("true", "1")
_TRANSLATED: Final = ("v5.channel.k8s.io", "SPDY/3.1+portforward.k8s.io")
_FEATURE: Final = "ExtendWebSocketsToKubelet"


class NodeAddress(msgspec.Struct, frozen=True):
    """Host and port on which a node's agent serves the kubelet API."""

    host: str
    port: int


class NodeProxy:
    """Forwards requests to nodes as the API server's user kube-apiserver-kubelet-client.

    `credentials`: this user's client certificate.
    """

    def __init__(self, store: Store, credentials: Pair) -> None:
        self._store = store
        self._tls = ssl.create_default_context()
        self._tls.check_hostname = False
        self._tls.verify_mode = ssl.CERT_NONE
        self._tls.load_cert_chain(credentials.cert_file, credentials.key_file)

    async def forward(self, request: web.Request, asked: Asked) -> web.StreamResponse:
        """Forward the request to the node and return the node's answer.

        Raises StatusError if the request is invalid or the node does not answer.
        """
        if asked.resource.plural == "nodes":
            address = self._address(asked.name, asked)
            return await self._plain(request, address, f"/{asked.rest}", request.query_string)
        pod = self._pod(asked)
        container = _container(pod, asked)
        node = pod["spec"].get("nodeName")
        if not node and asked.subresource == "log":
            return web.Response(status=204)
        if not node:
            raise bad_request(f"pod {asked.name} does not have a host assigned")
        if asked.subresource != "log":
            self._check_upgrade(request, node)
            return await self._stream(request, asked, self._address(node, asked), container)
        query = {name: asked.query[name] for name in _LOG_QUERY if name in asked.query}
        path = f"/containerLogs/{asked.namespace}/{asked.name}/{container}"
        return await self._plain(request, self._address(node, asked), path, urlencode(query))

    def _pod(self, asked: Asked) -> Json:
        pod = self._store.find(asked.resource, (asked.namespace, asked.name))
        if pod is None:
            raise not_found(asked.resource, asked.name)
        return pod.value

    def _address(self, node: str, asked: Asked) -> NodeAddress:
        stored = self._store.find(resource("nodes"), ("", node))
        if stored is None:
            raise not_found(asked.resource, node)
        status = stored.value.get("status") or {}
        port = (status.get("daemonEndpoints") or {}).get("kubeletEndpoint", {}).get("Port") or DEFAULT_PORT
        for kind in ("InternalIP", "ExternalIP"):
            for address in status.get("addresses") or []:
                if address.get("type") == kind:
                    return NodeAddress(address["address"], port)
        raise StatusError(
            500, "InternalError", f"no preferred addresses found; known addresses: [] of node {node}"
        )

    def _check_upgrade(self, request: web.Request, node: str) -> None:
        """Raise StatusError 400 if the request has no upgrade, or one that the node cannot serve.

        WebSocket v5 and tunnelled SPDY are forwarded to a node that declares support. For other nodes a real
        server translates them to SPDY. The double refuses them, and kubectl then uses SPDY itself. Source:
        kubernetes, pkg/registry/core/pod/rest/subresources.go, feature ExtendWebSocketsToKubelet.
        """
        if request.headers.get("Upgrade") is None:
            raise bad_request("Upgrade request required")
        offered = ",".join(request.headers.getall("Sec-WebSocket-Protocol", []))
        stored = self._store.find(resource("nodes"), ("", node))
        declared = (
            (stored.value.get("status") or {}).get("declaredFeatures") or [] if stored is not None else []
        )
        if any(protocol in offered for protocol in _TRANSLATED) and _FEATURE not in declared:
            raise bad_request(
                f"the double does not translate {offered} to SPDY, and node {node} does not declare {_FEATURE}"
            )

    async def _stream(
        self, request: web.Request, asked: Asked, address: NodeAddress, container: str
    ) -> web.StreamResponse:
        """Connect the client to the node and copy bytes both ways.

        Source: strategy.go ExecLocation, AttachLocation and PortForwardLocation.
        """
        if asked.subresource == "portforward":
            path, query = f"/portForward/{asked.namespace}/{asked.name}", _ports_query(request)
        else:
            path = f"/{asked.subresource}/{asked.namespace}/{asked.name}/{container}"
            query = _stream_query(request)
        kept = request.headers.copy()  # a multidict: the client's protocols are several headers of one name
        kept.popall("Authorization", None)
        url = f"https://{address.host}:{address.port}{path}" + (f"?{urlencode(query)}" if query else "")
        try:
            await pass_through(request.clone(headers=kept), url, tls=self._tls)
        except Unavailable as err:
            raise StatusError(500, "InternalError", f"error dialing backend: {err}", {}) from err
        return TakenOver()

    async def _plain(
        self, request: web.Request, address: NodeAddress, path: str, query: str
    ) -> web.StreamResponse:
        url = f"https://{address.host}:{address.port}{path}" + (f"?{query}" if query else "")
        timeout = aiohttp.ClientTimeout(total=None, connect=30)
        try:
            async with (
                https_session(self._tls, timeout=timeout, auto_decompress=False) as session,
                session.request(request.method, url, data=await request.read() or None) as answer,
            ):
                if answer.status >= 400 and path.startswith("/containerLogs/"):
                    raise await _node_refusal(answer)
                return await _copy(request, answer)
        except aiohttp.ClientConnectionError as err:
            message = f"Get {url!r}: dial tcp {address.host}:{address.port}: {err}"
            raise StatusError(500, "", message, {}) from err


def _pick(request: web.Request, names: Sequence[str]) -> list[tuple[str, str]]:
    return [(name, value) for name, value in request.query.items() if name in names]


def _stream_query(request: web.Request) -> list[tuple[str, str]]:
    """Return the query of an exec or attach request for the node, sorted as Go sorts it.

    The node's names for stdin, stdout and stderr are input, output and error. Source: strategy.go
    streamParams.
    """
    given = [
        (_STREAMS[name], "1") for name, value in request.query.items() if name in _STREAMS and value in _TRUE
    ]
    return sorted([*given, *_pick(request, ("command",))], key=lambda pair: pair[0])


def _ports_query(request: web.Request) -> list[tuple[str, str]]:
    """Return the query of a port-forward for the node: all ports in one parameter.

    Source: strategy.go streamParams.
    """
    ports = request.query.getall("ports", [])
    return [("port", ",".join(ports))] if ports else []


async def _copy(request: web.Request, answer: aiohttp.ClientResponse) -> web.StreamResponse:
    response = web.StreamResponse(status=answer.status, headers=_headers(answer.headers))
    await response.prepare(request)
    async for chunk in answer.content.iter_any():
        await response.write(chunk)
    return response


def _headers(headers: Mapping[str, str]) -> dict[str, str]:
    kept = ("Content-Type", "Content-Encoding")
    return {name: headers[name] for name in kept if name in headers}


async def _node_refusal(answer: aiohttp.ClientResponse) -> StatusError:
    """Return the error for a refusal by the node, with the node's message.

    Source: apiserver, pkg/registry/generic/rest/response_checker.go.
    """
    text = (await answer.content.read(_CHUNK)).decode(errors="replace").strip()
    if answer.status == 404:
        return StatusError(
            404, "NotFound", f"the server could not find the requested resource ( pods/log {text})", {}
        )
    if answer.status == 400:
        return bad_request(text)
    return StatusError(
        500, "InternalError", f"an error on the server ({text!r}) has prevented the request", {}
    )


def _container(pod: Json, asked: Asked) -> str:
    """Return the container that the request names, or the pod's only container.

    A port-forward needs no container and gets the first one. Raises StatusError 400 if the container is
    unknown, or not given for a pod with several containers.
    """
    spec = pod["spec"]
    names = [container["name"] for container in spec.get("containers", [])]
    known = [
        container["name"]
        for field in ("initContainers", "containers", "ephemeralContainers")
        for container in spec.get(field, [])
    ]
    wanted = asked.query.get("container", "")
    if wanted:
        if wanted not in known:
            raise bad_request(f"container {wanted} is not valid for pod {asked.name}")
        return wanted
    if len(names) == 1 or asked.subresource == "portforward":
        return names[0] if names else ""
    raise bad_request(
        f"a container name must be specified for pod {asked.name}, choose one of: [{' '.join(names)}]"
    )
