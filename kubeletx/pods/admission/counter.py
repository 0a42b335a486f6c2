"""`NodeAdmission`: admits pods and keeps account of the node's resources that each admitted pod uses.

Admission is synchronous: of two pods that arrive at the same moment, the second is checked after the resources of the
first are reserved. The sum over all pods is maintained, so that admitting a pod costs the same with ten pods or five
thousand.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from kubeletx.api import PodUid, Traits
from kubeletx.api.names import NODE_SHUTDOWN, Event
from kubeletx.kube.types.core import Pod
from kubeletx.kube.types.node import Taint
from kubeletx.node.readiness import Pressure

from ..model.facts import DesiredPod, Rejection, Waiting
from ..model.sources import CLUSTER, SourceTraits
from .chain import admit_beside, check_taints
from .node import AdmissionNode, Occupancy, Taken, taken_by
from .placement import runtime_awaited, with_runtime_labels
from .preemption import choose_victims, no_victims, without
from .pressure import check_pressure
from .resources import check_resources, out_of, shortages


class FreedRoom(msgspec.Struct, frozen=True, kw_only=True):
    """Result of `NodeAdmission.make_room`: the node's resources are reserved for a critical pod.

    `victims`: UIDs of the pods that the caller must end for it. `resource`: name of the first resource that was short.
    """

    victims: tuple[PodUid, ...] = ()
    resource: str
    awaited: tuple[str, ...]
    """namespace/name of each pod whose end the critical pod waits for: the victims and the pods that were ending."""


class NodeAdmission:
    """Admits pods to one node and reserves their resources until `release`."""

    def __init__(
        self,
        node: AdmissionNode,
        runtime_labels: Callable[[], Mapping[str, str]] = dict,
        standby_percent: int = 100,
    ) -> None:
        """`standby_percent`: share of the requests of frozen pods that is counted; see `count_standby`.

        `runtime_labels`: returns the present labels of this node's runtimes. They replace the runtime labels of the
        Node object, which may be older.
        """
        self._node = node
        self._runtime_labels = runtime_labels
        self._own_labels = node.labels
        self._look: Callable[[], Awaitable[None]] | None = None
        self.pressure = Pressure()
        """The node's present pressure; the evictor sets it."""
        self.is_shutting_down = False
        """True while the host shuts down; every new pod is then rejected (A5 in docs/kubelet-parity.md)."""
        self.is_cordoned = False
        """True while the node has no cluster and a user has cordoned it; new pods but static ones are then rejected."""
        self._taken: dict[PodUid, Taken] = {}
        self._with_ports: dict[PodUid, Taken] = {}
        self._amounts: dict[str, int] = {}
        self._standby_percent = standby_percent
        self._unused: dict[PodUid, dict[str, int]] = {}
        """Amounts of frozen pods that are not counted, by resource name."""
        self._reserved: set[PodUid] = set()
        """Critical pods whose resources are reserved although the pods that end for them still run."""

    @property
    def occupancy(self) -> Occupancy:
        """Resources, number and host ports of all pods that are admitted or have a reservation from `make_room`."""
        ports = tuple((port, taken.ref) for taken in self._with_ports.values() for port in taken.ports)
        return Occupancy(amounts=dict(self._amounts), pods=len(self._taken), ports=ports)

    @property
    def labels(self) -> dict[str, str]:
        """Labels of the Node object as last read from the cluster, with the present labels of the runtimes."""
        return with_runtime_labels(self._node.labels, self._runtime_labels())

    def follow(self, look: Callable[[], Awaitable[None]]) -> None:
        """Set the function that `refresh` awaits. It must read the Node, call `relabel`, and must not raise."""
        self._look = look

    def relabel(self, labels: Mapping[str, str] | None, taints: Sequence[Taint] = ()) -> None:
        """Set the labels and taints of the Node object as read from the cluster, including ones set by users.

        `labels` None: use the labels that the agent itself gives the Node.
        """
        known = dict(self._own_labels if labels is None else labels)
        self._node = replace(self._node, labels=known, taints=tuple(taints))

    async def refresh(self) -> None:
        """Read labels and taints of the Node object again; do nothing before `follow` was called.

        A pod may arrive before the label by which the scheduler chose this node (docs/kubelet-parity.md, row A4).
        """
        if self._look is not None:
            await self._look()

    def runtime_awaited(self, pod: Pod) -> Waiting | None:
        """Return the waiting reason of a pod that `admit` rejected for the node's labels; None: the rejection is final.

        The pod waits if the labels would match once all runtimes are ready.
        """
        return runtime_awaited(pod, self._node_now())

    def admit(self, desired: DesiredPod, traits: Traits | None) -> Rejection | None:
        """Admit the pod, reserve its resources and return None; or return the rejection.

        `traits`: traits of the runtime chosen for the pod; None before its first answer. A pod that was admitted before
        is not checked again. For a pod with a reservation from `make_room`, the reservation is dropped first and all
        checks run.
        """
        if desired.uid in self._reserved:
            self.release(desired.uid)
        if desired.uid in self._taken:
            return None
        wanted = taken_by(desired.pod, desired.traits, traits)
        rejection = self._check(desired, wanted, self.occupancy)
        if rejection is None and wanted is not None:
            self._count(wanted)
        return rejection

    def make_room(
        self,
        desired: DesiredPod,
        traits: Traits | None,
        *,
        leaves: Callable[[PodUid], bool],
        may_leave: Callable[[PodUid], bool],
    ) -> FreedRoom | Rejection | None:
        """Reserve resources for a critical pod that `admit` rejected, and choose the pods to end for it.

        Return a rejection if ending other pods cannot help. Return None, and reserve nothing, if the pod is not
        critical or no resource is short.

        `leaves`: returns True for a pod that is ending already. `may_leave`: returns True for a pod that can be ended.
        The reservation lasts until the next `admit` of this pod; call that whenever a pod has left the node.
        """
        wanted = taken_by(desired.pod, desired.traits, traits)
        if wanted is None or not wanted.is_critical:
            return None
        now = self.occupancy
        other = self._check(desired, replace(wanted, amounts={}), Occupancy(ports=now.ports))
        if other is not None:
            return other
        short = list(shortages(wanted, self._node, now))
        if not short:
            return None
        counted = {uid: self._counted(pod) for uid, pod in self._taken.items()}
        leaving = [pod for uid, pod in counted.items() if leaves(uid)]
        missing = without({shortage.name: shortage.missing for shortage in short}, leaving)
        staying = [pod for uid, pod in counted.items() if not leaves(uid) and may_leave(uid)]
        victims = choose_victims(missing, wanted, staying)
        if victims is None:
            return no_victims(missing, wanted, staying, out_of(short[0]))
        self._count(wanted)
        self._reserved.add(wanted.uid)
        return FreedRoom(
            victims=tuple(victim.uid for victim in victims),
            resource=short[0].name,
            awaited=tuple(pod.ref for pod in (*leaving, *victims)),
        )

    def _check(self, desired: DesiredPod, wanted: Taken | None, occupancy: Occupancy) -> Rejection | None:
        is_here = wanted is not None
        rejection = check_pressure(desired, self.pressure) if is_here else None
        rejection = rejection or admit_beside(desired.pod, self._node_now(), occupancy, wanted)
        if rejection is None and desired.traits.is_scheduled:
            rejection = check_taints(desired.pod.spec.tolerations, self._node.taints)
        if rejection is None and is_here and self.is_shutting_down:
            return Rejection(reason=NODE_SHUTDOWN, message="Pod was rejected as the node is shutting down.")
        if rejection is None and is_here and self.is_cordoned and not desired.traits.is_critical:
            return Rejection(
                reason=Event.NODE_NOT_SCHEDULABLE, message="Pod was rejected as the node is cordoned."
            )
        return rejection

    def _node_now(self) -> AdmissionNode:
        return replace(self._node, labels=self.labels)

    def restore(self, pod: Pod, traits: Traits | None = None, source: SourceTraits = CLUSTER) -> None:
        """Reserve the resources of a pod that already runs, without any check (docs/kubelet-parity.md, row A6).

        `traits`: traits of the pod's runtime; None if it is no longer configured or has not answered.
        """
        wanted = taken_by(pod, source, traits)
        if wanted is not None and pod.uid not in self._taken:
            self._count(wanted)

    def change(self, pod: Pod, traits: Traits | None, source: SourceTraits = CLUSTER) -> Rejection | None:
        """Reserve the resources of the pod's changed spec instead of the earlier ones, and return None.

        If they do not fit, keep the earlier reservation and return the rejection.
        """
        before, unused = self._taken.get(pod.uid), tuple(self._unused.get(pod.uid, ()))
        self.release(pod.uid)
        wanted = taken_by(pod, source, traits)
        refusal = check_resources(wanted, self._node, self.occupancy) if wanted is not None else None
        counted = wanted if refusal is None else before
        if counted is not None:
            self._count(counted)
            self.count_standby(pod.uid, unused)
        return refusal

    def recount(self, pod: Pod, traits: Traits | None = None, source: SourceTraits = CLUSTER) -> None:
        """Reserve the pod's present resources instead of the earlier ones, without any check.

        If the pod is frozen, only a share of them is counted, as before. `traits`: as for `restore`.
        """
        unused = tuple(self._unused.get(pod.uid, ()))
        self.release(pod.uid)
        self.restore(pod, traits, source)
        self.count_standby(pod.uid, unused)

    def would_ever_fit(self, pod: Pod, traits: Traits | None, source: SourceTraits = CLUSTER) -> bool:
        """Return True if the pod would fit on the node if no other pod were there."""
        wanted = taken_by(pod, source, traits)
        return wanted is None or check_resources(wanted, self._node, Occupancy()) is None

    def release(self, uid: PodUid) -> None:
        """Free the resources reserved for the pod; unknown UIDs are ignored."""
        self._reserved.discard(uid)
        self._with_ports.pop(uid, None)
        self.count_standby(uid, ())
        taken = self._taken.pop(uid, None)
        if taken is None:
            return
        for name, amount in taken.amounts.items():
            self._amounts[name] -= amount

    def count_standby(self, uid: PodUid, resources: Collection[str]) -> None:
        """Count only a share of the pod's requests for these resources, and its other requests in full.

        Empty `resources`: the pod is not frozen. A pod that is woken is counted in full without a check, even if the
        sum then exceeds what is allocatable; new pods are rejected meanwhile. Unknown UIDs are ignored.
        """
        taken = self._taken.get(uid)
        if taken is None or self._standby_percent == 100:
            return
        for name, amount in self._unused.pop(uid, {}).items():
            self._amounts[name] += amount
        left = 100 - self._standby_percent
        unused = {name: taken.amounts[name] * left // 100 for name in resources if name in taken.amounts}
        for name, amount in unused.items():
            self._amounts[name] -= amount
        if unused:
            self._unused[uid] = unused

    def _counted(self, taken: Taken) -> Taken:
        """Return the amounts that are counted for the pod at present."""
        unused = self._unused.get(taken.uid)
        if unused is None:
            return taken
        return replace(
            taken, amounts={name: amount - unused.get(name, 0) for name, amount in taken.amounts.items()}
        )

    def _count(self, taken: Taken) -> None:
        self._taken[taken.uid] = taken
        if taken.ports:
            self._with_ports[taken.uid] = taken
        for name, amount in taken.amounts.items():
            self._amounts[name] = self._amounts.get(name, 0) + amount
