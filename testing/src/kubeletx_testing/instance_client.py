"""The application of an instance, played by a test: it speaks to a real session service with a real certificate."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

import grpc
import grpc.aio

from kubeletx.sessions.stubs import session_service_pb2 as pb

SERVICE = f"/{pb.DESCRIPTOR.services_by_name['SessionService'].full_name}"
OPTIONS = (
    ("grpc.ssl_target_name_override", "session.kubeletx.io"),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 500),
    ("grpc.enable_retries", 0),
)


class InstanceClient:
    """One connection of an instance to the session service; a context manager."""

    def __init__(self, target: str, directory: Path, pod_id: str = "") -> None:
        """`target`: as gRPC writes addresses. `directory`: has tls.crt, tls.key and ca.crt. `pod_id`: in messages."""
        credentials = grpc.ssl_channel_credentials(
            root_certificates=(directory / "ca.crt").read_bytes(),
            private_key=(directory / "tls.key").read_bytes(),
            certificate_chain=(directory / "tls.crt").read_bytes(),
        )
        self.pod_id = pod_id
        self.channel = grpc.aio.secure_channel(target, credentials, options=OPTIONS)
        self._get = self.channel.unary_stream(f"{SERVICE}/getMessage", None, None)
        self._put = self.channel.unary_unary(f"{SERVICE}/putMessage", None, None)
        self._stream: Any = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.channel.close(None)

    async def attach(self) -> None:
        """Open the stream of messages; return when the service has accepted it. Raises grpc.aio.AioRpcError."""
        request = pb.PodIdentifier(podId=self.pod_id).SerializeToString()
        self._stream = self._get(request, wait_for_ready=True)
        if "pod" not in dict(await self._stream.initial_metadata()):
            await self._stream.read()  # raises the reason

    async def read(self) -> pb.SessionMessage | None:
        """Return the next message; None when the service has ended the stream."""
        data = await self._stream.read()
        return pb.SessionMessage.FromString(data) if isinstance(data, bytes) else None

    async def report(self, session_id: str, state: pb.SessionState, *clients: str) -> None:
        """Report the state of a session and its clients."""
        status = pb.SessionStatus(
            sessionState=state, clientSession=[pb.ClientSession(clientIdentifier=name) for name in clients]
        )
        await self.put(
            pb.SessionMessage(
                sessionIdentifier=pb.SessionIdentifier(podId=self.pod_id, identifier=session_id),
                messageType=pb.SESSION_STATE,
                sessionStatus=status,
            ).SerializeToString()
        )

    async def put(self, data: bytes) -> None:
        """Send the bytes of one message. Raises grpc.aio.AioRpcError."""
        await self._put(data)
