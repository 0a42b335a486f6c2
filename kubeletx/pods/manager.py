"""The pod manager: one worker per pod UID, fed by the sources, and recovered after a restart.

    sources ─► PodSink ─► desired pods ─► workers ─► status board ─► reporters, admin, store
    bindings, records, runtimes' lists ─► recovery ─► workers

- There is one worker per UID. A new pod with the name of a pod that still exists waits until that pod is gone (W2 in
  docs/kubelet-parity.md).
- A source changes and removes its own pods only; `update` returns an `Outcome`.
- No pod is cleaned up before its own source is synced (DECISIONS 10 in docs/decisions/answers.md); other sources do
  not delay this. After the loss of the database, pods that no source delivers are shown as orphaned and left running
  until an operator deletes them (DECISIONS 8).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container, Iterator, Mapping

import structlog
from msgspec.structs import replace

from kubeletx.api import InvalidPod, NotFound, ObjectRef, PodUid, RuntimeEvent, RuntimeName
from kubeletx.api.names import CHOOSING, RUNTIME_MISMATCH, Event
from kubeletx.kube.manifests.hashes import pod_hash
from kubeletx.kube.types.core import Pod
from kubeletx.runtimes.binding.bindings import Binding
from kubeletx.runtimes.binding.selection import Chosen, WaitForRuntime
from kubeletx.runtimes.handles.handle import RuntimeHandle
from kubeletx.runtimes.handles.snapshots import PodSnapshot

from .counters import static_label
from .executor import PodExecutor
from .model.draft import PlannedEvent
from .model.facts import Deletion, DesiredPod, PodFacts
from .model.roles import all_units, pod_ref
from .model.sources import Accepted, Outcome, Refused, WaitsFor
from .plan.progress import has_ended
from .recovery import FOUND_WITHOUT_HISTORY, RecoveredPod, find_again, orphan_pod
from .specs.labels import grace_seconds as own_grace_seconds
from .worker import PodWorker
from .workloads.power import Power
from .workloads.table import unused_by

log = structlog.get_logger(__name__)

FLUSH_SECONDS = 1.0
SOURCE_SECONDS = 30.0
"""Time that a recovered pod waits for its source to deliver it; until then nothing is started for the pod.

The time is limited because a source that is silent for longer, such as an API server in an outage, must not keep
crashed containers from being restarted.
"""


class PodManager:
    """Owns the worker of each pod.

    Implements `PodSink` for sources and `RuntimeListener` for runtimes, by synchronous and quick methods.
    """

    def __init__(self, executor: PodExecutor, *, has_lost_history: Callable[[], bool]) -> None:
        """`has_lost_history`: returns True if the state database was lost; pods that no source claims are then kept."""
        self._executor = executor
        self._has_lost_history = has_lost_history
        self.active = executor.active
        self._workers = executor.active.workers
        self._tasks: dict[PodUid, asyncio.Task[None]] = {}
        self._names: dict[tuple[str, str], PodUid] = {}
        self._queued: dict[tuple[str, str], dict[PodUid, DesiredPod]] = {}
        self._unclaimed: set[PodUid] = set()
        self._orphans: set[PodUid] = set()
        self._synced: set[str] = set()
        self._problems: dict[tuple[str, str], InvalidPod] = {}
        self._refusals: set[tuple[str, PodUid]] = set()
        """(source, UID) of refusals that are logged already."""
        self._problem_pods: dict[tuple[str, str], set[PodUid]] = {}
        self._group: asyncio.TaskGroup | None = None
        self._again: dict[PodUid, DesiredPod] = {}
        self._gone = asyncio.Event()
        self._synced_news = asyncio.Event()

    # --- views --------------------------------------------------------------------------------------

    @property
    def workers(self) -> Mapping[PodUid, PodWorker]:
        return self._workers

    @property
    def problems(self) -> Mapping[tuple[str, str], InvalidPod]:
        """The error of each invalid manifest, by (source, origin); origin is its file or URL."""
        return self._problems

    def queued(self) -> Iterator[DesiredPod]:
        """Yield the pods that wait for an older pod of the same name to end."""
        for pods in self._queued.values():
            yield from pods.values()

    def running(self) -> Iterator[Pod]:
        """Yield the pods that are assigned to a runtime and have not ended."""
        for worker in self._workers.values():
            if worker.facts.runtime is not None and not has_ended(worker.desired, worker.facts):
                yield worker.desired.pod

    def desired(self) -> Iterator[DesiredPod]:
        """Yield the desired state of every pod that has a worker, and of the pods in `queued`."""
        yield from (worker.desired for worker in self._workers.values())
        yield from self.queued()

    def find(self, namespace: str, name: str) -> PodWorker | None:
        """Return the worker of the pod that has this name now; None if there is none."""
        uid = self._names.get((namespace, name))
        return self._workers.get(uid) if uid is not None else None

    def images(self, runtimes: Container[RuntimeName]) -> Iterator[str]:
        """Yield the image references that pods need in the image store of `runtimes`, even while no container runs.

        A pod that is not assigned to a runtime yet counts for the runtime that it would get now; if there is none, for
        every store.
        """
        bound = [(worker.desired.pod, worker.facts.runtime) for worker in self._workers.values()]
        for pod, runtime in (*bound, *((queued.pod, None) for queued in self.queued())):
            expected = runtime or self._expected_runtime(pod)
            if expected is not None and expected not in runtimes:
                continue
            yield from (unit.image for unit in all_units(pod) if unit.image)
            for volume in pod.spec.volumes:
                if volume.image is not None and volume.image.reference:
                    yield volume.image.reference

    def _expected_runtime(self, pod: Pod) -> RuntimeName | None:
        choice = self._executor.registry.choose(pod)
        name = choice.runtime if isinstance(choice, Chosen | WaitForRuntime) else None
        return name if name is not None and self._executor.registry.find(name) is not None else None

    def is_orphan(self, uid: PodUid) -> bool:
        """Return True if the pod was found on a runtime or in the database and no source has delivered it since."""
        return uid in self._unclaimed

    def is_bound(self, uid: PodUid) -> bool:
        """Return True if the pod is assigned to a runtime."""
        worker = self._workers.get(uid)
        return worker is not None and worker.facts.runtime is not None

    def has_unclaimed(self, source: str) -> bool:
        """Return True if there are recovered pods of this source that it has not delivered since the agent started."""
        workers = (self._workers.get(uid) for uid in self._unclaimed)
        return any(worker is not None and worker.desired.source == source for worker in workers)

    @property
    def synced_sources(self) -> frozenset[str]:
        """Names of the sources that have delivered their first complete set of pods."""
        return frozenset(self._synced)

    # --- PodSink ------------------------------------------------------------------------------------

    def update(self, source: str, pod: Pod) -> Outcome:
        """Add or change a pod, see `PodSink.update`. A change keeps the pod's creation time."""
        worker = self._workers.get(pod.uid)
        if worker is not None and not self._may_have(source, worker):
            return self._refused(source, pod, worker)
        if worker is not None and not worker.desired.is_ending:
            pod = _created(pod, worker.desired.pod)
        desired = DesiredPod(
            uid=pod.uid,
            pod=pod,
            source=source,
            spec_hash=pod_hash(pod),
            source_traits=self._executor.sources.of(source),
        )
        was_unclaimed = desired.uid in self._unclaimed
        self._unclaimed.discard(desired.uid)
        self._orphans.discard(desired.uid)
        if worker is not None:
            if worker.desired.is_ending:
                self._again[desired.uid] = (
                    desired  # a pod that is ending is not revived; it starts again later
                )
            elif (
                was_unclaimed
                or desired.spec_hash != worker.desired.spec_hash
                or desired.pod.status != worker.desired.pod.status  # set by others, such as readiness gates
                or pod.metadata.generation
                != worker.desired.pod.metadata.generation  # a deletion counts as one
                or worker.desired.problem
            ):
                self._executor.records.note_pod(desired.uid, source, pod)
                self._executor.claimed(worker.facts, desired)
                self._tell_of_ignored(worker, pod)
                worker.set_desired(desired)
            return Accepted()
        key = (pod.namespace, pod.name)
        if key in self._names:
            return self._wait_for_name(key, desired)
        self._executor.records.note_pod(desired.uid, source, pod)
        self._executor.first_seen(desired)
        self._begin(desired, self._executor.fresh_facts(desired), is_new=True)
        return Accepted()

    def _may_have(self, source: str, worker: PodWorker) -> bool:
        """Return True if the source may change this pod: the pod is its own, or a recovered one that is unclaimed."""
        return worker.desired.source == source or worker.uid in self._unclaimed

    def _refused(self, source: str, pod: Pod, worker: PodWorker) -> Refused:
        refused = Refused(f"pod {worker.desired.ref} of source {worker.desired.source!r} has UID {pod.uid}")
        reported = (source, pod.uid)
        if reported not in self._refusals:
            self._refusals.add(reported)
            log.warning(
                "Refused a pod of another source",
                pod=pod.ref,
                pod_uid=pod.uid,
                source=source,
                err=refused.message,
            )
        return refused

    def _wait_for_name(self, key: tuple[str, str], desired: DesiredPod) -> WaitsFor:
        """Queue the pod until the existing pod of the same name is gone.

        If that pod is of another source, an event about the queued pod is recorded once.
        """
        first = self._workers[self._names[key]]
        waits = WaitsFor(first.desired.ref, first.uid, first.desired.source)
        queued = self._queued.setdefault(key, {})
        is_news = desired.uid not in queued
        queued[desired.uid] = desired
        if is_news and not self._may_have(desired.source, first):
            log.warning(
                "Pod waits for one of another source",
                pod=desired.ref,
                pod_uid=desired.uid,
                source=desired.source,
                err=waits.message,
            )
            notice = PlannedEvent(reason=Event.NAME_TAKEN, message=f"Pod {waits.message}")
            self._executor.notify(desired, notice)
        self._supersede(first.uid, desired.source)
        return waits

    def _tell_of_ignored(self, worker: PodWorker, pod: Pod) -> None:
        """Record an event if an annotation that names the runtime changed: the pod stays on its runtime.

        Nothing is recorded for a pod that was recovered without its spec, since its earlier annotations are unknown.
        Source: DECISIONS 4, 5 in docs/decisions/answers.md.
        """
        runtime, before = worker.facts.runtime, worker.desired.pod.metadata.annotations
        after = pod.metadata.annotations
        changed = [key for key in CHOOSING if before.get(key) != after.get(key)]
        if runtime is None or not all_units(worker.desired.pod) or not changed:
            return
        message = (
            f"{', '.join(changed)} changed, but the pod stays on runtime {runtime}; make a new pod to move it"
        )
        notice = PlannedEvent(reason=RUNTIME_MISMATCH, message=message)
        self._executor.notify(worker.desired, notice)

    def remove(self, source: str, uid: PodUid, grace_seconds: int | None = None, force: bool = False) -> None:
        for key, queued in list(self._queued.items()):
            if uid in queued and queued[uid].source == source:
                del queued[uid]
                if not queued:
                    del self._queued[key]
        if uid in self._again and self._again[uid].source == source:
            del self._again[uid]
        worker = self._workers.get(uid)
        if worker is not None and worker.desired.source == source:
            self._delete(worker, grace_seconds, force=force)

    def objects_changed(self, uid: PodUid) -> None:
        """Write the pod's volumes again: an object that it refers to has changed. Does nothing if the pod is gone."""
        if (worker := self._workers.get(uid)) is not None:
            worker.objects_changed()

    def ask_power(self, uid: PodUid, power: Power | None, owner: str) -> None:
        """Request a power state of a pod in memory: the call by which other parts of the agent freeze and wake pods.

        Nothing is written to the disk before the runtime's call. Returns at once; the pod's worker plans the calls, and
        a request during a freeze or thaw counts from its end, so that a pod that any owner needs running ends awake.
        `power`: RUNNING, STANDBY or HIBERNATED; None withdraws the request of this owner. `owner`: name of the
        requester, such as ``sessions``; a second request of an owner replaces its first. Requests end with this process.
        Raises NotFound if the pod is not on this node.
        """
        worker = self._workers.get(uid)
        if worker is None:
            raise NotFound(f"pod {uid} is not on this node")
        worker.ask_power(power, owner)

    def synced(self, source: str) -> None:
        """See `PodSink.synced`: stop recovered pods of this source that are not in its first complete set.

        After a loss of the database they are kept, unless the source has `SourceTraits.reclaims_after_loss`.
        """
        if source in self._synced:
            return
        self._synced.add(source)
        self._synced_news.set()
        self._synced_news = asyncio.Event()
        # A copy: `_stop_unclaimed` removes from the set.
        for uid in list(self._unclaimed):
            worker = self._workers.get(uid)
            if worker is None or worker.desired.source != source:
                continue
            is_kept = not worker.desired.traits.reclaims_after_loss
            if is_kept and (self._has_lost_history() or uid in self._orphans):
                log.warning("Kept a pod that no source claims", pod=worker.desired.ref, pod_uid=uid)
                continue
            self._stop_unclaimed(worker)

    def invalid(self, source: str, origin: str, error: InvalidPod, uid: PodUid | None = None) -> None:
        """See `PodSink.invalid`: store a manifest's error; log it and record an event if its text is new."""
        key = (source, origin)
        is_news = str(self._problems.get(key, "")) != str(error)
        self._problems[key] = error
        if is_news:
            log.warning("Refused manifest", source=source, origin=origin, err=str(error))
        worker = self._workers.get(uid) if uid is not None else None
        if worker is None:
            ref = ObjectRef(kind="Node", name=self._executor.node_name, uid=self._executor.node_name)
        else:
            ref = pod_ref(worker.desired.pod)
            self._problem_pods.setdefault(key, set()).add(worker.uid)
            is_news = worker.desired.problem != str(error)
            worker.set_desired(replace(worker.desired, problem=str(error)))
        if is_news:
            self._executor.events.record(
                ref, type="Warning", reason=Event.FAILED_VALIDATION, message=str(error)
            )

    def valid(self, source: str, origin: str) -> None:
        if self._problems.pop((source, origin), None) is None:
            return
        for uid in self._problem_pods.pop((source, origin), ()):
            worker = self._workers.get(uid)
            if worker is not None and worker.desired.problem:
                worker.set_desired(replace(worker.desired, problem=""))

    # --- the runtimes' listener ---------------------------------------------------------------------

    def runtime_changed(self, name: str) -> None:
        """Plan again the pods on this runtime and pods without a runtime; make workers for other pods on it.

        Called when the runtime's readiness, cordon or existence changed.
        """
        self._executor.runtime_changed(name)
        for worker in self._workers.values():
            if worker.facts.runtime == name or worker.facts.runtime is None:
                worker.runtime_changed()
        self.adopt(name)

    def classes_changed(self) -> None:
        """Choose a runtime again for pods that have none. Called when the cluster's RuntimeClasses changed."""
        for worker in self._workers.values():
            if worker.facts.runtime is None:
                worker.runtime_changed()

    def pod_changed(self, name: str, uid: PodUid, event: RuntimeEvent | None) -> None:
        """Pass an event of the runtime `name` about this pod to the pod's worker.

        `event` None: the runtime's snapshot of the pod changed. A pod that has neither a worker nor a binding then gets
        a worker.
        """
        worker = self._workers.get(uid)
        if worker is not None:
            worker.look_again(event) if event is not None else worker.refresh()
        elif event is None:
            orphan = self._executor.registry.find_orphan(name, uid)
            if orphan is not None:
                self._adopt(uid, *orphan)

    # --- life ---------------------------------------------------------------------------------------

    async def run(self, *, ready: asyncio.Event | None = None) -> None:
        """Run all workers until cancelled; pods are left running. `ready`: set once recovered pods' workers run."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            for uid, worker in self._workers.items():
                self._launch(uid, worker)
            if ready is not None:
                ready.set()
            try:
                await self._flush_records()
            finally:
                self._executor.records.flush()
                for task in self._tasks.values():
                    task.cancel()

    async def recover(self) -> int:
        """Make a worker for every pod that a stored binding assigns to a runtime; return their number."""
        records = await self._executor.records.load()
        recovered = find_again(self._executor.registry, records, self._executor.sources)
        for pod in recovered:
            self._resume(pod)
        return len(recovered)

    def adopt(self, name: str) -> None:
        """Make a worker and a binding for each pod that the runtime lists and that has neither."""
        for uid, (handle, snapshot) in self._executor.registry.orphans().items():
            if uid not in self._workers and handle.name == name:
                self._adopt(uid, handle, snapshot)

    def _adopt(self, uid: PodUid, handle: RuntimeHandle, snapshot: PodSnapshot) -> None:
        desired = orphan_pod(uid, snapshot)
        if desired is None:
            return
        binding = Binding(
            uid=uid,
            runtime=handle.name,
            kind=handle.kind,
            namespace=desired.pod.namespace,
            name=desired.pod.name,
            source=desired.source,
            bound_at=self._executor.clock.now(),
            why=FOUND_WITHOUT_HISTORY if self._has_lost_history() else "found again on its runtime",
        )
        self._executor.registry.restore(binding)
        log.warning("Found a pod without a binding", pod=desired.ref, pod_uid=uid, runtime=handle.name)
        self._executor.counters.orphaned_runtime_pods += 1
        self._resume(RecoveredPod(desired=desired, runtime=handle.name, binding=binding))

    def _resume(self, recovered: RecoveredPod) -> None:
        held_until = self._executor.clock.monotonic() + SOURCE_SECONDS
        traits = self._executor.sources.of(recovered.desired.source)
        desired = replace(recovered.desired, held_until=held_until, source_traits=traits)
        self._unclaimed.add(desired.uid)
        if recovered.is_without_history:
            self._orphans.add(desired.uid)
        handle = self._executor.registry.find(recovered.runtime)
        self._executor.admission.restore(
            desired.pod, handle.traits if handle is not None else None, desired.traits
        )
        self._executor.admission.count_standby(desired.uid, unused_by(recovered.status))
        self._begin(desired, self._executor.recovered_facts(recovered))
        if desired.source in self._synced and (
            traits.reclaims_after_loss or not recovered.is_without_history
        ):
            self._stop_unclaimed(self._workers[desired.uid])

    def _stop_unclaimed(self, worker: PodWorker) -> None:
        """End a recovered pod that its source, now synced, does not have."""
        source = worker.desired.source
        self._unclaimed.discard(worker.uid)
        log.info("Stopping a pod that its source no longer has", pod=worker.desired.ref, source=source)
        message = f"Stopping pod on runtime {worker.facts.runtime}: source {source!r} does not have it"
        self._executor.notify(
            worker.desired, PlannedEvent(reason=Event.KILLING, message=message, type="Normal")
        )
        self._delete(worker, None)

    def _supersede(self, uid: PodUid, source: str) -> None:
        """End a recovered, unclaimed pod because its own source delivers another pod of the same name."""
        worker = self._workers[uid]
        if uid in self._unclaimed and worker.desired.source == source:
            self._unclaimed.discard(uid)
            self._orphans.discard(uid)
            log.info("Stopping a pod that its source has replaced", pod=worker.desired.ref, source=source)
            self._delete(worker, None)

    def _begin(self, desired: DesiredPod, facts: PodFacts, *, is_new: bool = False) -> None:
        seconds = self._executor.exit_seconds
        worker = PodWorker(desired, self._executor, facts, exit_seconds=seconds, is_new=is_new)
        self._workers[desired.uid] = worker
        self._names[(desired.pod.namespace, desired.pod.name)] = desired.uid
        if self._group is not None:
            self._launch(desired.uid, worker)

    def _launch(self, uid: PodUid, worker: PodWorker) -> None:
        assert self._group is not None
        self._tasks[uid] = self._group.create_task(self._live(worker), name=f"pod {worker.desired.ref}")

    async def _live(self, worker: PodWorker) -> None:
        """Run one worker to its end; a bug in it ends neither other workers nor the agent."""
        structlog.contextvars.bind_contextvars(pod_uid=worker.uid)
        while not worker.is_done:
            try:
                await worker.run()
            except asyncio.CancelledError:
                raise
            except Exception:
                log.exception("Pod worker failed with a bug; restarting it", pod=worker.desired.ref)
                # A bug that is met in every round would otherwise fill the log and keep the processor busy.
                await self._executor.clock.sleep(10)
        try:
            self._end(worker)
        except Exception:
            log.exception("Ending a pod failed with a bug", pod=worker.desired.ref)

    def _end(self, worker: PodWorker) -> None:
        uid, pod = worker.uid, worker.desired.pod
        key = (pod.namespace, pod.name)
        self._workers.pop(uid, None)
        self._tasks.pop(uid, None)
        self._unclaimed.discard(uid)
        self._orphans.discard(uid)
        if self._names.get(key) == uid:
            del self._names[key]
        self._executor.forget(worker)
        log.info("Removed pod", pod=worker.desired.ref, pod_uid=uid)
        self._gone.set()
        self._gone = asyncio.Event()
        waiting = self._queued.pop(key, {})
        again = self._again.pop(uid, None)
        if again is not None:
            self.update(again.source, again.pod)
        for desired in waiting.values():
            if desired.source == worker.desired.source:
                self._executor.counters.restarted_pods[static_label(desired.traits)] += 1
            self.update(desired.source, desired.pod)

    def _delete(self, worker: PodWorker, grace_seconds: int | None, *, force: bool = False) -> None:
        grace = own_grace_seconds(worker.desired.pod) if grace_seconds is None else grace_seconds
        now = self._executor.now().mono
        worker.delete(Deletion(requested_at=now, grace_seconds=grace, force=force))

    def _is_wanted(self, worker: PodWorker) -> bool:
        """Return True if a source claims the pod and it has not ended."""
        is_claimed = worker.uid not in self._unclaimed and worker.desired.deletion is None
        return is_claimed and not has_ended(worker.desired, worker.facts)

    async def _flush_records(self) -> None:
        while True:
            await self._executor.records.wait_dirty()
            await self._executor.clock.sleep(FLUSH_SECONDS)
            self._executor.records.flush()

    def end_on(self, runtime: str, *, force: bool = False) -> dict[PodUid, str]:
        """Delete every pod on the runtime; return their namespace/name by UID.

        `force`: do not wait for the runtime. Pods that their source still has are created again: pods that name the
        runtime wait for it, others are assigned to a runtime again. Pods that have ended, are being deleted, or are
        claimed by no source are not created again.
        """
        ended = {}
        for uid, worker in list(self._workers.items()):
            if worker.facts.runtime != runtime:
                continue
            ended[uid] = worker.desired.ref
            if self._is_wanted(worker):
                self._again[uid] = worker.desired
            self._delete(worker, 0 if force else None, force=force)
        return ended

    async def wait_change(self) -> None:
        """Wait until some pod is gone from the node."""
        await self._gone.wait()

    async def wait_synced(self) -> None:
        """Wait until one more source has delivered its first complete set of pods."""
        await self._synced_news.wait()


def _created(pod: Pod, before: Pod) -> Pod:
    """Return the pod with the creation time of `before`, if known: a source that reads files has no creation times."""
    created = before.metadata.creation_timestamp
    if created is None or created == pod.metadata.creation_timestamp:
        return pod
    return replace(pod, metadata=replace(pod.metadata, creation_timestamp=created))
