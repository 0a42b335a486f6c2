"""Finds what a command on a virtual machine needs: the pod's worker, the machine's unit, a capability of its
runtime.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from kubeletx.api import Conflict, ObjectRef, UnitState, UnitSummary, Unsupported
from kubeletx.kube.manifests.machine_form import machine_of
from kubeletx.pods import FINAL, PodExecutor, PodWorker, newest, regular_units
from kubeletx.pods.workloads.machine.facts import MachineFacts
from kubeletx.pods.workloads.machine.power import MACHINE_WORDS
from kubeletx.runtimes.handles.handle import RuntimeHandle
from kubeletx.server.views import PodTarget

from ..seen import require_seen

T = TypeVar("T")

LOOK_SECONDS = 0.1
"""Interval at which a waiting command checks the facts again, in addition to each new status."""


class MachineAccess:
    """Finds the worker, the unit and the runtime of a virtual machine.

    Its errors say why a command cannot act on the machine.
    """

    def __init__(self, services: PodExecutor, worker_of: Callable[[PodTarget], PodWorker]) -> None:
        """`worker_of`: returns the worker of a target's living pod; raises NotFound or Conflict."""
        self.services = services
        self._worker_of = worker_of

    async def find(self, target: PodTarget) -> PodWorker:
        """Return the worker of a pod that is a virtual machine, bound to a runtime, and not ending.

        Raises NotFound, Conflict or Unsupported for any other pod.
        """
        worker = self._worker_of(target)
        if worker.facts.of(MachineFacts) is None and machine_of(worker.desired.pod) is None:
            raise Unsupported(
                f"pod {target.ref} is a pod of containers; 'kubeletx vm' is for virtual machines"
            )
        if worker.facts.runtime is None:
            raise Conflict(f"pod {target.ref} is not bound to a runtime yet")
        status = self.services.board.statuses.get(worker.uid)
        if worker.desired.is_going or (status is not None and status.phase in FINAL):
            raise Conflict(f"machine {target.ref} is ending")
        await self.services.overrides.ensure_read(worker)
        return worker

    def name(self, worker: PodWorker) -> str:
        """The machine's unit name."""
        return regular_units(worker.desired.pod)[0].name

    def find_unit(self, worker: PodWorker) -> UnitSummary | None:
        """Newest unit of the machine; None before the first start."""
        return newest(worker.facts, self.name(worker))

    def unit(self, worker: PodWorker) -> UnitSummary:
        """Newest unit of the machine. Raises Conflict if it was never started."""
        unit = self.find_unit(worker)
        if unit is None:
            require_seen(self.services, worker)
            raise Conflict(f"machine {worker.desired.ref} was never started")
        return unit

    def alive(self, worker: PodWorker) -> UnitSummary:
        """Running or paused unit of the machine. Raises Conflict if it is off or was never started."""
        unit = self.unit(worker)
        if not unit.state.is_alive:
            raise Conflict(f"machine {worker.desired.ref} is off")
        return unit

    def running(self, worker: PodWorker, verb: str) -> UnitSummary:
        """Running unit of the machine. Raises Conflict unless its state is running: a paused machine is refused."""
        unit = self.alive(worker)
        if unit.state is not UnitState.RUNNING:
            raise Conflict(
                f"cannot {verb} machine {worker.desired.ref}: it is {MACHINE_WORDS[unit.state]}; "
                "use 'kubeletx vm resume' first"
            )
        return unit

    def capable(self, worker: PodWorker, protocol: type[T], what: str) -> tuple[RuntimeHandle, T]:
        """The runtime, and its implementation of `protocol`.

        Raises Unavailable if the runtime does not answer, Unsupported if it lacks the capability. `what`:
        completes the message "runtime NAME cannot ...".
        """
        assert worker.facts.runtime is not None
        handle = self.services.registry.get(worker.facts.runtime)
        handle.require_reachable()
        found: T | None = handle.capability(protocol)
        if found is None:
            raise Unsupported(f"runtime {handle.name} cannot {what}")
        return handle, found

    async def wait(self, worker: PodWorker, is_done: Callable[[], bool], seconds: float) -> bool:
        """Wait until `is_done()` returns True.

        Returns False if `seconds` pass before that. Raises Conflict when the pod ends.
        """
        clock = self.services.clock
        news = asyncio.Event()
        stop = self.services.board.subscribe(lambda *_: news.set())
        ends = clock.monotonic() + seconds
        try:
            while not is_done():
                if worker.is_done or worker.desired.is_going:
                    raise Conflict(f"machine {worker.desired.ref} is ending")
                if clock.monotonic() >= ends:
                    return False
                news.clear()
                cancel = clock.call_at(min(ends, clock.monotonic() + LOOK_SECONDS), news.set)
                try:
                    await news.wait()
                finally:
                    cancel()
        finally:
            stop()
        return True

    def tell(self, worker: PodWorker, reason: str, message: str, *, type: str = "Normal") -> None:
        """Record a Kubernetes event on the worker's pod."""
        pod = worker.desired.pod
        ref = ObjectRef(kind="Pod", name=pod.name, namespace=pod.namespace, uid=str(pod.uid))
        self.services.events.record(ref, type=type, reason=reason, message=message)
