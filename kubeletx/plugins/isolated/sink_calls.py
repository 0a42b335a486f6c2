"""`BlockingSink`: the `PodSourceSink` of a source in a child process."""

from __future__ import annotations

import itertools
import json
import socket
from collections.abc import Mapping
from typing import Any, Final

from kubeletx.api import PodOutcome, Unavailable
from kubeletx.runtimes.isolation.codec import MSGPACK
from kubeletx.runtimes.isolation.handshake import framed
from kubeletx.runtimes.isolation.wire import Answer, Call, Failure, error_of, signatures

from ..pod_mappings import key_of, plain
from .control import WireSink

ANSWER_SECONDS: Final = 30.0


class SinkConnection:
    """Connection to the agent for the sinks of all sources in this process.

    Its calls wait for the answer without the event loop, since the methods of `PodSourceSink` are not coroutines. It
    has a socket of its own, so that no answer lies behind frames that the event loop has to read.
    """

    def __init__(self, descriptor: int) -> None:
        """`descriptor`: file descriptor of the socket."""
        self._socket = socket.socket(fileno=descriptor)
        self._socket.settimeout(ANSWER_SECONDS)
        self._file = self._socket.makefile("rb")
        self._ids = itertools.count(1)

    def call(self, target: str, method: str, *args: Any) -> Any:
        """Call a method of `WireSink` and return its result. Raises Unavailable if the agent does not answer."""
        number = next(self._ids)
        frame = Call(number, target, method, MSGPACK.encode(args))
        try:
            self._socket.sendall(framed(MSGPACK.write_frame(frame)))
            while True:
                answer = MSGPACK.read_frame(self._read(int.from_bytes(self._read(4), "big")))
                if isinstance(answer, Failure) and answer.id == number:
                    raise error_of(answer)
                if isinstance(answer, Answer) and answer.id == number:
                    return MSGPACK.decode(answer.value, signatures(WireSink)[method].result)
        except OSError as error:
            raise Unavailable(f"the agent does not answer: {error}") from error

    def _read(self, size: int) -> bytes:
        data = self._file.read(size)
        if len(data) < size:
            raise ConnectionResetError("it closed the connection")
        return data


class BlockingSink:
    """Passes the pods of one source to the agent. Implements `kubeletx.api.PodSourceSink`."""

    def __init__(self, connection: SinkConnection, target: str) -> None:
        self._connection = connection
        self._target = target

    def set(self, pod: Mapping[str, Any]) -> PodOutcome:
        try:
            values = json.loads(json.dumps(pod, default=plain, allow_nan=False))
        except (TypeError, ValueError, RecursionError) as error:
            outcome = self._connection.call(self._target, "refuse", *key_of(pod), str(error))
        else:
            outcome = self._connection.call(self._target, "set", values)
        assert isinstance(outcome, PodOutcome)
        return outcome

    def remove(self, namespace: str, name: str, *, grace_seconds: int | None = None) -> bool:
        return bool(self._connection.call(self._target, "remove", namespace, name, grace_seconds))

    def synced(self) -> None:
        self._connection.call(self._target, "synced")
