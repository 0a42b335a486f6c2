"""The program of all child processes: ``python -m kubeletx.runtimes.isolation.child CONTROL FD [FD ...]``.

It serves a table of objects on the socket with descriptor FD until the agent closes the socket or dies, and then ends.
CONTROL is the class of the object that the agent calls first, as ``module:name``. Its constructor gets the table, to
which its methods add runtimes, health checks and so on, the connection to the agent, and the further descriptors.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterable, MutableMapping
from itertools import islice
from typing import Any

import msgspec
import structlog

from kubeletx.api import ObjectRef
from kubeletx.linux.libc import die_with_parent

from .codec import CODECS
from .control import CONTROL, EVENTS, LOG, EventNote, EventNotes, LogNote
from .handshake import framed, read_hello, reply_to
from .notes import MOST_FIELDS, text_of
from .peer import Peer
from .remote import Served, remote_class
from .wire import find_object


class ChildEvents:
    """Implements `kubeletx.api.EventSink` in the child: sends each event to the agent, which records it."""

    def __init__(self, peer: Peer) -> None:
        self._agent: EventNotes = remote_class(EventNotes)(lambda: peer, EVENTS)

    def record(self, ref: ObjectRef, *, type: str, reason: str, message: str) -> None:
        self._agent.record(EventNote(ref=ref, type=type, reason=reason, message=text_of(message)))


def extend_path(more: Iterable[str]) -> None:
    """Add the agent's import path to the import path of this process."""
    sys.path[:] = [*sys.path, *(path for path in more if path not in sys.path)]


async def serve(control: Callable[..., Any], descriptor: int, *more: int) -> None:
    """Handle the agent's calls until it closes the socket. `descriptor`: file descriptor of the socket."""
    reader, writer = await asyncio.open_connection(sock=socket.socket(fileno=descriptor))
    reply = reply_to(await read_hello(reader))
    writer.write(framed(msgspec.json.encode(reply)))
    if reply.refused:
        await writer.drain()
        writer.close()
        return
    served = Served()
    peer = Peer("the agent", reader, writer, served, codec=CODECS[reply.encoding])
    made = control(served, peer, *more)
    served.put(CONTROL, made, type(made))
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
    """Run the child process, which ends with the agent."""
    parent = os.getppid()
    die_with_parent()
    # An interrupt is for the agent, which ends its children.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if os.getppid() == parent:  # otherwise the agent ended before the death signal was set
        control, *descriptors = sys.argv[1:]
        with contextlib.suppress(KeyboardInterrupt):
            asyncio.run(serve(find_object(control), *map(int, descriptors)))


if __name__ == "__main__":
    main()
