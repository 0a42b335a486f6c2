"""`NodeAdmission`: admission with a memory: who was admitted, and what that takes.

Synchronous: of two pods that ask in the same moment the second sees the first one counted. The sum is kept,
so that a pod costs the same to admit whether ten or five thousand run.
"""

from __future__ import annotations

from typing import Protocol

from kubeletx.api import PodUid, Traits
from kubeletx.kube.core import Pod

from ..facts import DesiredPod, Rejection
from ..sources import API
from .chain import admit_beside
from .door import Door, check_pressure, check_shutdown
from .node import AdmissionNode, Occupancy, Taken, taken_by
from .resources import check_resources


class HasTraits(Protocol):
    """A runtime as far as admission looks at it (`RuntimeHandle`)."""

    @property
    def traits(self) -> Traits | None:
        """What the runtime declares; None before it answered for the first time."""
        ...


class NodeAdmission:
    """Admits pods to one node and counts them until they are released (`services.Admission`)."""

    def __init__(self, node: AdmissionNode, door: Door | None = None) -> None:
        """`door`: what the node is short of now, and whether it is going down."""
        self._node = node
        self._door = door or Door()
        self._taken: dict[PodUid, Taken] = {}
        self._with_ports: dict[PodUid, Taken] = {}
        self._amounts: dict[str, int] = {}

    @property
    def occupancy(self) -> Occupancy:
        """What is taken now."""
        ports = tuple((port, taken.ref) for taken in self._with_ports.values() for port in taken.ports)
        return Occupancy(amounts=dict(self._amounts), pods=len(self._taken), ports=ports)

    def admit(self, desired: DesiredPod, handle: HasTraits) -> Rejection | None:
        """Admit and count the pod, or say why not. Asking again for a counted pod admits it again."""
        pod, traits = desired.pod, handle.traits
        if pod.uid in self._taken:
            return None
        wanted = taken_by(pod, desired.source, traits)
        is_here = wanted is not None
        rejection = check_pressure(desired, self._door.pressure) if is_here else None
        rejection = rejection or admit_beside(pod, self._node, self.occupancy, wanted, traits)
        rejection = rejection or (check_shutdown(self._door) if is_here else None)
        if rejection is None and wanted is not None:
            self._count(wanted)
        return rejection

    def restore(self, pod: Pod, handle: HasTraits | None = None, source: str = API) -> None:
        """Count a pod that runs already, whatever the sums say (A6). `handle` None: it is gone."""
        wanted = taken_by(pod, source, handle.traits if handle is not None else None)
        if wanted is not None and pod.uid not in self._taken:
            self._count(wanted)

    def change(self, pod: Pod, handle: HasTraits, source: str = API) -> Rejection | None:
        """Count the pod with what it wants now in place of what it took, or say why that does not fit."""
        before = self._taken.get(pod.uid)
        self.release(pod.uid)
        wanted = taken_by(pod, source, handle.traits)
        refusal = check_resources(wanted, self._node, self.occupancy) if wanted is not None else None
        counted = wanted if refusal is None else before
        if counted is not None:
            self._count(counted)
        return refusal

    def would_ever_fit(self, pod: Pod, handle: HasTraits, source: str = API) -> bool:
        """Whether the node could take the pod if it were the only one."""
        wanted = taken_by(pod, source, handle.traits)
        return wanted is None or check_resources(wanted, self._node, Occupancy()) is None

    def release(self, uid: PodUid) -> None:
        """The pod takes nothing any more; unknown ones are ignored."""
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
