"""`Mailbox`: pods, sessions and the node that the node actor has to report."""

from __future__ import annotations

import asyncio
from typing import NamedTuple


class NodeChange(NamedTuple):
    """Something to report. `kind`: pod, session or node. `id`: namespace/name; empty for the node."""

    kind: str
    id: str = ""


class Mailbox:
    """Changed objects in the order of their first change since the last report.

    An object that changes again before it is reported is reported once, with its newest state.
    """

    def __init__(self) -> None:
        self._changed: dict[NodeChange, None] = {}
        self._wake = asyncio.Event()

    def pod(self, pod_id: str) -> None:
        self.changed(NodeChange("pod", pod_id))

    def session(self, session_id: str) -> None:
        self.changed(NodeChange("session", session_id))

    def node(self) -> None:
        """Report the node if it has changed."""
        self.changed(NodeChange("node"))

    def changed(self, what: NodeChange) -> None:
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
