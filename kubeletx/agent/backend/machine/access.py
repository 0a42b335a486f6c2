"""Finds what a command on a virtual machine needs.

These are the worker of the pod, the machine as the runtime lists it (its unit), and the runtime's implementation of an
optional capability, such as snapshots.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from kubeletx.api import Conflict, ObjectRef, UnitState, UnitSummary, Unsupported
from kubeletx.kube.manifests.machine_form import machine_of
from kubeletx.pods import FINAL, PodExecutor, PodWorker, regular_units
from kubeletx.pods.workloads.machine.facts import MachineFacts
from kubeletx.pods.workloads.machine.power import MACHINE_WORDS
from kubeletx.runtimes.handles.handle import RuntimeHandle
from kubeletx.server.views import PodTarget

from ..waiting import require_seen, wait_for_worker

T = TypeVar("T")


class MachineAccess:
    """Finds the pod worker, the unit and the runtime of a virtual machine.

    A unit is one start of the machine, as the runtime lists it. The errors say why a command cannot act on the machine.
    """

    def __init__(self, services: PodExecutor, worker_of: Callable[[PodTarget], PodWorker]) -> None:
        """`worker_of`: returns the worker of the pod that a target names; raises NotFound or Conflict."""
        self.services = services
        self._worker_of = worker_of

    async def find(self, target: PodTarget) -> PodWorker:
        """Return the worker of a pod whose virtual machine a command may act on.

        Raises NotFound if there is no such pod, Unsupported if it is a pod of containers, and Conflict if it is not
        assigned to a runtime yet or is ending.
        """
        worker = self._worker_of(target)
        if worker.facts.of(MachineFacts) is None and machine_of(worker.desired.pod) is None:
            raise Unsupported(
                f"pod {target.ref} is a pod of containers; 'kubeletx vm' is for virtual machines"
            )
        if worker.facts.runtime is None:
            raise Conflict(f"pod {target.ref} is not bound to a runtime yet; its events say why")
        status = self.services.board.statuses.get(worker.uid)
        if worker.desired.is_ending or (status is not None and status.phase in FINAL):
            raise Conflict(f"machine {target.ref} is ending")
        await self.services.overrides.ensure_read(worker)
        return worker

    def name(self, worker: PodWorker) -> str:
        """Return the name of the machine: the name of the container that represents it in the pod."""
        return regular_units(worker.desired.pod)[0].name

    def find_unit(self, worker: PodWorker) -> UnitSummary | None:
        """Return the newest unit of the machine; None before the first start."""
        return worker.facts.newest(self.name(worker))

    def unit(self, worker: PodWorker) -> UnitSummary:
        """Return the newest unit of the machine.

        Raises Conflict if the machine was never started, Unavailable if its runtime does not answer.
        """
        unit = self.find_unit(worker)
        if unit is None:
            require_seen(self.services, worker)
            raise Conflict(f"machine {worker.desired.ref} was never started; the events of its pod say why")
        return unit

    def alive(self, worker: PodWorker) -> UnitSummary:
        """Return the unit of a machine that is running or paused. Raises Conflict if it is off or was never started."""
        unit = self.unit(worker)
        if not unit.state.is_alive:
            raise Conflict(f"machine {worker.desired.ref} is off; use 'kubeletx vm start' first")
        return unit

    def running(self, worker: PodWorker, verb: str) -> UnitSummary:
        """Return the unit of a running machine. Raises Conflict if the machine is paused, off, or was never started.

        `verb`: completes the message "cannot VERB machine ...".
        """
        unit = self.alive(worker)
        if unit.state is not UnitState.RUNNING:
            raise Conflict(
                f"cannot {verb} machine {worker.desired.ref}: it is {MACHINE_WORDS[unit.state]}; "
                "use 'kubeletx vm resume' first"
            )
        return unit

    def capable(self, worker: PodWorker, protocol: type[T], what: str) -> tuple[RuntimeHandle, T]:
        """Return the machine's runtime, and the runtime's implementation of `protocol`.

        Raises Unavailable if the runtime does not answer, Unsupported if it does not implement `protocol`. `what`:
        completes the message "runtime NAME cannot ...".
        """
        assert worker.facts.runtime is not None
        handle = self.services.registry.get(worker.facts.runtime)
        handle.require_reachable()
        capability: T | None = handle.capability(protocol)
        if capability is None:
            raise Unsupported(f"runtime {handle.name} cannot {what}")
        return handle, capability

    async def wait(self, worker: PodWorker, is_done: Callable[[], bool], seconds: float) -> bool:
        """Wait until `is_done()` returns True, then return True; return False after `seconds`.

        Raises Conflict when the pod is deleted or has ended.
        """
        return await wait_for_worker(self.services, worker, is_done, seconds, what="machine")

    def tell(self, worker: PodWorker, reason: str, message: str, *, type: str = "Normal") -> None:
        """Record a Kubernetes event on the worker's pod. `type`: Normal or Warning."""
        pod = worker.desired.pod
        ref = ObjectRef(kind="Pod", name=pod.name, namespace=pod.namespace, uid=str(pod.uid))
        self.services.events.record(ref, type=type, reason=reason, message=message)
