"""Decides which of two agents with one node name may report, by the node's Lease. Pure except `Reporting`.

Each renewal writes the agent's identity into an annotation of the Lease. An agent that starts and finds the Lease of
another agent, which may still be alive, waits until the Lease changes (the other agent is alive) or expires. An agent
that finds its Lease renewed by another agent between two of its own renewals knows that both are alive. The agent with
the younger claim stops reporting; its pods keep running. A claim survives restarts of the agent and reboots.

A kubelet writes no identity. If it renewed the Lease first, it counts as the older agent. If it comes later, it cannot
be stopped, so this agent continues and reports the conflict.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Callable, Coroutine
from datetime import datetime, timedelta
from typing import Any

import msgspec

from kubeletx.api import first_of
from kubeletx.api.names import AGENT_IDENTITY
from kubeletx.kube.types.lease import Lease


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """An agent's claim to the node's name, as written into the Lease.

    `agent`: id of the agent, which survives restarts. `boot`, `machine`: boot id and system UUID of its machine. `pid`:
    process id. `since`: begin of the claim, as a MicroTime text.
    """

    agent: str
    boot: str
    machine: str
    pid: int
    since: str

    def text(self) -> str:
        """Encode the identity as the value of the Lease's annotation."""
        return msgspec.json.encode(self).decode()

    @property
    def words(self) -> str:
        return f"agent {self.agent} (boot {self.boot}, process {self.pid}, since {self.since})"

    def is_same_run(self, other: Identity) -> bool:
        """Return True if `other` is the same agent in the same boot of its machine."""
        return (self.agent, self.boot) == (other.agent, other.boot)

    def is_older_than(self, other: Identity) -> bool:
        """Return True if this claim is older than `other` and so has precedence.

        The agent ids decide between claims of the same time, so that two claims never both win.
        """
        return (self.since, self.agent, self.boot) < (other.since, other.agent, other.boot)


class LeaseVerdict(enum.Enum):
    """Result of `first_verdict`: whether a starting agent may take the Lease that it found."""

    OURS = "ours"
    """This agent may take the Lease, which is its own, has expired, or belongs to an agent that has surely ended."""
    DOUBT = "doubt"
    """The Lease belongs to another agent, which may be alive."""


def identity_in(lease: Lease) -> Identity | None:
    """Return the identity of the agent that last renewed the Lease; None if it wrote no valid identity."""
    text = lease.metadata.annotations.get(AGENT_IDENTITY, "")
    try:
        return msgspec.json.decode(text, type=Identity)
    except (msgspec.DecodeError, RecursionError):
        return None


def is_over(lease: Lease, now: datetime) -> bool:
    """Return True if the Lease has expired by this machine's clock, or has no valid renewal time."""
    try:
        renewed_at = datetime.fromisoformat(lease.spec.renew_time or "")
        return now - renewed_at > timedelta(seconds=lease.spec.lease_duration_seconds or 0)
    except (ValueError, TypeError, OverflowError):  # no time, or one without a zone
        return True


def first_verdict(
    own: Identity, lease: Lease, *, node_boot: str, now: datetime, is_process: Callable[[int], bool]
) -> LeaseVerdict:
    """Decide whether this agent may take a Lease that it has not renewed yet.

    `own`: this agent's identity. `node_boot`: boot id in the status of the Node; empty if unknown. `is_process`:
    returns True if a process with this id exists on this machine.
    """
    if is_over(lease, now):
        return LeaseVerdict.OURS
    seen = identity_in(lease)
    if seen is None:
        return LeaseVerdict.OURS if node_boot in ("", own.boot) else LeaseVerdict.DOUBT
    if seen.agent == own.agent and own.boot == seen.boot:
        return LeaseVerdict.OURS
    if seen.agent == own.agent and own.machine == seen.machine:  # rebooted since
        return LeaseVerdict.OURS
    if seen.boot == own.boot and not is_process(seen.pid):
        return LeaseVerdict.OURS
    return LeaseVerdict.DOUBT


def must_stop(own: Identity, rival: Identity | None) -> bool:
    """Return True if this agent must stop reporting, because the rival has an older claim.

    `rival`: identity of the agent that renewed the Lease meanwhile; None if it wrote none.
    """
    return rival is not None and not rival.is_same_run(own) and rival.is_older_than(own)


class Reporting:
    """Permission of this agent to report as the node. At first it is not given.

    `while_allowed` runs a task only while the permission holds.
    """

    def __init__(self) -> None:
        self._allowed, self._refused = asyncio.Event(), asyncio.Event()
        self._refused.set()
        self.problem = ""
        """Reason why this agent may not report; empty if it may, or if that is not decided yet."""

    @property
    def is_allowed(self) -> bool:
        return self._allowed.is_set()

    def allow(self) -> None:
        """Permit reporting from now on."""
        self.problem = ""
        self._refused.clear()
        self._allowed.set()

    def refuse(self, problem: str) -> None:
        """Forbid reporting from now on, for this reason."""
        self.problem = problem
        self._allowed.clear()
        self._refused.set()

    async def while_allowed(self, run: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run a task while reporting is allowed. `run`: makes the task's coroutine.

        The task is cancelled when the permission ends, and started again when the permission is given again. Returns
        when the task returns by itself.
        """
        while True:
            await self._allowed.wait()
            work = asyncio.create_task(run(), name="reporting")
            try:
                await first_of("reporting-refusal", work, self._refused.wait())
                if work.done():
                    return await work
            finally:
                work.cancel()
                await asyncio.gather(work, return_exceptions=True)
            if not work.cancelled():
                await work  # an error while it ended
