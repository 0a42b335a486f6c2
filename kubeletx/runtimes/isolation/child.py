"""The child process of ``isolation=process``: ``python -m kubeletx.runtimes.isolation.child FD``.

It serves one runtime on the socket with descriptor FD until the agent closes the socket or dies, and then ends.
Processes of the runtime itself, such as containers, keep running.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import socket
import sys
from collections.abc import Callable, Coroutine, MutableMapping
from itertools import islice
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import msgspec
import structlog

from kubeletx.api import (
    CAPABILITIES,
    BoundedThreadPool,
    Clock,
    Endpoint,
    EventSink,
    Internal,
    ObjectRef,
    PodNetwork,
    Runtime,
)

from ..host.clock import SystemClock
from ..plugins.failures import failure_text, package_of
from ..plugins.required_methods import capability_problem
from .codec import CODECS, Encoded
from .control import CONTROL, EVENTS, LOG, NETWORK, RUNTIME, Control, EventNote, Init, LogNote, Opened
from .handshake import framed, read_hello, reply_to
from .notes import MOST_FIELDS, text_of
from .peer import Peer
from .remote import Served, remote_class
from .wire import find_object

P = ParamSpec("P")
R = TypeVar("R")

log = structlog.get_logger(__name__)

PR_SET_PDEATHSIG = 1


class ChildEvents:
    """Implements `kubeletx.api.EventSink` in the child: sends each event to the agent, which records it."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer

    def record(self, ref: ObjectRef, *, type: str, reason: str, message: str) -> None:
        """Send the event to the agent."""
        self._peer.note(
            EVENTS, "record", (EventNote(ref=ref, type=type, reason=reason, message=text_of(message)),)
        )


class ChildHost:
    """The `kubeletx.api.Host` that the runtime's plugin gets in the child process."""

    def __init__(self, init: Init, peer: Peer) -> None:
        self.agent_id = init.agent_id
        self.node_name = init.node_name
        self.state_directory = Path(init.state_directory)
        self.clock: Clock = SystemClock()
        self.events: EventSink = ChildEvents(peer)
        self.pod_network: PodNetwork | None = None
        if init.has_network:
            self.pod_network = remote_class(PodNetwork)(lambda: peer, NETWORK)
        self._threads = BoundedThreadPool(init.endpoint.name)

    async def blocking(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run a blocking function on a thread of this process and return its result."""
        return await self._threads.run(function, *args, **kwargs)


class ChildControl:
    """Handles the agent's calls that control the child, such as `init` and `open`; implements `Control`.

    `served`: gets the runtime and its capabilities. `peer`: the connection to the agent, set before the first call.
    """

    def __init__(self, served: Served) -> None:
        self._served = served
        self._runtime: Runtime | None = None
        self.peer: Peer | None = None

    async def init(self, init: Init) -> None:
        """Make the runtime object with the plugin's factory, and let the agent call it."""
        assert self.peer is not None
        sys.path[:] = [*sys.path, *(path for path in init.sys_path if path not in sys.path)]
        settings: Any = None
        if init.settings_type:
            settings = msgspec.convert(init.settings, find_object(init.settings_type))
        factory: Callable[[Endpoint, Any, ChildHost], Runtime] = find_object(init.factory)
        self._runtime = factory(init.endpoint, settings, ChildHost(init, self.peer))
        self._served.put(RUNTIME, self._runtime, Runtime)

    async def open(self) -> Opened:
        """Open the runtime, and let the agent call its capabilities."""
        runtime = self._made()
        await runtime.open()
        names = []
        for protocol in CAPABILITIES:
            found = _capability(runtime, protocol)
            if found is not None:
                names.append(protocol.__name__)
                self._served.put(protocol.__name__, found, protocol)
        return Opened(traits=runtime.traits(), capabilities=tuple(names))

    async def close(self) -> None:
        """Close the runtime."""
        await self._made().close()

    async def ping(self) -> None:
        """Do nothing: the answer shows the agent that the child's event loop runs."""

    def _made(self) -> Runtime:
        if self._runtime is None:
            raise Internal("the runtime was not made yet")
        return self._runtime


def _capability(runtime: Runtime, protocol: type) -> Any:
    """Return the runtime's object for a capability; None, with a log line, if the plugin's object is unusable."""
    try:
        found: Any = runtime.capability(protocol)
        problem = capability_problem(found, protocol)
    except BaseException as error:  # noqa: BLE001 - a fault of the plugin costs one capability
        found, problem = None, failure_text(error, package_of(type(runtime).__module__))
    if not problem:
        return found
    log.error("Failed to query a capability", capability=protocol.__name__, err=problem)
    return None


class ChildServer:
    """Passes the agent's calls to the objects in `served`; implements `peer.CallHandler`."""

    def __init__(self, served: Served) -> None:
        self.serve = served.serve

    def note(self, target: str, method: str, args: Encoded) -> None:
        """Do nothing: the agent sends no one-way messages."""


async def serve(
    descriptor: int, make_control: Callable[[Served], Any] = ChildControl, protocol: type = Control
) -> None:
    """Handle the agent's calls until it closes the socket. `descriptor`: file descriptor of the socket.

    `make_control`: makes the object that handles the agent's first calls, by the methods of `protocol`; its attribute
    `peer` is set before the first call.
    """
    reader, writer = await asyncio.open_connection(sock=socket.socket(fileno=descriptor))
    reply = reply_to(await read_hello(reader))
    writer.write(framed(msgspec.json.encode(reply)))
    if reply.refused:
        await writer.drain()
        writer.close()
        return
    served = Served()
    control = make_control(served)
    peer = Peer("the agent", reader, writer, ChildServer(served), codec=CODECS[reply.encoding])
    control.peer = peer
    served.put(CONTROL, control, protocol)
    _forward_logs(peer)
    await peer.run()


def _forward_logs(peer: Peer) -> None:
    def forward(_logger: Any, level: str, entry: MutableMapping[str, Any]) -> str:
        event = text_of(entry.pop("event", ""))
        fields = {text_of(name): text_of(value) for name, value in islice(entry.items(), MOST_FIELDS)}
        peer.note(LOG, "write", (LogNote(level=level, event=event, fields=fields),))
        raise structlog.DropEvent

    structlog.configure(
        processors=[structlog.contextvars.merge_contextvars, structlog.processors.format_exc_info, forward]
    )


def main() -> None:
    """Run the child process: serve the agent on the socket whose descriptor is the first argument."""
    run_child(lambda: serve(int(sys.argv[1])))


def run_child(serving: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run `serving` in this child process, which ends with the agent."""
    parent = os.getppid()
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if os.getppid() == parent:  # otherwise the agent ended before the death signal was set
        with contextlib.suppress(KeyboardInterrupt):
            asyncio.run(serving())


if __name__ == "__main__":
    main()
