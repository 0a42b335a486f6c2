"""The session service as gRPC methods and messages: paths, the channel with mutual TLS, reports.

The paths are read from the descriptors, so that no generated service stub is needed.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

import grpc

from .settings import Settings
from .stubs import session_service_pb2 as pb

SERVER_NAME = "session.kubeletx.io"
"""Name in the certificate of the session service, whatever its address is."""

_SERVICE = pb.DESCRIPTOR.services_by_name["SessionService"]
_KEEPALIVE_MS = 310_000  # servers end connections of clients that probe more often than every five minutes


def connect(settings: Settings) -> grpc.aio.Channel:
    """Return a new channel to the service; the certificate is read now. Raises SettingsError."""
    target = settings.service or settings.metadata().service
    credentials = grpc.ssl_channel_credentials(
        root_certificates=settings.read("ca.crt"),
        private_key=settings.read("tls.key"),
        certificate_chain=settings.read("tls.crt"),
    )
    options: list[tuple[str, Any]] = [
        ("grpc.ssl_target_name_override", SERVER_NAME),
        ("grpc.use_local_subchannel_pool", 1),  # or else a new channel waits for the old one's back-off
        ("grpc.enable_retries", 0),  # a repeated report could end the next session of the same name
        ("grpc.enable_http_proxy", 0),
    ]
    if not target.startswith("unix:"):
        options.append(("grpc.keepalive_time_ms", _KEEPALIVE_MS))
    return grpc.aio.secure_channel(target, credentials, options)


async def try_to_connect(channel: grpc.aio.Channel) -> bool:
    """Wait for the connection; False if it failed: a call then raises the reason at once."""
    pending = (grpc.ChannelConnectivity.IDLE, grpc.ChannelConnectivity.CONNECTING)
    while (state := channel.get_state(try_to_connect=True)) in pending:
        await channel.wait_for_state_change(state)
    return state is grpc.ChannelConnectivity.READY


def get_messages(channel: grpc.aio.Channel, pod_id: str) -> grpc.aio.UnaryStreamCall[Any, pb.SessionMessage]:
    """Open the stream of commands to this instance."""
    method = channel.unary_stream(
        _path("getMessage"), pb.PodIdentifier.SerializeToString, pb.SessionMessage.FromString
    )
    return method(pb.PodIdentifier(podId=pod_id))


async def put_message(channel: grpc.aio.Channel, message: pb.SessionMessage, seconds: float) -> None:
    """Send one report. Raises grpc.aio.AioRpcError."""
    method = channel.unary_unary(_path("putMessage"), pb.SessionMessage.SerializeToString, lambda _: None)
    await method(message, timeout=seconds)


def state_message(
    *,
    pod_id: str,
    session_id: str,
    message_id: str,
    state: pb.SessionState,
    clients: Iterable[tuple[str, datetime, datetime | None]],
) -> pb.SessionMessage:
    """Return the report of one session. `clients`: identifier, time of joining, time of leaving or None."""
    return pb.SessionMessage(
        messageIdentifier=message_id,
        sessionIdentifier=pb.SessionIdentifier(podId=pod_id, identifier=session_id),
        messageType=pb.SESSION_STATE,
        sessionStatus=pb.SessionStatus(
            sessionState=state,
            clientSession=[
                pb.ClientSession(clientIdentifier=name, timeJoin=joined, timeExit=left)
                for name, joined, left in clients
            ],
        ),
    )


def _path(method: str) -> str:
    return f"/{_SERVICE.full_name}/{_SERVICE.methods_by_name[method].name}"
