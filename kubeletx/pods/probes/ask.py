"""Makes one probe attempt with the probe's handler (exec, HTTP, TCP or gRPC), in up to three tries.

See docs/kubelet-parity.md, row P4.
"""

from __future__ import annotations

from kubeletx.kube.types.core import Container, Probe

from .exec import ExecFinder, ask_exec
from .grpc import ask_grpc
from .http import ask_http
from .outcome import ProbeOutcome, ProbeResult, Timing
from .targets import ProbeTarget
from .tcp import ask_tcp

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
