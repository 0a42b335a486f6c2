"""gRPC probes: pass if the standard health check returns SERVING (P6 in docs/kubelet-parity.md).

The gRPC libraries are imported on first use.
"""

from __future__ import annotations

import asyncio

from kubeletx.kube.types.core import GRPCAction

from .http_get import USER_AGENT, authority
from .outcome import ProbeOutcome, ProbeResult

CHECK = "/grpc.health.v1.Health/Check"
_ANSWER_BYTES = 4096
_METADATA_BYTES = 16 * 1024
_DETAILS_CHARS = 1024


async def ask_grpc(action: GRPCAction, pod_ip: str, timeout_seconds: float) -> ProbeResult:
    """Make one gRPC health check without TLS and return its result."""
    import grpc
    import grpc.aio

    from kubeletx.cri.stubs import health_v1_pb2 as pb

    options = (
        ("grpc.primary_user_agent", USER_AGENT),
        ("grpc.enable_http_proxy", 0),
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.max_receive_message_length", _ANSWER_BYTES),
        ("grpc.absolute_max_metadata_size", _METADATA_BYTES),
    )
    async with grpc.aio.insecure_channel(authority(pod_ip, action.port), options=options) as channel:
        check = channel.unary_unary(
            CHECK,
            request_serializer=pb.HealthCheckRequest.SerializeToString,
            response_deserializer=pb.HealthCheckResponse.FromString,
        )
        try:
            async with asyncio.timeout(timeout_seconds + 1):
                answer = await check(
                    pb.HealthCheckRequest(service=action.service or ""),
                    timeout=timeout_seconds,
                    wait_for_ready=False,
                )
        except TimeoutError:
            return ProbeResult(ProbeOutcome.FAILURE, f"no answer within {timeout_seconds:g}s")
        except grpc.aio.AioRpcError as error:
            return ProbeResult(
                ProbeOutcome.FAILURE, _failure(error.code().name, error.details() or "", timeout_seconds)
            )
    if answer.status == pb.HealthCheckResponse.SERVING:
        return ProbeResult(ProbeOutcome.SUCCESS)
    values = pb.HealthCheckResponse.ServingStatus.DESCRIPTOR.values_by_number
    word = values[answer.status].name if answer.status in values else str(answer.status)
    return ProbeResult(ProbeOutcome.FAILURE, f"service unhealthy (responded with {word!r})")


def _failure(code: str, details: str, timeout_seconds: float) -> str:
    if code == "UNIMPLEMENTED":
        return "the server does not implement the gRPC health protocol (grpc.health.v1.Health)"
    if code == "DEADLINE_EXCEEDED":
        return f"no answer within {timeout_seconds:g}s"
    return f"{code}: {details[:_DETAILS_CHARS]}"
