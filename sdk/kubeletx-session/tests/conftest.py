"""`Service`: a real gRPC server with the session service, mutual TLS included; a test sends commands and reads reports."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from google.protobuf.empty_pb2 import Empty
from kubeletx_session import Settings
from kubeletx_session.stubs import session_service_pb2 as pb

from kubeletx_testing.waiting import until

NAME = "centaurusinfra.io.fornaxcore.nodeagent.sessionservice.SessionService"
POD = "default/web"
OPEN, CLOSED, CLOSING, INITIALIZING = (
    pb.STATE_OPEN,
    pb.STATE_CLOSED,
    pb.STATE_CLOSING,
    pb.STATE_INITIALIZING,
)


class Authority:
    """A certificate authority that writes the files of an instance's session directory."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "ca")])
        constraints = x509.BasicConstraints(ca=True, path_length=None)
        self.pem = self._sign(self._name, self._key, constraints)

    def issue(self, common_name: str, *names: str) -> tuple[bytes, bytes]:
        """Return key and certificate as PEM."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, common_name)])
        alternatives = x509.SubjectAlternativeName([x509.DNSName(name) for name in names or (common_name,)])
        pem = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        return pem, self._sign(subject, key, alternatives)

    def _sign(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, more: x509.ExtensionType) -> bytes:
        now = datetime.now(UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=1))
            .not_valid_after(now + timedelta(hours=1))
            .add_extension(more, critical=False)
        )
        return builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


class Service:
    """The session service. A stopped one may be started again on the same socket."""

    def __init__(self, folder: Path, authority: Authority) -> None:
        self.address = f"unix://{folder}/session.sock"
        self.directory = folder / "directory"
        self.authority = authority
        self.received: list[pb.SessionMessage] = []
        self.streams: list[grpc.aio.ServicerContext[Any, Any]] = []
        self.peers: list[str] = []
        self.refusals: list[grpc.StatusCode] = []
        self.loses_answers = False
        self._server: grpc.aio.Server | None = None
        self._opened = 0
        self.directory.mkdir()
        self.give_certificate("uid-1")
        self.write_metadata({"podId": POD, "service": self.address})

    def give_certificate(self, common_name: str) -> None:
        key, certificate = self.authority.issue(common_name)
        (self.directory / "tls.key").write_bytes(key)
        (self.directory / "tls.crt").write_bytes(certificate)
        (self.directory / "ca.crt").write_bytes(self.authority.pem)

    def write_metadata(self, content: dict[str, Any]) -> None:
        (self.directory / "metadata.json").write_text(json.dumps(content))

    def settings(self, **fields: Any) -> Settings:
        limits = {"heartbeat_seconds": 3600.0, "longest_pause_seconds": 0.05, "call_seconds": 10.0}
        return Settings(directory=self.directory, service=self.address, pod_id=POD, **(limits | fields))

    async def start(self) -> None:
        server = grpc.aio.server()
        server.add_generic_rpc_handlers(
            [
                grpc.method_handlers_generic_handler(
                    NAME,
                    {
                        "getMessage": grpc.unary_stream_rpc_method_handler(
                            self._get, pb.PodIdentifier.FromString, pb.SessionMessage.SerializeToString
                        ),
                        "putMessage": grpc.unary_unary_rpc_method_handler(
                            self._put, pb.SessionMessage.FromString, Empty.SerializeToString
                        ),
                    },
                )
            ]
        )
        key, certificate = self.authority.issue("node", "session.kubeletx.io")
        credentials = grpc.ssl_server_credentials(
            [(key, certificate)], self.authority.pem, require_client_auth=True
        )
        server.add_secure_port(self.address, credentials)
        await server.start()
        self._server = server

    async def stop(self) -> None:
        if self._server is not None:
            await self._server.stop(None)
            self._server = None
            self.streams.clear()

    async def _get(self, request: pb.PodIdentifier, context: Any) -> None:
        assert request.podId == POD
        self.peers += [name.decode() for name in context.auth_context()["x509_common_name"]]
        self.streams.append(context)
        await asyncio.Event().wait()  # until the client or the server ends the stream

    async def _put(self, message: pb.SessionMessage, context: Any) -> Empty:
        if self.refusals:
            await context.abort(self.refusals.pop(0), "refused by the test")
        self.received.append(message)
        if self.loses_answers:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the answer is lost")
        return Empty()

    # --- what tests do ---

    async def connected(self) -> None:
        await until(lambda: self.streams)

    async def send(self, message: pb.SessionMessage) -> None:
        await self.connected()
        await self.streams[-1].write(message)

    async def open(self, id: str, data: bytes = b"", message_id: str | None = None) -> str:
        """Send OPEN_SESSION; returns the identifier of the message."""
        self._opened += 1
        message_id = f"open/{self._opened}" if message_id is None else message_id
        await self.send(
            pb.SessionMessage(
                messageIdentifier=message_id,
                sessionIdentifier=pb.SessionIdentifier(podId=POD, identifier=id),
                messageType=pb.OPEN_SESSION,
                openSession=pb.OpenSession(sessionConfiguration=pb.SessionConfiguration(sessionData=data)),
            )
        )
        return message_id

    async def close(self, id: str, grace_seconds: int = 60) -> None:
        await self.send(
            pb.SessionMessage(
                sessionIdentifier=pb.SessionIdentifier(podId=POD, identifier=id),
                messageType=pb.CLOSE_SESSION,
                closeSession=pb.CloseSession(gracePeriodSeconds=grace_seconds),
            )
        )

    async def ping(self, id: str) -> None:
        await self.send(
            pb.SessionMessage(
                sessionIdentifier=pb.SessionIdentifier(podId=POD, identifier=id),
                messageType=pb.PING_SESSION,
                pingSession=pb.PingSession(),
            )
        )

    def of(self, id: str) -> list[pb.SessionMessage]:
        return [message for message in self.received if message.sessionIdentifier.identifier == id]

    def states(self, id: str) -> list[int]:
        """Reported states of a session, equal ones in a row once."""
        pids: list[int] = []
        for message in self.of(id):
            if pids[-1:] != [message.sessionStatus.sessionState]:
                pids.append(message.sessionStatus.sessionState)
        return pids

    async def reported(self, id: str, state: int) -> None:
        """Wait until the last report of a session has this state."""
        await until(lambda: self.states(id)[-1:] == [state])

    async def reports(self, id: str, holds: Callable[[pb.SessionMessage], object]) -> None:
        """Wait for a report of which `holds` is true."""
        await until(lambda: any(holds(message) for message in self.of(id)))


@pytest.fixture(scope="session")
def authority() -> Authority:
    return Authority()


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder whose path is short enough for a socket."""
    with tempfile.TemporaryDirectory(prefix="kx-") as path:
        yield Path(path)


@pytest.fixture
async def service(folder: Path, authority: Authority) -> AsyncIterator[Service]:
    made = Service(folder, authority)
    await made.start()
    yield made
    await made.stop()
