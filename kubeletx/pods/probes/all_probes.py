"""Probes of all pods of the node: one `ProbeSet` per pod that has probes, updated from the facts of its worker."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator

from kubeletx.api import (
    Clock,
    EventSink,
    KubeletxError,
    PodUid,
    RuntimeName,
    SupportsExec,
)
from kubeletx.api.counting import Metric, Samples, counter, histogram
from kubeletx.runtimes.registry import RuntimeRegistry

from ..model.draft import Goal
from ..model.facts import DesiredPod, PodFacts, ProbeFacts
from ..model.roles import init_units, pod_ref, regular_units
from .exec import ExecSync
from .outcome import ProbeOutcome
from .targets import has_probes, targets_of
from .worker import ProbeSet

ANSWER_SECONDS = 3.0


class RuntimeExecFinder:
    """Finds the exec capability of one pod's runtime, through the current connection to the runtime.

    `runtime`: the pod's runtime; None until the pod is assigned to one.
    """

    def __init__(self, registry: RuntimeRegistry, runtime: RuntimeName | None) -> None:
        self._registry = registry
        self.runtime = runtime

    def find(self) -> ExecSync | None:
        handle = self._registry.find(self.runtime) if self.runtime is not None else None
        if handle is None or not handle.state.reachable:
            return None
        capability: SupportsExec | None = handle.capability(SupportsExec)
        if capability is None:
            return None
        exec_sync = capability.exec_sync
        return lambda unit_id, command, seconds: handle.unlimited(
            "exec_sync", lambda: exec_sync(unit_id, command, seconds)
        )

    async def answers(self) -> bool:
        handle = self._registry.find(self.runtime) if self.runtime is not None else None
        if handle is None:
            return False
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                await handle.health()
        except (KubeletxError, TimeoutError):  # the runtime hangs, so the container is not to blame
            return False
        return True


_RESULTS = {
    ProbeOutcome.SUCCESS: "successful",
    ProbeOutcome.WARNING: "successful",
    ProbeOutcome.FAILURE: "failed",
}
"""Label of each probe result, as in the kubelet; any other result is labelled ``unknown``."""


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
                ref=pod_ref(pod),
                finder=finder,
                clock=self._clock,
                events=self._events,
                on_result=on_result,
            )
        self._finders[uid].runtime = facts.runtime
        probes.sync(targets_of(desired, facts, is_stopping=goal is not Goal.RUN))

    def metrics(self) -> Iterator[Metric]:
        """Yield the metrics of the attempts of all probes, of pods that still exist."""
        yield counter(
            "prober_probe_total",
            "Cumulative number of a liveness, readiness or startup probe for a container by result.",
            self._attempts,
            *("container", "namespace", "pod", "pod_uid", "probe_type", "result"),
        )
        yield histogram(
            "prober_probe_duration_seconds",
            "Duration in seconds for a probe response.",
            lambda: [
                ((container, probes.ref.namespace, probes.ref.name, probe), duration)
                for probes in self._sets.values()
                for (container, probe), duration in probes.durations.items()
            ],
            *("container", "namespace", "pod", "probe_type"),
        )

    def _attempts(self) -> Samples:
        counts: Counter[tuple[str, ...]] = Counter()
        for uid, probes in self._sets.items():
            ref = probes.ref
            for (container, kind, outcome), number in probes.counts.items():
                result = _RESULTS.get(outcome, "unknown")
                counts[container, ref.namespace, ref.name, uid, kind.value, result] += number
        return counts.items()

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
