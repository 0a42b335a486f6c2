"""Makes one probe attempt with the handler of the probe: exec, HTTP, TCP or gRPC (P4 to P6 in docs/kubelet-parity.md).

HTTP probes pass for status 200 to 399. A redirect to another host is not followed; the probe passes with a warning. TCP
probes pass if a connection opens.
"""

from __future__ import annotations

import asyncio

from kubeletx.api import InvalidPod
from kubeletx.kube.types.core import Container, HTTPGetAction, Probe, TCPSocketAction

from .exec import ExecFinder, ask_exec
from .grpc import ask_grpc
from .http_get import GetFailed, HttpGet, authority, dial_text, get
from .outcome import ProbeOutcome, ProbeResult, Timing
from .targets import ProbeTarget

TRIES = 3


async def ask(probe: Probe, target: ProbeTarget, finder: ExecFinder) -> ProbeResult:
    """Probe up to three times, until the result is not UNKNOWN; return the last result.

    A failure of the container or the network is a result, not an exception. `finder`: gives exec probes the runtime's exec.
    """
    answer = ProbeResult(ProbeOutcome.UNKNOWN)
    for _ in range(TRIES):
        answer = await ask_once(probe, target.container, target, finder)
        if answer.result is not ProbeOutcome.UNKNOWN:
            break
    return answer


async def ask_once(
    probe: Probe, container: Container, target: ProbeTarget, finder: ExecFinder
) -> ProbeResult:
    """Probe once and return the result. A network probe of a pod without an address returns SUSPENDED."""
    seconds = Timing.of(probe).timeout_seconds
    if probe.exec is not None:
        return await ask_exec(probe.exec, target.unit_id, finder, seconds)
    if probe.http_get is not None:
        if not (probe.http_get.host or target.pod_ip):
            return _NO_ADDRESS
        return await ask_http(probe.http_get, container, target.pod_ip, seconds)
    if probe.tcp_socket is not None:
        if not (probe.tcp_socket.host or target.pod_ip):
            return _NO_ADDRESS
        return await ask_tcp(probe.tcp_socket, container, target.pod_ip, seconds)
    if probe.grpc is not None:
        return await ask_grpc(probe.grpc, target.pod_ip, seconds) if target.pod_ip else _NO_ADDRESS
    return ProbeResult(ProbeOutcome.UNKNOWN, "the probe names no handler")


_NO_ADDRESS = ProbeResult(ProbeOutcome.SUSPENDED, "the pod has no address")


_TIMED_OUT = "context deadline exceeded (Client.Timeout exceeded while awaiting headers)"
"""The kubelet's message for a timeout: users search events for it."""


def request_of(
    action: HTTPGetAction, container: Container, pod_ip: str, *, default_port: int | str = ""
) -> HttpGet:
    """Build the request of an httpGet action. Raises InvalidPod for an unknown port name.

    `default_port`: used if the action has no port.
    """
    return HttpGet(
        host=action.host or pod_ip,
        port=resolve_port(container, action.port or default_port),
        path=action.path or "/",
        scheme=(action.scheme or "HTTP").lower(),
        headers=tuple((header.name, header.value) for header in action.http_headers),
    )


async def ask_http(
    action: HTTPGetAction, container: Container, pod_ip: str, timeout_seconds: float
) -> ProbeResult:
    """Send the request once, redirects on the same host included, and return the result of the probe."""
    try:
        request = request_of(action, container, pod_ip)
    except InvalidPod as error:
        return ProbeResult(ProbeOutcome.UNKNOWN, str(error))
    try:
        async with asyncio.timeout(timeout_seconds):
            answer = await get(request)
    except TimeoutError:
        return ProbeResult(ProbeOutcome.FAILURE, f'Get "{request.url}": {_TIMED_OUT}')
    except GetFailed as error:
        return ProbeResult(ProbeOutcome.FAILURE, error.message)
    if 300 <= answer.status < 400:
        body = answer.body.decode("utf-8", "replace")
        return ProbeResult(ProbeOutcome.WARNING, f"Probe terminated redirects, Response body: {body}")
    if 200 <= answer.status < 300:
        return ProbeResult(ProbeOutcome.SUCCESS)
    return ProbeResult(ProbeOutcome.FAILURE, f"HTTP probe failed with statuscode: {answer.status}")


async def ask_tcp(
    action: TCPSocketAction, container: Container, pod_ip: str, timeout_seconds: float
) -> ProbeResult:
    """Connect to the port once and close the connection; the probe passes if the connection opens."""
    host = action.host or pod_ip
    try:
        port = resolve_port(container, action.port)
    except InvalidPod as error:
        return ProbeResult(ProbeOutcome.UNKNOWN, str(error))
    try:
        async with asyncio.timeout(timeout_seconds):
            _, writer = await asyncio.open_connection(host, port)
    except TimeoutError:
        return ProbeResult(ProbeOutcome.FAILURE, f"dial tcp {authority(host, port)}: i/o timeout")
    except OSError as error:
        return ProbeResult(ProbeOutcome.FAILURE, dial_text(host, port, error))
    writer.transport.abort()
    return ProbeResult(ProbeOutcome.SUCCESS)


def resolve_port(container: Container, port: int | str) -> int:
    """Return the port number for `port`: a number, its digits, or the name of one of the container's ports.

    Raises InvalidPod if no port has this name, or the number is not from 1 to 65535.
    """
    number = port if isinstance(port, int) else _named(container, port)
    if not 0 < number < 65536:
        raise InvalidPod(field="port", problem=f"{port!r} is not a port from 1 to 65535")
    return number


def _named(container: Container, name: str) -> int:
    for port in container.ports:
        if port.name == name:
            return port.container_port
    if name.isascii() and name.isdigit():
        return int(name)
    raise InvalidPod(field="port", problem=f"container {container.name} has no port named {name!r}")
