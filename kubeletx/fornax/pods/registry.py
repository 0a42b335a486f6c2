"""`CorePods`: all pods of cores on this node: their rows, their actors and the tasks of these.

rows ─► load ─► recovered: PodActor.begin ─► pod manager      before the first plan of recovered pods
             ─► compare: state on the runtime ─► tasks run
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Final

import structlog

from kubeletx.api import Conflict, InvalidPod, PodUid, Unavailable
from kubeletx.api.waiting import first_of
from kubeletx.kube.types.core import Pod, PodStatus
from kubeletx.pods import DesiredPod, PodFacts, PodManager, StatusBoard, regular_units
from kubeletx.pods.model.sources import FORNAX

from ..mailbox import OnChange
from ..stubs import fornaxcore_pb2 as pb
from .actor import ActorServices, PodActor
from .creation import PodCreation
from .ended import EndedPod, EndedPods
from .machine import ENDING
from .records import PodRow

log = structlog.get_logger(__name__)

RETRY_SECONDS: Final = 5.0
COMPARE_SECONDS: Final = 10.0
"""Longest wait, at the start, for the states of stored pods on their runtimes."""


class CorePods:
    """The pods of cores by identifier and by UID. `ended`: those that are not here any more."""

    def __init__(
        self,
        services: ActorServices,
        creation: PodCreation,
        *,
        manager: PodManager,
        board: StatusBoard,
        changed: OnChange,
    ) -> None:
        """`changed`: called with the identifier of a pod that a core must see again."""
        self.ended = EndedPods(services.clock, services.node)
        self._services = services
        self._creation = creation
        self._manager = manager
        self._board = board
        self._changed = changed
        self._actors: dict[str, PodActor] = {}
        self._by_uid: dict[PodUid, PodActor] = {}
        self._rows: list[PodRow] | None = None
        self._invalid: list[PodRow] = []
        self._group: asyncio.TaskGroup | None = None
        self._are_compared = False
        self._status_news = asyncio.Event()

    def __iter__(self) -> Iterator[PodActor]:
        """Yield the actors of all pods that are here now; pods may come and go meanwhile."""
        return iter(tuple(self._actors.values()))

    def find(self, pod_id: str) -> PodActor | None:
        """Return the actor of the pod; None if it is not here."""
        return self._actors.get(pod_id)

    def of_uid(self, uid: PodUid) -> PodActor | None:
        """Return the actor of the pod; None if it is not here."""
        return self._by_uid.get(uid)

    def create(self, create: pb.PodCreate, *, is_daemon: bool, cluster_domain: str) -> None:
        """Make a new pod. Raises Conflict for a UID that is in use, and as `PodCreation.create`."""
        other = self._by_uid.get(PodUid(create.pod.metadata.uid))
        if other is not None:
            raise Conflict(f"UID {other.row.uid} is pod {other.pod_id}'s", reason="UidTaken")
        row, pod = self._creation.create(
            create, is_daemon=is_daemon, cluster_domain=cluster_domain, foreign_ports=self._used_ports()
        )
        self._add(row, pod, is_stored=False)

    async def repair_pods(self) -> list[str]:
        """Look again at pods of which nothing is left without a notice: they become TERMINATED, or are tried again."""
        lost = [
            actor
            for actor in self
            if actor.looked.is_set() and not self._services.source.is_here(actor.row.uid)
        ]
        for actor in lost:
            actor.look()
        return [actor.pod_id for actor in lost]

    async def repair_strays(self) -> list[str]:
        """End pods of this source, in the pod manager, that have no row; return their identifiers."""
        strays = self._services.source.strays(self._by_uid)
        for desired in strays:
            self._services.source.remove(desired.uid)
        return [desired.pod.ref for desired in strays]

    async def repair_rows(self) -> list[str]:
        """Delete rows of pods that do not exist, and store pods again whose rows are missing."""
        before = frozenset(self._by_uid)
        missing = {actor.row.uid: actor for actor in self if actor.is_stored}
        repaired = []
        for pod_id, uid in await self._services.records.list_keys():
            missing.pop(uid, None)
            if uid not in before and uid not in self._by_uid:
                await self._services.records.delete(pod_id, uid)
                repaired.append(pod_id)
        for actor in missing.values():
            # The row of a pod that ends, or of which nothing is left, is about to be deleted.
            if actor.state not in ENDING and self._services.source.is_here(actor.row.uid):
                await self._services.records.insert(actor.present_row())
                repaired.append(actor.pod_id)
        return repaired

    async def repair_ports(self) -> list[str]:
        """Take back the host ports of pods that do not exist; return the identifiers of the pods."""
        lost = self._creation.ports.owners() - self._actors.keys()
        for pod_id in lost:
            self._creation.ports.release(pod_id)
        return sorted(lost)

    def _used_ports(self) -> frozenset[int]:
        """Return the host ports of all pods. A port that came with a pod of a core has no slot."""
        pods = (*(desired.pod for desired in self._manager.desired()), *(actor.pod for actor in self))
        return frozenset(
            port.host_port
            for pod in pods
            for container in (*pod.spec.init_containers, *pod.spec.containers)
            for port in container.ports
            if port.host_port
        )

    async def load(self) -> None:
        """Read the stored pods; if the database does not answer, `run` tries again."""
        try:
            self._rows = await self._services.records.load()
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
        self._board.subscribe(self._status_changed)
        for actor in self:
            actor.begin()
        self._manager.synced(FORNAX)

    async def run(self, ready: asyncio.Event) -> None:
        """Compare the stored pods with the runtimes, set `ready`, then run the actors of the pods until cancelled."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            try:
                await self._compare()
                ready.set()
                await asyncio.Event().wait()
            finally:
                self._group, self._are_compared = None, False

    async def _compare(self) -> None:
        while FORNAX not in self._manager.synced_sources:
            await self.load()
            self.recovered()
            if FORNAX not in self._manager.synced_sources:
                await self._services.clock.sleep(RETRY_SECONDS)
        while self._invalid:
            row = self._invalid.pop()
            await self._services.records.delete(row.pod_id, row.uid)
        deadline = self._services.clock.sleep(COMPARE_SECONDS)
        await first_of("comparison", self._all_compared(), deadline)
        for actor in self:
            if (worker := self._manager.workers.get(actor.row.uid)) is not None:
                status = self._board.statuses.get(actor.row.uid)
                actor.status_changed(worker.desired, worker.facts, status)
            self._launch(actor)
        self._are_compared = True
        for actor in self:
            await actor.looked.wait()
        log.info("Compared the pods of cores with the runtimes", pods=len(self._actors))

    async def _all_compared(self) -> None:
        for actor in self:
            while not self._is_compared(actor.row.uid):
                self._status_news.clear()
                await self._status_news.wait()

    def _is_compared(self, uid: PodUid) -> bool:
        """Return True if the pod's status is based on what its runtime shows now, with the exit codes."""
        worker = self._manager.workers.get(uid)
        if worker is None or worker.facts.outage is not None:
            return True
        seen = worker.facts.snapshot
        if seen is None or uid not in self._board.statuses:
            return False
        newest = (worker.facts.newest(container.name) for container in regular_units(worker.desired.pod))
        return all(
            unit is None or unit.state.is_alive or seen.status_of(unit.id) is not None for unit in newest
        )

    def _status_changed(self, desired: DesiredPod, facts: PodFacts, status: PodStatus | None) -> None:
        self._status_news.set()
        actor = self._by_uid.get(desired.uid)
        if actor is not None:
            actor.status_changed(desired, facts, status)

    def _restore(self, row: PodRow) -> None:
        try:
            pod = self._creation.restore(row)
        except InvalidPod as error:
            log.error("Removing a stored pod that is not valid", pod=row.pod_id, err=str(error))
            self._invalid.append(row)
            return
        self._add(row, pod, is_stored=True)

    def _add(self, row: PodRow, pod: Pod, *, is_stored: bool) -> None:
        actor = PodActor(row, pod, self._services, changed=self._changed, is_stored=is_stored)
        self._actors[row.pod_id] = self._by_uid[row.uid] = actor
        self.ended.forget(row.pod_id)
        if self._group is not None and self._are_compared:
            self._launch(actor)

    def _launch(self, actor: PodActor) -> None:
        assert self._group is not None
        self._group.create_task(self._live(actor), name=f"fornax pod {actor.pod_id}")

    async def _live(self, actor: PodActor) -> None:
        """Run one actor to the end of its pod; a bug in it ends neither other actors nor the agent."""
        while not actor.ended.is_set():
            try:
                await actor.run()
            except asyncio.CancelledError:
                raise
            except Exception:
                log.exception("Actor of a pod failed with a bug; restarting it", pod=actor.pod_id)
                await self._services.clock.sleep(RETRY_SECONDS)
        self._end(actor)

    def _end(self, actor: PodActor) -> None:
        self._creation.release(actor.row)
        del self._actors[actor.pod_id], self._by_uid[actor.row.uid]
        self.ended.put(actor.pod_id, EndedPod(actor.report, actor.view(), actor.row.uid))
