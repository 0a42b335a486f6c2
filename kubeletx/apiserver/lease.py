"""`NodeLease`: the node's sign of life, renewed every ten seconds.

A renewal has as long as there is between two of them, and after two that nobody answered all connections are made anew: a
peer that went away without a word must not cost the node its name. The time of renewal only grows, whatever the
machine's clock does: the controller manager takes one that goes back for none (nodelifecycle, tryUpdateNodeHealth).

Source: kubelet, pkg/kubelet/kubelet.go (nodeLeaseRenewIntervalFraction 0.25 of 40 s), cmd/kubelet/app/server.go (time-out
and closed connections of heartbeats); component-helpers, apimachinery/lease. What renews it is the agent's event loop: an
agent that hangs loses its node, as it should.
"""

from __future__ import annotations

import asyncio

import structlog
from msgspec.structs import replace

from kubeletx.api import AlreadyExists, Clock, Conflict, KubeletxError, NotFound, TimedOut
from kubeletx.kube.client import KubeClient
from kubeletx.kube.client.backoff import Backoff
from kubeletx.kube.client.errors import least_seconds
from kubeletx.kube.client.resources import LEASES
from kubeletx.kube.core import ObjectMeta, OwnerReference
from kubeletx.kube.lease import Lease, LeaseSpec, micro_time_after

log = structlog.get_logger(__name__)

NAMESPACE = "kube-node-lease"
RENEW_FRACTION = 0.25
SILENT_RENEWALS = 2
CAP_SECONDS = 7.0


class NodeLease:
    """`run` is its one task."""

    def __init__(self, client: KubeClient, name: str, *, clock: Clock, duration_seconds: int = 40) -> None:
        """`duration_seconds`: how long it is good."""
        self._client = client
        self._name = name
        self._clock = clock
        self._duration = duration_seconds
        self._lease: Lease | None = None
        self._problem = ""
        self._node_uid = ""
        self._silent = 0

    def owned_by(self, node_uid: str) -> None:
        """The Node object that a new lease goes with; empty: there is none."""
        self._node_uid = node_uid

    async def run(self) -> None:
        """Renew until cancelled."""
        every = self._duration * RENEW_FRACTION
        backoff = Backoff(first=0.2, cap=min(CAP_SECONDS, every))
        while True:
            seconds = every
            try:
                await self._renew_within(seconds)
            except KubeletxError as error:
                if not self._problem and not self._client.problem:
                    log.warning("Failed to renew the node lease", err=str(error))
                self._problem = str(error)
                least = min(least_seconds(error), every)  # a node that waits for longer is taken for dead
                seconds = backoff.next(self._clock.monotonic(), at_least=least)
            else:
                self._problem = ""
                backoff.reset()
            await self._client.pause(seconds)

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

    async def renew(self) -> None:
        """Once. Raises what the API server or the way to it says."""
        path = LEASES.path(NAMESPACE, self._name)
        if self._lease is None:
            self._lease = await self._find(path)
        if self._lease is None:
            try:
                self._lease = await self._client.create(LEASES.path(NAMESPACE), self._renewed(Lease()), Lease)
            except AlreadyExists:
                self._lease = await self._find(path)
            else:
                return
        if self._lease is None:
            raise Conflict(f"lease {NAMESPACE}/{self._name} comes and goes")
        try:
            self._lease = await self._client.replace(path, self._renewed(self._lease), Lease)
        except (Conflict, NotFound):
            self._lease = None
            raise

    async def _find(self, path: str) -> Lease | None:
        try:
            return await self._client.get(path, Lease)
        except NotFound:
            return None

    def _renewed(self, lease: Lease) -> Lease:
        owners = lease.metadata.owner_references
        if not owners and self._node_uid:
            owners = (OwnerReference(api_version="v1", kind="Node", name=self._name, uid=self._node_uid),)
        metadata = replace(
            lease.metadata if lease.metadata.name else ObjectMeta(name=self._name, namespace=NAMESPACE),
            owner_references=owners,
        )
        spec = replace(
            lease.spec if lease.spec.holder_identity else LeaseSpec(),
            holder_identity=self._name,
            lease_duration_seconds=self._duration,
            renew_time=micro_time_after(lease.spec.renew_time, self._clock.now()),
        )
        return replace(lease, metadata=metadata, spec=spec)
