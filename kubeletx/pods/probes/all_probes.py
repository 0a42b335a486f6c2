"""Probes of all pods of the node: one `ProbeSet` per pod that has probes, updated from the facts of its worker."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from kubeletx.api import (
    Clock,
    EventSink,
    ExecResult,
    KubeletxError,
    ObjectRef,
    PodUid,
    RuntimeName,
    Session,
    StreamRequest,
    StreamUrl,
    SupportsExec,
    UnitId,
)
from kubeletx.api.counting import LabelledDurations
from kubeletx.runtimes.handles.handle import RuntimeHandle
from kubeletx.runtimes.registry import RuntimeRegistry

from ..model.draft import Goal
from ..model.facts import DesiredPod, PodFacts, ProbeFacts
from ..model.roles import init_units, regular_units
from . import ProbeSet, targets_of
from .outcome import ProbeKind, ProbeOutcome
from .targets import has_probes

ANSWER_SECONDS = 3.0


class GuardedExec:
    """The exec capability of a runtime, whose calls raise only KubeletxError and CancelledError."""

    def __init__(self, handle: RuntimeHandle, found: SupportsExec) -> None:
        self._handle = handle
        self._found = found

    async def exec_sync(self, unit_id: UnitId, command: Sequence[str], timeout_seconds: float) -> ExecResult:
        """Run a command in the unit until it exits, and return its output and exit code."""
        found = self._found
        return await self._handle.unlimited(
            "exec_sync", lambda: found.exec_sync(unit_id, command, timeout_seconds)
        )

    async def exec(self, unit_id: UnitId, request: StreamRequest) -> StreamUrl | Session:
        """Prepare a command with streams for its input and output."""
        return await self._handle.unlimited("exec", lambda: self._found.exec(unit_id, request))


class RuntimeExecFinder:
    """Finds the exec capability of one pod's runtime, through the current connection to the runtime.

    `runtime`: the pod's runtime; None until the pod is assigned to one.
    """

    def __init__(self, registry: RuntimeRegistry, runtime: RuntimeName | None) -> None:
        self._registry = registry
        self.runtime = runtime

    def find(self) -> SupportsExec | None:
        """Return the exec capability of the pod's runtime.

        None if the pod has no runtime yet, or if its runtime does not support exec or does not answer.
        """
        handle = self._registry.find(self.runtime) if self.runtime is not None else None
        if handle is None or not handle.state.reachable:
            return None
        found: SupportsExec | None = handle.capability(SupportsExec)
        return GuardedExec(handle, found) if found is not None else None

    async def answers(self) -> bool:
        """Return True if the runtime answers a health check within `ANSWER_SECONDS`."""
        handle = self._registry.find(self.runtime) if self.runtime is not None else None
        if handle is None:
            return False
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                await handle.health()
        except (KubeletxError, TimeoutError):  # the runtime hangs, so the container is not to blame
            return False
        return True


class UnitProbes:
    """Starts and stops the probes of all pods on the node as the pods change."""

    def __init__(self, registry: RuntimeRegistry, clock: Clock, events: EventSink) -> None:
        self._registry, self._clock, self._events = registry, clock, events
        self._sets: dict[PodUid, ProbeSet] = {}
        self._finders: dict[PodUid, RuntimeExecFinder] = {}
        self._closing: set[asyncio.Task[None]] = set()

    def sync(
        self, desired: DesiredPod, facts: PodFacts, goal: Goal, on_result: Callable[[str, ProbeFacts], None]
    ) -> None:
        """Start and stop the pod's probes so that they match `facts`; do nothing for a pod without probes.

        `goal`: the plan's goal; if it is not RUN, only readiness is probed. `on_result`: called with a container's name
        and its probe values when a value changes. The function of the first call for a pod is used for all later calls.
        """
        uid, pod = desired.uid, desired.pod
        probes = self._sets.get(uid)
        if probes is None:
            if not any(has_probes(c) for c in (*init_units(pod), *regular_units(pod))):
                return
            finder = self._finders[uid] = RuntimeExecFinder(self._registry, facts.runtime)
            probes = self._sets[uid] = ProbeSet(
                ref=ObjectRef(kind="Pod", name=pod.name, namespace=pod.namespace, uid=str(uid)),
                finder=finder,
                clock=self._clock,
                events=self._events,
                on_result=on_result,
            )
        self._finders[uid].runtime = facts.runtime
        probes.sync(targets_of(desired, facts, is_stopping=goal is not Goal.RUN))

    def counts(self) -> Mapping[PodUid, Counter[tuple[str, ProbeKind, ProbeOutcome]]]:
        """Return the number of probe attempts by container, kind and outcome, for each pod with probes by UID."""
        return {uid: probes.counts for uid, probes in self._sets.items()}

    def durations(self) -> Mapping[PodUid, LabelledDurations]:
        """Return the durations of probe attempts by container and kind of probe, for each pod with probes by UID."""
        return {uid: probes.durations for uid, probes in self._sets.items()}

    def drop(self, uid: PodUid) -> None:
        """Forget the pod's probes and end their tasks in the background."""
        probes = self._sets.pop(uid, None)
        if probes is not None:
            del self._finders[uid]
            task = asyncio.create_task(probes.close(), name=f"probes end {uid}")
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """End the probes of all pods and wait until their tasks have ended."""
        for uid in list(self._sets):
            await self._sets.pop(uid).close()
        await asyncio.gather(*self._closing, return_exceptions=True)


def pod_ip(facts: PodFacts) -> str:
    """Return the pod's first IP address, for network probes and hooks; empty if it has none.

    Before the runtime's status of the sandbox is known, the address in the previous pod status is used.
    """
    status = facts.snapshot.sandbox_status if facts.snapshot is not None else None
    if status is not None:
        return status.ips[0] if status.ips else ""
    previous = facts.previous_status
    return previous.pod_ip or "" if previous is not None else ""
