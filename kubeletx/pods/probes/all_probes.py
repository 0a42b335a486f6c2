"""Probes of all pods of the node: one `ProbeSet` per pod that has probes, updated from the facts of its worker."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping

from kubeletx.api import Clock, EventSink, KubeletxError, ObjectRef, PodUid, RuntimeName, SupportsExec
from kubeletx.api.counting import LabelledDurations
from kubeletx.runtimes.registry import RuntimeRegistry

from ..model.draft import Goal
from ..model.facts import DesiredPod, PodFacts, ProbeFacts
from ..model.roles import init_units, regular_units
from . import ProbeSet, targets_of
from .outcome import ProbeKind, ProbeOutcome
from .targets import has_probes

ANSWER_SECONDS = 3.0


class RuntimeExecFinder:
    """Runs commands in the containers of one pod, through the current connection to its runtime.

    `runtime`: the pod's runtime; None until the pod is bound to one.
    """

    def __init__(self, registry: RuntimeRegistry, runtime: RuntimeName | None) -> None:
        self._registry = registry
        self.runtime = runtime

    def find(self) -> SupportsExec | None:
        """The runtime's exec capability; None if the pod is not bound, or the runtime lacks exec or does not answer."""
        handle = self._registry.find(self.runtime) if self.runtime is not None else None
        if handle is None or not handle.state.reachable:
            return None
        found: SupportsExec | None = handle.capability(SupportsExec)
        return found

    async def answers(self) -> bool:
        """Return True if the runtime answers now."""
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
    """Owner of all probes of the node: starts and stops them as pods change."""

    def __init__(self, registry: RuntimeRegistry, clock: Clock, events: EventSink) -> None:
        self._registry, self._clock, self._events = registry, clock, events
        self._sets: dict[PodUid, ProbeSet] = {}
        self._finders: dict[PodUid, RuntimeExecFinder] = {}
        self._closing: set[asyncio.Task[None]] = set()

    def sync(
        self, desired: DesiredPod, facts: PodFacts, goal: Goal, on_result: Callable[[str, ProbeFacts], None]
    ) -> None:
        """Start and stop the pod's probes so that they match `facts`; does nothing for a pod without probes.

        `on_result`: gets a container's name and its probe values when one of them changes. The function given in the
        pod's first call is used for all later ones.
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
        """Number of answers of each pod with probes, by container, kind of probe and outcome."""
        return {uid: probes.counts for uid, probes in self._sets.items()}

    def durations(self) -> Mapping[PodUid, LabelledDurations]:
        """Durations of the probe attempts of each pod with probes, by container and kind of probe."""
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
        """End all probes of all pods; returns when their tasks have ended."""
        for uid in list(self._sets):
            await self._sets.pop(uid).close()
        await asyncio.gather(*self._closing, return_exceptions=True)


def pod_ip(facts: PodFacts) -> str:
    """The pod's first address, which network probes and hooks connect to; empty if it has none.

    Taken from the previous status while the runtime has not shown the pod's sandbox.
    """
    status = facts.snapshot.sandbox_status if facts.snapshot is not None else None
    if status is not None:
        return status.ips[0] if status.ips else ""
    previous = facts.previous_status
    return previous.pod_ip or "" if previous is not None else ""
