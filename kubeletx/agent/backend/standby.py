"""Commands on standby (``kubeletx pod standby`` and ``activate``) for the admin socket.

The request is stored in the pod's overrides, and the pod's worker carries it out; see `pods.workloads.standby`.
"""

from __future__ import annotations

from collections.abc import Callable

from kubeletx.api import Conflict, NotFound, SupportsStandby, TimedOut, UnitState, Unsupported
from kubeletx.pods import FINAL, ActionFailure, PodExecutor, PodWorker
from kubeletx.pods.workloads.machine.facts import MachineFacts
from kubeletx.pods.workloads.overrides import with_power
from kubeletx.pods.workloads.power import Power
from kubeletx.pods.workloads.standby.facts import standby_of
from kubeletx.pods.workloads.standby.plan import initial_power, next_units, wanted_power
from kubeletx.server.standby.verbs import StandbyView
from kubeletx.server.views import PodTarget

from .seen import require_seen
from .waiting import wait_for_worker

_WANTED = {"standby": Power.STANDBY, "hibernate": Power.HIBERNATED, "activate": Power.RUNNING}


class StandbyBackend:
    """Carries out the commands on standby of the admin socket. Implements `StandbyVerbs`."""

    def __init__(self, services: PodExecutor, worker_of: Callable[[PodTarget], PodWorker]) -> None:
        """`worker_of`: returns the worker of the pod that a target names; raises NotFound or Conflict."""
        self._services = services
        self._worker_of = worker_of

    async def set_standby(self, target: PodTarget, verb: str, timeout_seconds: float) -> StandbyView:
        """Request a state of the pod, and wait until all its containers have it.

        `verb`: standby, hibernate or activate. Raises TimedOut after `timeout_seconds`, and Conflict if a container
        cannot be changed; in both cases the request is kept and tried again.
        """
        wanted = _WANTED.get(verb)
        if wanted is None:
            raise NotFound(f"no verb {verb!r}; verbs: {', '.join(_WANTED)}")
        worker = self._find(target)
        await self._services.overrides.ensure_read(worker)
        before = _failures(worker)
        initial = initial_power(worker.desired.pod).value
        await self._services.overrides.amend(
            worker, lambda overrides: with_power(overrides, wanted.value, initial, "")
        )
        await self._wait(worker, verb, wanted, before, timeout_seconds)
        return _view(worker)

    def _find(self, target: PodTarget) -> PodWorker:
        worker = self._worker_of(target)
        if worker.facts.of(MachineFacts) is not None:
            raise Unsupported(f"pod {target.ref} is a virtual machine; use 'kubeletx vm pause' and 'resume'")
        if worker.facts.runtime is None:
            raise Conflict(f"pod {target.ref} is not bound to a runtime yet")
        status = self._services.board.statuses.get(worker.uid)
        if worker.desired.is_ending or (status is not None and status.phase in FINAL):
            raise Conflict(f"pod {target.ref} is ending")
        require_seen(self._services, worker)
        handle = self._services.registry.get(worker.facts.runtime)
        if handle.capability(SupportsStandby) is None:
            raise Unsupported(
                f"runtime {handle.name} of pod {target.ref} cannot freeze containers; run the pod on a runtime with the "
                "capability standby, such as one of kubeletx-quark (docs/standby.md)"
            )
        return worker

    async def _wait(
        self,
        worker: PodWorker,
        verb: str,
        wanted: Power,
        before: dict[str, ActionFailure],
        seconds: float,
    ) -> None:
        ref = worker.desired.ref

        def is_there() -> bool:
            failed = next((one for name, one in _failures(worker).items() if before.get(name) != one), None)
            if failed is not None:
                raise Conflict(f"cannot {verb} pod {ref}: {failed.message}", reason=failed.reason)
            if wanted is not Power.RUNNING and not _states(worker):
                return False
            return not next_units(worker.desired, worker.facts, wanted)

        if not await wait_for_worker(self._services, worker, is_there, seconds, what="pod"):
            users = sum(power == Power.RUNNING.value for power in worker.facts.asked.values())
            why = f"; {users} open streams or other users keep it awake" if users else ""
            states = ", ".join(f"{name} is {state}" for name, state in _states(worker).items())
            raise TimedOut(
                f"pod {ref} is not {wanted.value} after {seconds:g}s: {states or 'no container runs'}{why}; it is "
                "still wanted. Containers are frozen once all of them are started and ready"
            )


def _failures(worker: PodWorker) -> dict[str, ActionFailure]:
    known = standby_of(worker.facts)
    return {
        **{f"rest/{name}": one for name, one in known.rest_failures.items()},
        **{f"thaw/{name}": one for name, one in known.thaw_failures.items()},
    }


def _states(worker: PodWorker) -> dict[str, str]:
    snapshot = worker.facts.snapshot
    units = snapshot.units if snapshot is not None else ()
    return {unit.name: unit.state.value for unit in units if unit.state is not UnitState.EXITED}


def _view(worker: PodWorker) -> StandbyView:
    return StandbyView(
        namespace=worker.desired.pod.namespace,
        name=worker.desired.pod.name,
        runtime=str(worker.facts.runtime),
        power=wanted_power(worker.desired, worker.facts).value,
        containers=_states(worker),
    )
