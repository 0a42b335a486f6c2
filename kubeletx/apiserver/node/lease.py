"""`NodeLease`: the node's heartbeat, renewed every ten seconds, and the claim to the node's name.

Each renewal times out after one interval. After two timeouts all connections are reopened, so that a silently dropped
connection does not make the node NotReady. The renewal time in the Lease only grows, even if the machine's clock goes
back: the controller manager ignores an earlier time (nodelifecycle, tryUpdateNodeHealth).

The Lease's owner is the present Node, since the garbage collector deletes objects of a deleted owner. The permission of
this agent to report as the node is in `reporting` (claim.py); without it, the Lease is only read.

Source: kubelet, pkg/kubelet/kubelet.go (nodeLeaseRenewIntervalFraction 0.25 of 40 s), cmd/kubelet/app/server.go
(time-out and closed connections of heartbeats); component-helpers, apimachinery/lease. The agent's event loop renews
it: an agent that hangs becomes NotReady, as it should.
"""

from __future__ import annotations

import asyncio
from collections import deque
from pathlib import Path

import structlog
from msgspec.structs import replace

from kubeletx.api import (
    AlreadyExists,
    Clock,
    Conflict,
    EventSink,
    KubeletxError,
    NotFound,
    ObjectRef,
    PermissionDenied,
    TimedOut,
    first_of,
)
from kubeletx.api.names import AGENT_IDENTITY, Event
from kubeletx.kube.client import KubeClient
from kubeletx.kube.client.backoff import server_backoff
from kubeletx.kube.client.errors import least_seconds
from kubeletx.kube.client.resources import LEASES, NODES
from kubeletx.kube.types.core import ObjectMeta, OwnerReference
from kubeletx.kube.types.lease import Lease, LeaseSpec, micro_time, micro_time_after
from kubeletx.kube.types.node import Node

from ..field_managers import tell_foreign_write
from .claim import Identity, LeaseVerdict, Reporting, first_verdict, identity_in, is_over, must_stop

log = structlog.get_logger(__name__)

NAMESPACE = "kube-node-lease"
RENEW_FRACTION = 0.25
LOOK_FRACTION = 0.125
SILENT_RENEWALS = 2
CAP_SECONDS = 7.0
_WRITTEN = 8


class NodeLease:
    """Renews the node's Lease, and decides whether this agent or another one may use the node's name.

    `run` is its only task. Await `claim` before reporting anything.
    """

    def __init__(
        self,
        client: KubeClient,
        name: str,
        *,
        clock: Clock,
        duration_seconds: int = 40,
        identity: Identity | None = None,
        events: EventSink | None = None,
    ) -> None:
        """`duration_seconds`: time after which an unrenewed Lease expires.

        `identity`: identity of this agent; None: other agents with this node name are not detected.
        """
        self._client = client
        self._name = name
        self._path = LEASES.path(NAMESPACE, name)
        self._clock = clock
        self._duration = duration_seconds
        self._identity = identity
        self._events = events
        self._lease: Lease | None = None
        self._problem = ""
        self._node_uid: str | None = None
        """UID of the Node; empty: it was deleted; None: not known yet."""
        self._silent = 0
        self._hurry = asyncio.Event()
        self._written: deque[str | None] = deque(maxlen=_WRITTEN)
        """Renewal times in the last requests, including requests without an answer."""
        self._rival_seen: tuple[str | None, float] | None = None
        """Renewal time in the Lease of another agent, and the monotonic time at which it was first seen."""
        self._reported: str | None = None
        self.reporting = Reporting()
        if identity is None:
            self.reporting.allow()

    @property
    def problem(self) -> str:
        """Error of the last renewal; empty if it succeeded."""
        return self._problem

    def owned_by(self, node_uid: str) -> None:
        """Set the UID of the Node that owns the Lease; empty if there is no Node."""
        if node_uid and self._node_uid != node_uid and self._lease is not None:
            self._hurry.set()  # the Lease may name a deleted Node as owner, and would be garbage-collected
        if not node_uid:
            self._lease = None  # read before the next renewal: it is garbage-collected with the Node
        self._node_uid = node_uid

    # --- life ---

    async def run(self) -> None:
        every = self._duration * RENEW_FRACTION
        backoff = server_backoff(first=0.2, cap=min(CAP_SECONDS, every))
        while True:
            await self.claim()
            seconds = every
            try:
                await self._renew_within(seconds)
            except KubeletxError as error:
                if not self._problem and not self._client.problem:
                    log.warning("Failed to renew the node lease", err=str(error))
                self._problem = str(error)
                least = min(least_seconds(error), every)  # after a longer wait the node would become NotReady
                seconds = backoff.next(self._clock.monotonic(), at_least=least)
            else:
                self._problem = ""
                backoff.reset()
            await self._pause(seconds)

    async def _pause(self, seconds: float) -> None:
        await first_of("node-lease-pause", self._client.pause(seconds), self._hurry.wait())
        self._hurry.clear()

    async def _renew_within(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self.renew()
        except (TimeoutError, TimedOut) as error:
            self._silent += 1
            if self._silent % SILENT_RENEWALS == 0:
                await self._client.reconnect()
            raise TimedOut(f"lease {NAMESPACE}/{self._name}: no answer within {seconds:g} s") from error
        except KubeletxError:
            self._silent = 0
            raise
        self._silent = 0

    # --- the claim ---

    async def claim(self) -> None:
        """Claim the node for this agent: wait until no other running agent has an older claim.

        Only then may the agent report the node's status.
        """
        backoff = server_backoff(first=0.2, cap=CAP_SECONDS)
        while not self.reporting.is_allowed:
            try:
                await self._look_for_rival()
            except KubeletxError as error:
                if _is_forbidden(error):  # no rival can be detected; the renewal reports the error too
                    log.warning("Cannot look for other agents of this node name", err=str(error))
                    self._take()
                    return
                self._problem = str(error)
                least = least_seconds(error)
                await self._client.pause(backoff.next(self._clock.monotonic(), at_least=least))
                continue
            if not self.reporting.is_allowed:
                await self._client.pause(self._duration * LOOK_FRACTION)

    async def _look_for_rival(self) -> None:
        own, lease, now = self._identity, await self._find(), self._clock.monotonic()
        self._lease = lease
        if lease is None or own is None:
            self._take()
        elif self._rival_seen is None:
            node_boot = "" if identity_in(lease) is not None else await self._boot_of_node()
            verdict = first_verdict(
                own, lease, node_boot=node_boot, now=self._clock.now(), is_process=_is_process
            )
            if verdict is LeaseVerdict.OURS:
                self._take()
                return
            self._rival_seen = lease.spec.renew_time, now
            log.info(
                "Waiting to see whether another agent reports as this node",
                node=self._name,
                other=_words(lease),
            )
        elif lease.spec.renew_time != self._rival_seen[0]:
            self._rival_seen = lease.spec.renew_time, now
            self._stop(lease)
        elif now - self._rival_seen[1] >= self._duration or is_over(lease, self._clock.now()):
            self._take()

    def _take(self) -> None:
        """Allow reporting. A claim of this agent that the Lease holds already keeps its start time.

        After waiting for another agent's Lease to expire, the claim starts now.
        """
        own, known = self._identity, identity_in(self._lease) if self._lease is not None else None
        if own is not None and known is not None and known.agent == own.agent:
            self._identity = replace(own, since=min(own.since, known.since))
        elif own is not None and self._rival_seen is not None:
            self._identity = replace(own, since=micro_time(self._clock.now()))
        if self.reporting.problem:
            log.warning("Reporting again: the other agent of this node name is gone", node=self._name)
        self._rival_seen, self._reported = None, None
        self._written.clear()
        self.reporting.allow()

    def _stop(self, lease: Lease) -> None:
        if self.reporting.problem:
            return
        problem = (
            f"another agent reports as node {self._name}, and was there before this one: {_words(lease)}; this agent "
            "stopped reporting, its pods keep running; stop one of the two or give it another name "
            "(--hostname-override)"
        )
        self.reporting.refuse(problem)
        log.error("Stopped reporting: another agent has the name of this node", node=self._name, err=problem)
        self._record(problem)

    async def _judge(self, lease: Lease) -> bool:
        """Return True if this agent may renew `lease`, which was read after a conflict.

        If another agent has renewed it meanwhile, the older claim decides: this agent stops reporting and returns
        False, or continues and reports the conflict.
        """
        own = self._identity
        if own is None or not self._written or lease.spec.renew_time in self._written:
            return True
        rival = identity_in(lease)
        if must_stop(own, rival):
            self._rival_seen = lease.spec.renew_time, self._clock.monotonic()
            self._stop(lease)
            return False
        words = _words(lease)
        if self._reported != words:
            self._reported = words
            what = f"lease {NAMESPACE}/{self._name}"
            patch = {"spec": {"renewTime": None}}
            await tell_foreign_write(self._client, self._path, what, patch, next_wait=0.0)
            self._record(
                f"another agent reports as node {self._name} too: {words}; this agent had the name first and "
                "continues; stop the other agent or give it another name"
            )
        return True

    def _record(self, message: str) -> None:
        if self._events is not None:
            ref = ObjectRef(kind="Node", name=self._name, uid=self._name)
            self._events.record(ref, type="Warning", reason=Event.DUPLICATE_NODE, message=message)

    async def _boot_of_node(self) -> str:
        try:
            node = await self._client.get(NODES.path(name=self._name), Node)
        except KubeletxError as error:
            if isinstance(error, NotFound) or _is_forbidden(error):
                return ""
            raise
        return node.status.node_info.boot_id if node.status.node_info is not None else ""

    # --- one renewal ---

    async def renew(self) -> None:
        """Create or renew the Lease once, unless it turns out that another agent has an older claim.

        Raises KubeletxError if the API server refuses the request or cannot be reached.
        """
        if self._lease is None and not await self._find_again():
            return
        if self._lease is None and self._node_uid == "":
            return  # as by a kubelet: without an owner nothing would delete it
        if self._lease is None:
            try:
                made = self._renewed(Lease())
                self._lease = await self._client.create(LEASES.path(NAMESPACE), made, Lease)
            except AlreadyExists:
                if not await self._find_again():
                    return
            else:
                return
        if self._lease is None:
            raise Conflict(
                f"lease {NAMESPACE}/{self._name} is created and deleted repeatedly; find the program that does it"
            )
        try:
            await self._replace()
        except Conflict:  # another client wrote it meanwhile: retry with its present state
            if await self._find_again() and self._lease is not None:
                await self._replace()

    async def _find_again(self) -> bool:
        """Read the Lease again after a conflict; returns True if there is none, or if this agent may use it."""
        self._lease = await self._find()
        return self._lease is None or await self._judge(self._lease)

    async def _replace(self) -> None:
        assert self._lease is not None
        lease, self._lease = self._lease, None
        self._lease = await self._client.replace(self._path, self._renewed(lease), Lease)

    async def _find(self) -> Lease | None:
        try:
            return await self._client.get(self._path, Lease)
        except NotFound:
            return None

    def _renewed(self, lease: Lease) -> Lease:
        before = lease.metadata if lease.metadata.name else ObjectMeta(name=self._name, namespace=NAMESPACE)
        notes = {AGENT_IDENTITY: self._identity.text()} if self._identity is not None else {}
        metadata = replace(
            before,
            owner_references=self._owners(before.owner_references),
            annotations={**before.annotations, **notes},
        )
        spec = replace(
            lease.spec if lease.spec.holder_identity else LeaseSpec(),
            holder_identity=self._name,
            lease_duration_seconds=self._duration,
            renew_time=micro_time_after(lease.spec.renew_time, self._clock.now()),
        )
        self._written.append(spec.renew_time)
        return replace(lease, metadata=metadata, spec=spec)

    def _owners(self, known: tuple[OwnerReference, ...]) -> tuple[OwnerReference, ...]:
        """Return the owners `known` with the present Node instead of an earlier Node; owners of other kinds stay."""
        if not self._node_uid or any(owner.uid == self._node_uid for owner in known):
            return known
        node = OwnerReference(api_version="v1", kind="Node", name=self._name, uid=self._node_uid)
        return (*(owner for owner in known if owner.kind != "Node"), node)


def _words(lease: Lease) -> str:
    """Describe the agent that last renewed the Lease, for messages."""
    known, holder = identity_in(lease), lease.spec.holder_identity or ""
    return known.words if known is not None else f"one without an identity (holder {holder!r} of the lease)"


def _is_forbidden(error: KubeletxError) -> bool:
    """Return True if this agent has no right to the request. A credential that is not accepted now is no such answer."""
    return isinstance(error, PermissionDenied) and error.reason == "Forbidden"


def _is_process(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()
