"""`Mailbox`: pods, sessions and the node that the node actor has to report."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple, Protocol

from kubeletx.api import Clock

SOON_SECONDS: Final = 0.05
"""Delay of a change for which no core waits."""


class OnChange(Protocol):
    """Function that reports a changed pod or session. `soon`: no core waits for this change, see `Mailbox`."""

    def __call__(self, id: str, *, soon: bool = False) -> None: ...


class NodeChange(NamedTuple):
    """Something to report. `kind`: pod, session, answer (to a refused session) or node. `id`: namespace/name."""

    kind: str
    id: str = ""


class Mailbox:
    """Changed objects in the order of their first change since the last report.

    An object that changes again before it is reported is reported once, with its newest state. A change for which no
    core waits is reported soon: mostly another change of the same object follows, and both are one report.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._changed: dict[NodeChange, None] = {}
        self._soon: dict[NodeChange, Callable[[], None]] = {}
        """Functions that cancel the timers of changes that are reported soon."""
        self._wake = asyncio.Event()

    def pod(self, id: str, *, soon: bool = False) -> None:
        self.changed(NodeChange("pod", id), soon=soon)

    def session(self, id: str, *, soon: bool = False) -> None:
        self.changed(NodeChange("session", id), soon=soon)

    def answer(self, session_id: str) -> None:
        self.changed(NodeChange("answer", session_id))

    def node(self) -> None:
        """Report the node if it has changed."""
        self.changed(NodeChange("node"))

    def changed(self, what: NodeChange, *, soon: bool = False) -> None:
        if soon:
            if what not in self._changed and what not in self._soon:
                due = self._clock.monotonic() + SOON_SECONDS
                self._soon[what] = self._clock.call_at(due, partial(self.changed, what))
            return
        if (cancel := self._soon.pop(what, None)) is not None:
            cancel()
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
