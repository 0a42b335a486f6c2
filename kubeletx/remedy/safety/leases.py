"""`NodeLeases`: at most one actor treats a node, by a Lease ``node-NODE`` with its holder.

Source: medik8s/common, package lease; NodeHealthCheck uses the same name in namespace medik8s-leases. A Lease of another holder
counts as expired when it has not changed for its duration, by this process's monotonic clock.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Final

from msgspec.structs import replace

from kubeletx.api import AlreadyExists, Clock, Conflict, NotFound
from kubeletx.kube.client import KubeClient
from kubeletx.kube.client.lists import list_pages
from kubeletx.kube.client.resources import LEASES
from kubeletx.kube.types.lease import Lease, LeaseList, LeaseSpec, micro_time
from kubeletx.kube.types.meta import ObjectMeta, OwnerReference

from ..model import NodeView

HOLDER: Final = "kubeletx-remedy"
"""The same for all controllers, since only one of them leads."""
LEASE_SECONDS: Final = 300.0
SPARE_SECONDS: Final = 120.0
RETRY_SECONDS: Final = 10.0


class NodeLeases:
    """Leases of the nodes that this controller treats. `namespace`: asked for at each request."""

    def __init__(self, client: KubeClient, clock: Clock, namespace: Callable[[], str]) -> None:
        self._client = client
        self._clock = clock
        self._namespace = namespace
        self._held: dict[str, float] = {}
        self._seen: dict[str, tuple[LeaseSpec, float]] = {}
        self._others: dict[str, tuple[str, float]] = {}

    def others(self) -> dict[str, str]:
        """Return the holder of each node's Lease that another actor held a moment ago."""
        now = self._clock.monotonic()
        self._others = {name: known for name, known in self._others.items() if known[1] > now}
        return {name: holder for name, (holder, _) in self._others.items()}

    async def read_others(self) -> dict[str, str]:
        """Read the holders of node Leases that other actors hold now, by the wall clock: for a look, not for a decision."""
        holders, now = {}, self._clock.now()
        async for page in list_pages(self._client, LEASES.path(self._namespace()), LeaseList):
            for lease in page.items:
                spec = lease.spec
                if not lease.metadata.name.startswith("node-") or spec.holder_identity in (None, "", HOLDER):
                    continue
                renewed = datetime.fromisoformat(spec.renew_time) if spec.renew_time else now
                if (now - renewed).total_seconds() < (spec.lease_duration_seconds or LEASE_SECONDS):
                    holders[lease.metadata.name.removeprefix("node-")] = spec.holder_identity
        return holders

    async def take(self, node: NodeView, seconds: float = 0.0) -> bool:
        """Take or renew the node's Lease for at least `seconds` and return True; False: another actor has it.

        Raises the errors of the API server.
        """
        now = self._clock.monotonic()
        if self._held.get(node.name, now) - now >= seconds + SPARE_SECONDS:
            return True
        name, length = f"node-{node.name}", max(LEASE_SECONDS, seconds + 2 * SPARE_SECONDS)
        path = LEASES.path(self._namespace(), name)
        try:
            lease = await self._client.get(path, Lease)
        except NotFound:
            lease = None
        if lease is not None and not self._is_free(node.name, lease.spec):
            self._lose(node.name, lease.spec.holder_identity or "")
            return False
        before = lease.spec if lease is not None else LeaseSpec()
        is_own, wall = before.holder_identity == HOLDER, micro_time(self._clock.now())
        spec = LeaseSpec(
            holder_identity=HOLDER,
            lease_duration_seconds=int(length),
            acquire_time=before.acquire_time if is_own else wall,
            renew_time=wall,
            lease_transitions=(before.lease_transitions or 0) + (not is_own),
        )
        owner = OwnerReference(api_version="v1", kind="Node", name=node.name, uid=node.metadata.uid)
        try:
            if lease is None:
                meta = ObjectMeta(name=name, namespace=self._namespace(), owner_references=(owner,))
                await self._client.create(
                    LEASES.path(self._namespace()), Lease(metadata=meta, spec=spec), Lease
                )
            else:
                await self._client.replace(path, replace(lease, spec=spec), Lease)
        except (AlreadyExists, Conflict):
            self._lose(node.name, "an actor that was faster")
            return False
        self._held[node.name] = now + length
        self._others.pop(node.name, None)
        return True

    async def drop(self, node: str) -> None:
        """Delete the node's Lease if it is this controller's."""
        self._held.pop(node, None)
        self._seen.pop(node, None)
        path = LEASES.path(self._namespace(), f"node-{node}")
        try:
            lease = await self._client.get(path, Lease)
            if lease.spec.holder_identity == HOLDER:
                await self._client.delete(path, resource_version=lease.metadata.resource_version)
        except (NotFound, Conflict):
            pass

    def _lose(self, node: str, holder: str) -> None:
        self._held.pop(node, None)
        self._others[node] = (holder, self._clock.monotonic() + RETRY_SECONDS)

    def _is_free(self, node: str, spec: LeaseSpec) -> bool:
        now = self._clock.monotonic()
        if spec.holder_identity in (None, "", HOLDER):
            return True
        if self._seen.get(node, (None, 0.0))[0] != spec:
            self._seen[node] = (spec, now)
        return now - self._seen[node][1] >= (spec.lease_duration_seconds or LEASE_SECONDS)
