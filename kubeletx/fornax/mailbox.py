"""`Mailbox`: waiting work of the node actor: messages of cores, and pods, sessions and the node to report."""

from __future__ import annotations

import asyncio
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")

MAX_COMMANDS = 1_000


class NodeChange(NamedTuple):
    """Something to report. `kind`: pod, session or node. `id`: namespace/name; empty for the node."""

    kind: str
    id: str = ""


class Mailbox(Generic[T]):
    """Commands in order of arrival, and changed objects in the order of their first change since the last report.

    An object that changes again before it is reported is reported once, with its newest state.
    """

    def __init__(self) -> None:
        self.commands: asyncio.Queue[T] = asyncio.Queue(MAX_COMMANDS)
        self._changed: dict[NodeChange, None] = {}
        self._wake = asyncio.Event()

    def pod(self, pod_id: str) -> None:
        """Report this pod."""
        self.changed(NodeChange("pod", pod_id))

    def session(self, session_id: str) -> None:
        """Report this session."""
        self.changed(NodeChange("session", session_id))

    def node(self) -> None:
        """Report the node if it has changed."""
        self.changed(NodeChange("node"))

    def changed(self, what: NodeChange) -> None:
        """Report this object."""
        self._changed.setdefault(what)
        self._wake.set()

    async def next_change(self) -> NodeChange:
        """Wait for an object to report, and take it."""
        while not self._changed:
            self._wake.clear()
            await self._wake.wait()
        first = next(iter(self._changed))
        del self._changed[first]
        return first
