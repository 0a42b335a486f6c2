"""`NodeAdmission`: admits pods and keeps what each admitted pod takes of the node.

Synchronous: of two pods that ask at the same moment, the second sees the first one counted. The sum over all
pods is kept, so that admitting a pod costs the same with ten pods or five thousand.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol

import msgspec
from msgspec.structs import replace

from kubeletx.api import PodUid, Traits
from kubeletx.kube.types.core import Pod
from kubeletx.kube.types.node import Taint

from ..model.facts import DesiredPod, Rejection, Waiting
from ..model.sources import CLUSTER, SourceTraits
from .chain import admit_beside
from .gate import AdmissionGate, check_pressure, check_shutdown
from .node import AdmissionNode, Occupancy, Taken, taken_by
from .placement import runtime_awaited, with_runtime_labels
from .preemption import choose_victims, no_victims, without
from .resources import check_resources, out_of, shortages
from .taints import check_taints


class HasTraits(Protocol):
    """The part of a runtime that admission reads (`RuntimeHandle` implements it)."""

    @property
    def traits(self) -> Traits | None:
        """Traits of the runtime; None before its first answer."""
        ...


class FreedRoom(msgspec.Struct, frozen=True, kw_only=True):
    """Room reserved for a critical pod. `victims`: pods to end for it.

    `resource`: the first one that was short.
    """

    victims: tuple[PodUid, ...] = ()
    resource: str
    awaited: tuple[str, ...]
    """namespace/name of the victims and of the pods that were ending already."""


class NodeAdmission:
    """Admits pods to one node and counts them until they are released."""

    def __init__(
        self,
        node: AdmissionNode,
        gate: AdmissionGate | None = None,
        runtime_labels: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        """`gate`: the node's present pressure and shutdown.

        `runtime_labels`: returns the labels of this node's runtimes, which replace those of the cluster.
        """
        self._node = node
        self._runtime_labels = runtime_labels
        self._own_labels = node.labels
        self._look: Callable[[], Awaitable[None]] | None = None
        self._gate = gate or AdmissionGate()
        self._taken: dict[PodUid, Taken] = {}
        self._with_ports: dict[PodUid, Taken] = {}
        self._amounts: dict[str, int] = {}
        self._reserved: set[PodUid] = set()
        """Critical pods that are counted although the pods that end for them still run."""

    @property
    def occupancy(self) -> Occupancy:
        """Sum of what all counted pods take of the node."""
        ports = tuple((port, taken.ref) for taken in self._with_ports.values() for port in taken.ports)
        return Occupancy(amounts=dict(self._amounts), pods=len(self._taken), ports=ports)

    @property
    def labels(self) -> dict[str, str]:
        """The Node's labels, as last read from the cluster, with the runtimes' labels as they are now."""
        return with_runtime_labels(self._node.labels, self._runtime_labels())

    def follow(self, look: Callable[[], Awaitable[None]]) -> None:
        """Set the function that `refresh` awaits. It reads the Node and calls `relabel`; it must not raise."""
        self._look = look

    def relabel(self, labels: Mapping[str, str] | None, taints: Sequence[Taint] = ()) -> None:
        """Set labels and taints of the Node as the cluster has them, users' own included.

        `labels` None: use those that the agent gives the Node.
        """
        known = dict(self._own_labels if labels is None else labels)
        self._node = replace(self._node, labels=known, taints=tuple(taints))

    async def refresh(self) -> None:
        """Read the node's current labels: a pod may arrive before the label by which it was scheduled (A4)."""
        if self._look is not None:
            await self._look()

    def runtime_awaited(self, pod: Pod) -> Waiting | None:
        """Runtimes that a pod refused for the node's labels may wait for; None if the refusal is final."""
        return runtime_awaited(pod, self._node_now())

    def admit(self, desired: DesiredPod, handle: HasTraits, handler: str = "") -> Rejection | None:
        """Admit and count the pod and return None, or return the reason for the refusal.

        A pod that is counted already is admitted again.
        """
        if desired.uid in self._reserved:
            self.release(desired.uid)
        if desired.uid in self._taken:
            return None
        wanted = taken_by(desired.pod, desired.traits, handle.traits)
        rejection = self._check(desired, handle, handler, wanted, self.occupancy)
        if rejection is None and wanted is not None:
            self._count(wanted)
        return rejection

    def make_room(
        self,
        desired: DesiredPod,
        handle: HasTraits,
        handler: str = "",
        *,
        leaves: Callable[[PodUid], bool],
        may_leave: Callable[[PodUid], bool],
    ) -> FreedRoom | Rejection | None:
        """Reserve room for a critical pod that was not admitted, or return the refusal if there can be none.

        None: the pod is not critical, or no resource is short.

        `leaves`: whether a pod is ending already. `may_leave`: whether it could be ended. Call `admit` again
        whenever one has left: the reservation holds until then.
        """
        wanted = taken_by(desired.pod, desired.traits, handle.traits)
        if wanted is None or not wanted.is_critical:
            return None
        now = self.occupancy
        other = self._check(desired, handle, handler, replace(wanted, amounts={}), Occupancy(ports=now.ports))
        if other is not None:
            return other
        short = list(shortages(wanted, self._node, now))
        if not short:
            return None
        leaving = [one for uid, one in self._taken.items() if leaves(uid)]
        missing = without({one.name: one.missing for one in short}, leaving)
        staying = [one for uid, one in self._taken.items() if not leaves(uid) and may_leave(uid)]
        victims = choose_victims(missing, wanted, staying)
        if victims is None:
            return no_victims(missing, wanted, staying, out_of(short[0]))
        self._count(wanted)
        self._reserved.add(wanted.uid)
        return FreedRoom(
            victims=tuple(one.uid for one in victims),
            resource=short[0].name,
            awaited=tuple(one.ref for one in (*leaving, *victims)),
        )

    def _check(
        self,
        desired: DesiredPod,
        handle: HasTraits,
        handler: str,
        wanted: Taken | None,
        occupancy: Occupancy,
    ) -> Rejection | None:
        is_here = wanted is not None
        rejection = check_pressure(desired, self._gate.pressure) if is_here else None
        rejection = rejection or admit_beside(
            desired.pod, self._node_now(), occupancy, wanted, handle.traits, handler
        )
        if rejection is None and desired.traits.is_scheduled:
            rejection = check_taints(desired.pod.spec.tolerations, self._node.taints)
        return rejection or (check_shutdown(self._gate) if is_here else None)

    def _node_now(self) -> AdmissionNode:
        return replace(self._node, labels=self.labels)

    def restore(self, pod: Pod, handle: HasTraits | None = None, source: SourceTraits = CLUSTER) -> None:
        """Count a pod that already runs, without any check (A6). `handle` None: its runtime is not configured any more."""
        wanted = taken_by(pod, source, handle.traits if handle is not None else None)
        if wanted is not None and pod.uid not in self._taken:
            self._count(wanted)

    def change(self, pod: Pod, handle: HasTraits, source: SourceTraits = CLUSTER) -> Rejection | None:
        """Count the pod with what its changed spec wants; return the reason, and change nothing, if that does not fit."""
        before = self._taken.get(pod.uid)
        self.release(pod.uid)
        wanted = taken_by(pod, source, handle.traits)
        refusal = check_resources(wanted, self._node, self.occupancy) if wanted is not None else None
        counted = wanted if refusal is None else before
        if counted is not None:
            self._count(counted)
        return refusal

    def would_ever_fit(self, pod: Pod, handle: HasTraits, source: SourceTraits = CLUSTER) -> bool:
        """Return True if the resources of the node suffice for the pod as its only pod."""
        wanted = taken_by(pod, source, handle.traits)
        return wanted is None or check_resources(wanted, self._node, Occupancy()) is None

    def release(self, uid: PodUid) -> None:
        """Stop counting the pod; unknown UIDs are ignored."""
        self._reserved.discard(uid)
        self._with_ports.pop(uid, None)
        taken = self._taken.pop(uid, None)
        if taken is None:
            return
        for name, amount in taken.amounts.items():
            self._amounts[name] -= amount

    def _count(self, taken: Taken) -> None:
        self._taken[taken.uid] = taken
        if taken.ports:
            self._with_ports[taken.uid] = taken
        for name, amount in taken.amounts.items():
            self._amounts[name] = self._amounts.get(name, 0) + amount
