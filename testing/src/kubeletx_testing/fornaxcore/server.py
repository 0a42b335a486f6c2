"""`CoreServer`: the gRPC server of a core. Method paths are read from the descriptors of the generated messages."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
import grpc.aio

from kubeletx.fornax.stubs import fornaxcore_pb2 as pb

from ..apiserver.line import Line
from .settings import CoreSettings

_SERVICE = pb.DESCRIPTOR.services_by_name["FornaxCoreService"]

GetMessage = Callable[[pb.NodeIdentifier, Any], AsyncIterator[bytes]]
PutMessage = Callable[[pb.FornaxCoreMessage, Any], Awaitable[bytes]]


class CoreServer:
    """The server behind its line. After `stop_serving` the ports remain, and `serve` continues on them."""

    def __init__(self, settings: CoreSettings, get: GetMessage, put: PutMessage) -> None:
        self._settings = settings
        stream: Callable[..., Any] = grpc.unary_stream_rpc_method_handler
        unary: Callable[..., Any] = grpc.unary_unary_rpc_method_handler
        self._methods = {
            "getMessage": stream(get, request_deserializer=pb.NodeIdentifier.FromString),
            "putMessage": unary(put, request_deserializer=pb.FornaxCoreMessage.FromString),
        }
        self.host, _, port = settings.listen.rpartition(":")
        self.port = int(port)
        """Port for nodes; 0 before `start`: a free one."""
        self._inner = f"{self.host}:{0 if settings.has_line else port}"
        self._line: Line | None = None
        self._server: grpc.aio.Server | None = None

    @property
    def line(self) -> Line:
        """The proxy in front of the server. The setting `has_line` makes it."""
        assert self._line is not None, "settings.has_line is False, or the server has not started"
        return self._line

    async def start(self) -> None:
        """Open the ports and serve."""
        await self.serve()
        if self._settings.has_line:
            line = Line(f"https://{self._inner}", listen=(self.host, self.port))
            self._line = line.__enter__()
            self.port = line.port
        else:
            self.port = int(self._inner.rpartition(":")[2])

    async def serve(self) -> None:
        """Serve calls."""
        options = (
            ("grpc.max_receive_message_length", self._settings.receive_bytes),
            ("grpc.max_send_message_length", -1),
        )
        self._server = grpc.aio.server(options=options)
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(_SERVICE.full_name, self._methods),)
        )
        tls = self._settings.tls
        if tls is None:
            port = self._server.add_insecure_port(self._inner)
        else:
            client_ca = None if tls.client_ca_file is None else tls.client_ca_file.read_bytes()
            pair = (tls.key_file.read_bytes(), tls.cert_file.read_bytes())
            credentials = grpc.ssl_server_credentials([pair], client_ca, client_ca is not None)
            port = self._server.add_secure_port(self._inner, credentials)
        self._inner = f"{self.host}:{port}"
        await self._server.start()

    async def stop_serving(self) -> None:
        """Break all calls and streams."""
        server, self._server = self._server, None
        if server is not None:
            await server.stop(grace=None)
            await server.wait_for_termination()

    async def stop(self) -> None:
        """Break all calls and close the ports."""
        await self.stop_serving()
        if self._line is not None:
            self._line.__exit__(None, None, None)
