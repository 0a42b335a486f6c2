"""HTTP probes: pass for status 200 to 399 (P5 in docs/kubelet-parity.md).

A redirect to another host is not followed; the probe passes with a warning.
"""

from __future__ import annotations

import asyncio

from kubeletx.api import InvalidPod
from kubeletx.kube.types.core import Container, HTTPGetAction

from ..model.ports import resolve_port
from .http_get import GetFailed, HttpGet, get
from .outcome import ProbeOutcome, ProbeResult

_TIMED_OUT = "context deadline exceeded (Client.Timeout exceeded while awaiting headers)"
"""The kubelet's message for a timeout: users search events for it."""


def request_of(action: HTTPGetAction, container: Container, pod_ip: str) -> HttpGet:
    """Build the request of an httpGet action. Raises InvalidPod for an unknown port name."""
    return HttpGet(
        host=action.host or pod_ip,
        port=resolve_port(container, action.port),
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
