"""`CorePods`: the pods of cores on this node: their rows, actors, host ports, config maps and secrets.

PodCreate ─► create ─► PodActor ─► pod manager, database
rows ─► load ─► recovered: PodActor.begin ─► pod manager      before the first plan of recovered pods
             ─► run: comparison with the runtimes ─► `ready` ─► tasks of the actors
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

import structlog
from msgspec.structs import replace

from kubeletx.api import Conflict, InvalidPod, KubeletxError, PodUid, Unavailable, names
from kubeletx.api.waiting import first_of
from kubeletx.kube.types.core import Pod, PodStatus
from kubeletx.pods import DesiredPod, PodFacts, regular_units
from kubeletx.pods.model.sources import FORNAX

from ..mailbox import OnChange
from ..stubs import fornaxcore_pb2 as pb
from ..stubs import k8s_core_v1_pb2 as core
from .actor import CoreServices, PodActor
from .ended import EndedPod, Recent, refused_pod
from .machine import ENDING, NEW, PodState
from .objects import CoreObjects, check_objects, objects_of
from .ports import HostPorts
from .prepare import assign_ports, host_ports, pod_id_of, prepared, uid_of, unassigned_ports
from .records import PodRow
from .source import is_here

log = structlog.get_logger(__name__)

RETRY_SECONDS: Final = 5.0
COMPARE_SECONDS: Final = 10.0
"""Longest wait, at the start, for the states of stored pods on their runtimes."""


class CorePods:
    """The pods of cores by identifier and by UID.

    `ready`: set once the stored pods are loaded and compared with the runtimes; before this no list is complete.
    `objects`: config maps and secrets of the pods. `ended`: pods that are gone or were refused.
    `cluster_domain`: DNS domain for later pods; empty: none.
    """

    def __init__(self, services: CoreServices, *, changed: OnChange) -> None:
        """`changed`: called with the identifier of a pod that a core must see again."""
        self.ready = asyncio.Event()
        self.objects = CoreObjects()
        self.ended: Recent[EndedPod] = Recent(services.clock)
        self.cluster_domain = ""
        self.services = services
        self._changed = changed
        self._ports = HostPorts(services.is_port_free)
        self._actors: dict[str, PodActor] = {}
        self._by_uid: dict[PodUid, PodActor] = {}
        self._successors: dict[str, core.Pod | None] = {}
        """Daemon pods that end because of a configuration: the pod to create when the pod is gone; None: none."""
        self._rows: list[PodRow] | None = None
        self._invalid: list[PodRow] = []
        self._group: asyncio.TaskGroup | None = None
        self._are_compared = False
        self._news = asyncio.Event()

    def __iter__(self) -> Iterator[PodActor]:
        """Yield the actors of the present pods; pods may be added and removed meanwhile."""
        return iter(tuple(self._actors.values()))

    def find(self, pod_id: str) -> PodActor | None:
        """Return the actor of the pod; None if the node has no such pod."""
        return self._actors.get(pod_id)

    def of_uid(self, uid: PodUid) -> PodActor | None:
        """Return the actor of the pod; None if the node has no such pod."""
        return self._by_uid.get(uid)

    # --- new pods -----------------------------------------------------------------------------------

    def create(self, create: pb.PodCreate, *, is_daemon: bool = False) -> None:
        """Make a new pod; a pod that cannot run is reported as failed."""
        try:
            self._create(create, is_daemon=is_daemon)
        except KubeletxError as error:
            self.refuse(create, error)

    def refuse(self, create: pb.PodCreate, error: KubeletxError) -> None:
        """Report a pod as failed."""
        pod_id, refused = create.podIdentifier, refused_pod(create, error, self.services.node)
        before = self.ended.find(pod_id)
        if before is None or before.view != refused.view:
            log.warning("Refused a pod of a core", pod=pod_id, err=refused.view.message)
        self.ended.put(pod_id, refused)
        self._changed(pod_id)

    def _create(self, create: pb.PodCreate, *, is_daemon: bool) -> None:
        """Make a new pod, or raise an error and change nothing.

        Raises InvalidPod, Conflict for a UID that is in use, and Unavailable if there are not enough host ports.
        """
        pod_id, uid, spec = create.podIdentifier, uid_of(create), core.Pod()
        spec.CopyFrom(create.pod)
        if (other := self._by_uid.get(uid)) is not None:
            raise Conflict(f"UID {uid} is pod {other.pod_id}'s", reason="UidTaken")
        objects = objects_of(create)
        taken = {*self._used_ports(), *host_ports(spec)}
        ports = self._ports.take(pod_id, unassigned_ports(spec), taken)
        try:
            assign_ports(spec, ports, self.services.host_ip)
            row = PodRow(
                pod_id=pod_id,
                uid=uid,
                state=PodState.CREATING,
                rests=False,
                is_daemon=is_daemon,
                spec=spec.SerializeToString(),
                config=pb.PodCreate(
                    configMap=create.configMap, configMaps=create.configMaps
                ).SerializeToString(),
                secret=pb.PodCreate(secrets=create.secrets).SerializeToString(),
                ports=ports,
                cluster_domain=self.cluster_domain,
                created_at=self.services.clock.now(),
            )
            pod = prepared(spec, row, self.services.node_name)
            check_objects(pod, objects)
        except InvalidPod:
            self._ports.release(pod_id)
            raise
        self.objects.put(pod, objects)
        self._add(replace(row, rests=names.STANDBY in pod.metadata.annotations), pod, is_stored=False)

    def _used_ports(self) -> frozenset[int]:
        """Return the host ports of all pods. A port that came with a pod of a core has no slot."""
        pods = (*(desired.pod for desired in self.services.manager.desired()), *(actor.pod for actor in self))
        return frozenset(
            port.host_port
            for pod in pods
            for container in (*pod.spec.init_containers, *pod.spec.containers)
            for port in container.ports
            if port.host_port
        )

    async def set_daemons(self, pods: Iterable[core.Pod]) -> None:
        """Run these daemon pods, and end all others. A changed pod is created again when the earlier one is gone.

        Returns once they are ready or have failed, or after `liveness_seconds`.
        """
        wanted = {pod_id_of(pod): pod for pod in pods}
        for actor in self:
            if not actor.row.is_daemon:
                continue
            pod = wanted.pop(actor.pod_id, None)
            is_ending = actor.state in ENDING or actor.pod_id in self._successors
            if pod is None or is_ending or not self._is_made_of(actor.row, pod):
                self._successors[actor.pod_id] = pod
                actor.terminate()
        for pod_id, pod in wanted.items():
            if self.find(pod_id) is None:
                self._create_daemon(pod_id, pod)
        limit = self.services.clock.sleep(self.services.liveness_seconds)
        await first_of("daemon pods", self._until(self._are_daemons_settled), limit)

    def _create_daemon(self, pod_id: str, pod: core.Pod) -> None:
        self.create(pb.PodCreate(podIdentifier=pod_id, pod=pod), is_daemon=True)

    def _is_made_of(self, row: PodRow, message: core.Pod) -> bool:
        """Return True if the row was made of this message."""
        again = core.Pod()
        again.CopyFrom(message)
        if unassigned_ports(again) != len(row.ports):
            return False
        assign_ports(again, row.ports, self.services.host_ip)
        return again == core.Pod.FromString(row.spec)

    def _are_daemons_settled(self) -> bool:
        return not self._successors and not any(actor.row.is_daemon and actor.state in NEW for actor in self)

    async def stored(self) -> None:
        """Wait until each present pod is on the disk, or has failed; after `RETRY_SECONDS` some may be neither."""
        new = [actor for actor in self if not actor.is_begun]
        if new:
            limit = self.services.clock.sleep(RETRY_SECONDS)
            await first_of("stored pods", self._until(lambda: all(actor.is_begun for actor in new)), limit)

    async def _until(self, holds: Callable[[], bool]) -> None:
        while not holds():
            self._news.clear()
            await self._news.wait()

    # --- repairs ------------------------------------------------------------------------------------

    def repairs(self) -> Mapping[str, Callable[[], Awaitable[Sequence[str]]]]:
        """Return the repairs by name, for `Reconciler`. They work once `ready` is set."""
        return {
            "pods": self._repair_pods,
            "strays": self._repair_strays,
            "rows": self._repair_rows,
            "ports": self._repair_ports,
        }

    async def _repair_pods(self) -> list[str]:
        """Look at pods of which nothing is left without a notice: they become TERMINATED, or are tried again."""
        lost = [
            actor
            for actor in self
            if actor.looked.is_set() and not is_here(self.services.manager, actor.row.uid)
        ]
        for actor in lost:
            actor.look()
        return [actor.pod_id for actor in lost]

    async def _repair_strays(self) -> list[str]:
        """End pods of this source, in the pod manager, that have no row and that nothing ends yet."""
        strays = [
            desired
            for desired in self.services.manager.desired()
            if desired.source == FORNAX and desired.deletion is None and desired.uid not in self._by_uid
        ]
        for desired in strays:
            self.services.manager.remove(FORNAX, desired.uid)
        return [desired.pod.ref for desired in strays]

    async def _repair_rows(self) -> list[str]:
        """Delete rows of pods that do not exist, and store pods again whose rows are missing."""
        records, before = self.services.records, frozenset(self._by_uid)
        missing = {actor.row.uid: actor for actor in self if actor.is_stored}
        repaired = []
        for pod_id, uid in await records.list_keys():
            missing.pop(uid, None)
            if uid not in before and uid not in self._by_uid:
                await records.delete(pod_id, uid)
                repaired.append(pod_id)
        for actor in missing.values():
            # The row of a pod that ends, or of which nothing is left, is about to be deleted.
            if actor.state not in ENDING and is_here(self.services.manager, actor.row.uid):
                await records.insert(actor.present_row())
                repaired.append(actor.pod_id)
        return repaired

    async def _repair_ports(self) -> list[str]:
        """Take back the host ports of pods that do not exist; return the identifiers of the pods."""
        lost = self._ports.owners() - self._actors.keys()
        for pod_id in lost:
            self._ports.release(pod_id)
        return sorted(lost)

    # --- life ---------------------------------------------------------------------------------------

    async def load(self) -> None:
        """Read the stored pods; if the database does not answer, `run` tries again."""
        try:
            self._rows = await self.services.records.load()
        except Unavailable as error:
            log.warning("Failed to read the pods of cores", err=str(error))

    def recovered(self) -> None:
        """Hand the stored pods over to the pod manager, which has recovered its own; before its first plan.

        Pods of this source that are on a runtime and not stored are then ended.
        """
        if self._rows is None:
            return
        for row in sorted(self._rows, key=lambda row: not row.is_daemon):
            self._restore(row)
        self._rows = None
        self.services.board.subscribe(self._status_changed)
        for actor in self:
            actor.begin()
        self.services.manager.synced(FORNAX)

    def _restore(self, row: PodRow) -> None:
        try:
            pod = prepared(core.Pod.FromString(row.spec), row, self.services.node_name)
            self.objects.put(pod, objects_of(pb.PodCreate.FromString(row.config + row.secret)))
        except InvalidPod as error:
            log.error("Removing a stored pod that is not valid", pod=row.pod_id, err=str(error))
            self._invalid.append(row)
            return
        self._ports.restore(row.pod_id, row.ports)
        self._add(row, pod, is_stored=True)

    async def run(self) -> None:
        """Compare the stored pods with the runtimes, set `ready`, then run the actors of the pods until cancelled."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            try:
                await self._compare()
                self.ready.set()
                await asyncio.Event().wait()
            finally:
                self._group, self._are_compared = None, False

    async def _compare(self) -> None:
        manager, clock = self.services.manager, self.services.clock
        while FORNAX not in manager.synced_sources:
            await self.load()
            self.recovered()
            if FORNAX not in manager.synced_sources:
                await clock.sleep(RETRY_SECONDS)
        while self._invalid:
            row = self._invalid.pop()
            await self.services.records.delete(row.pod_id, row.uid)
        await first_of("comparison", self._until(self._is_all_compared), clock.sleep(COMPARE_SECONDS))
        for actor in self:
            if (worker := manager.workers.get(actor.row.uid)) is not None:
                status = self.services.board.statuses.get(actor.row.uid)
                actor.status_changed(worker.desired, worker.facts, status)
            self._launch(actor)
        self._are_compared = True
        for actor in self:
            await actor.looked.wait()
        log.info("Compared the pods of cores with the runtimes", pods=len(self._actors))

    def _is_all_compared(self) -> bool:
        return all(self._is_compared(actor.row.uid) for actor in self)

    def _is_compared(self, uid: PodUid) -> bool:
        """Return True if the pod's status is based on what its runtime shows now, with the exit codes."""
        worker = self.services.manager.workers.get(uid)
        if worker is None or worker.facts.outage is not None:
            return True
        seen = worker.facts.snapshot
        if seen is None or uid not in self.services.board.statuses:
            return False
        newest = (worker.facts.newest(container.name) for container in regular_units(worker.desired.pod))
        return all(
            unit is None or unit.state.is_alive or seen.status_of(unit.id) is not None for unit in newest
        )

    def _status_changed(self, desired: DesiredPod, facts: PodFacts, status: PodStatus | None) -> None:
        self._news.set()
        actor = self._by_uid.get(desired.uid)
        if actor is not None:
            actor.status_changed(desired, facts, status)

    def _add(self, row: PodRow, pod: Pod, *, is_stored: bool) -> None:
        actor = PodActor(row, pod, self.services, changed=self._tell, is_stored=is_stored)
        self._actors[row.pod_id] = self._by_uid[row.uid] = actor
        self.ended.forget(row.pod_id)
        if self._are_compared:
            self._launch(actor)

    def _launch(self, actor: PodActor) -> None:
        assert self._group is not None
        self._group.create_task(self._live(actor), name=f"fornax pod {actor.pod_id}")

    async def _live(self, actor: PodActor) -> None:
        """Run one actor to the end of its pod; a bug in it ends neither other actors nor the agent."""
        while actor.state is not PodState.TERMINATED:
            try:
                await actor.run()
            except asyncio.CancelledError:
                raise
            except Exception:
                log.exception("Actor of a pod failed with a bug; restarting it", pod=actor.pod_id)
                await self.services.clock.sleep(RETRY_SECONDS)
        self._end(actor)

    def _end(self, actor: PodActor) -> None:
        pod_id, uid = actor.pod_id, actor.row.uid
        self._ports.release(pod_id)
        self.objects.drop(uid)
        del self._actors[pod_id], self._by_uid[uid]
        self.ended.put(pod_id, EndedPod(actor.report, actor.view(), uid))
        if (successor := self._successors.pop(pod_id, None)) is not None:
            self._create_daemon(pod_id, successor)
        self._news.set()

    def _tell(self, id: str, *, soon: bool = False) -> None:
        self._changed(id, soon=soon)
        self._news.set()
