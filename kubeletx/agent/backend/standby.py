"""Commands on standby (``kubeletx pod standby`` and ``activate``) for the admin socket.

The request is stored in the pod's overrides, and the pod's worker carries it out: containers by the plan of
`pods.workloads.standby`, machines by the plan of `pods.workloads.machine`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from kubeletx.api import Conflict, NotFound, SupportsStandby, TimedOut, UnitState, Unsupported
from kubeletx.kube.types.core import PodStatus
from kubeletx.pods import FINAL, ActionFailure, PodExecutor, PodWorker
from kubeletx.pods.workloads.machine.facts import machine_of_facts
from kubeletx.pods.workloads.power import Power
from kubeletx.pods.workloads.standby.facts import find_standby, memory_of, standby_of
from kubeletx.pods.workloads.standby.results import StandbyAsked
from kubeletx.pods.workloads.table import workload_of
from kubeletx.server.views import PodTarget, StandbyView

from .waiting import PowerRequest, require_seen, wait_for_worker

_WANTED = {"standby": Power.STANDBY, "hibernate": Power.HIBERNATED, "activate": Power.RUNNING}


class StandbyBackend:
    """Carries out the commands on standby of the admin socket. Implements `StandbyVerbs`."""

    def __init__(self, services: PodExecutor, worker_of: Callable[[PodTarget], PodWorker]) -> None:
        """`worker_of`: returns the worker of the pod that a target names; raises NotFound or Conflict."""
        self._services = services
        self._worker_of = worker_of

    async def set_standby(self, target: PodTarget, verb: str, timeout_seconds: float) -> StandbyView:
        wanted = _WANTED.get(verb)
        if wanted is None:
            raise NotFound(f"no verb {verb!r}; verbs: {', '.join(_WANTED)}")
        worker = self._worker_of(target)
        ends = self._services.clock.monotonic() + timeout_seconds
        await self._wait_bound(worker, timeout_seconds)
        self._check(worker)
        await self._services.overrides.ensure_read(worker)
        workload, desired = workload_of(worker.facts), worker.desired
        if workload.is_wanted_off(desired, worker.facts):
            raise Conflict(f"cannot {verb} machine {target.ref}: it is off; use 'kubeletx vm start' first")
        request = PowerRequest(self._services, worker, wanted, f"{verb} pod {target.ref}", what="pod")
        await request.store(workload.initial_power(desired))
        # Not before `store`: the worker would repeat a call of the old request, whose failure would end this one.
        worker.apply(StandbyAsked())
        await self._wait(worker, request, timeout_seconds, ends)
        return self._view(worker)

    async def _wait_bound(self, worker: PodWorker, seconds: float) -> None:
        """Wait until the pod is assigned to a runtime; raise TimedOut with the reason if it is not after `seconds`."""

        def is_bound() -> bool:
            self._check_alive(worker)
            facts = worker.facts
            # The request is stored in the pod's directory, which is made with the first preparation of volumes.
            has_directory = facts.recovered or facts.volumes.ready or facts.volumes.failure is not None
            return facts.runtime is not None and has_directory

        if not await wait_for_worker(self._services, worker, is_bound, seconds, what="pod"):
            status = self._services.board.statuses.get(worker.uid)
            why = f": {status.message or status.reason}" if status is not None and status.reason else ""
            raise TimedOut(
                f"pod {worker.desired.ref} is not bound to a runtime after {seconds:g}s{why}; nothing was requested"
            )

    def _check_alive(self, worker: PodWorker) -> None:
        """Raise Conflict if the pod is being deleted or has ended."""
        status = self._services.board.statuses.get(worker.uid)
        if status is not None and status.phase in FINAL:
            raise Conflict(
                f"pod {worker.desired.ref} has ended (phase {status.phase}); create it again first"
            )
        if worker.desired.deletion is not None:
            raise Conflict(
                f"pod {worker.desired.ref} is being deleted, so that its standby no longer changes"
            )

    def _check(self, worker: PodWorker) -> None:
        """Raise Unavailable if the runtime does not answer, Unsupported if it cannot freeze the pod's units."""
        ref = worker.desired.ref
        require_seen(self._services, worker)
        handle = self._services.registry.get(str(worker.facts.runtime))
        if handle.capability(SupportsStandby) is None:
            what = "machines" if worker.facts.own.has_own_kernel else "containers"
            raise Unsupported(
                f"runtime {handle.name} of pod {ref} cannot freeze {what}; run the pod on a runtime with the "
                "capability standby, such as one of kubeletx-quark or kubeletx-libvirt (docs/standby.md)"
            )

    def _view(self, worker: PodWorker) -> StandbyView:
        known = standby_of(worker.facts)
        condition = find_standby(self._services.board.statuses.get(worker.uid))
        before, after = memory_of(known) or (None, None)
        return StandbyView(
            namespace=worker.desired.pod.namespace,
            name=worker.desired.pod.name,
            runtime=str(worker.facts.runtime),
            power=workload_of(worker.facts).wanted_power(worker.desired, worker.facts).value,
            containers=_states(worker),
            since=condition.last_transition_time if condition is not None else None,
            took_seconds=round(known.last.seconds, 6) if known.last is not None else None,
            memory_before_bytes=before,
            memory_after_bytes=after,
        )

    async def _wait(self, worker: PodWorker, request: PowerRequest, seconds: float, ends: float) -> None:
        """Wait until the pod has the requested state; raise as `set_standby` does.

        `seconds`: the command's timeout, for messages. `ends`: its monotonic end.
        """
        wanted = request.wanted
        refuse_failure = request.refusing(
            lambda: _failures(worker, wanted),
            lambda failed: "; it is tried again" if failed.retry_at is not None else "",
        )

        def is_there() -> bool:
            self._check_alive(worker)
            refuse_failure()
            workload = workload_of(worker.facts)
            if obstacle := workload.standby_obstacle(worker.desired, worker.facts):
                raise Conflict(f"cannot {request.doing}: {obstacle}")
            if wanted is not Power.RUNNING and not _states(worker):
                return False
            if worker.facts.is_in_doubt:
                return False
            return not (worker.is_unit_changing or workload.next_units(worker.desired, worker.facts, wanted))

        left = max(ends - self._services.clock.monotonic(), 0.0)
        if not await request.wait(is_there, left):
            raise TimedOut(self._late_text(worker, wanted, seconds))

    def _late_text(self, worker: PodWorker, wanted: Power, seconds: float) -> str:
        """Return the message that says why the pod does not have the state `wanted` after `seconds`."""
        ref, facts = worker.desired.ref, worker.facts
        if facts.outage is not None:
            return (
                f"pod {ref} is not known to be {wanted.value} after {seconds:g}s: {facts.outage.message}; the "
                "request stays in force, and is carried out once the runtime answers"
            )
        users = sum(power == Power.RUNNING.value for power in facts.asked.values())
        why = f"; {users} open streams or other users keep it awake" if users else ""
        waits = _waits(self._services.board.statuses.get(worker.uid))
        states = ", ".join((*waits, *(f"{name} is {state}" for name, state in _states(worker).items())))
        return (
            f"pod {ref} is not {wanted.value} after {seconds:g}s: {states or 'no container runs'}{why}; the "
            "request stays in force. Containers are frozen once all of them are started and ready"
        )


def _failures(worker: PodWorker, wanted: Power) -> dict[str, ActionFailure]:
    """Return the failed calls that can prevent the state `wanted`, by kind and container."""
    known, machines = standby_of(worker.facts), machine_of_facts(worker.facts).units
    rests = known.rest_failures if wanted is not Power.RUNNING else {}
    return {
        **{f"rest/{name}": failure for name, failure in rests.items()},
        **{f"thaw/{name}": failure for name, failure in known.thaw_failures.items()},
        **{
            f"power/{name}": machine.power_failure
            for name, machine in machines.items()
            if machine.power_failure
        },
    }


def _waits(status: PodStatus | None) -> Iterator[str]:
    """Yield a text for each container that waits, with the reason, such as ``web waits (ImagePullBackOff)``."""
    if status is None:
        return
    for container_status in (*status.init_container_statuses, *status.container_statuses):
        if container_status.state.waiting is not None and container_status.state.waiting.reason:
            yield f"{container_status.name} waits ({container_status.state.waiting.reason})"


def _states(worker: PodWorker) -> dict[str, str]:
    snapshot = worker.facts.snapshot
    units = snapshot.units if snapshot is not None else ()
    return {unit.name: unit.state.value for unit in units if unit.state is not UnitState.EXITED}
