"""TCP probes: pass if a connection opens (P6 in docs/kubelet-parity.md)."""

from __future__ import annotations

import asyncio

from kubeletx.api import InvalidPod
from kubeletx.kube.types.core import Container, TCPSocketAction

from ..model.ports import resolve_port
from .http_get import authority, dial_text
from .outcome import ProbeOutcome, ProbeResult


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
