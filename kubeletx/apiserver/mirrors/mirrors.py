"""`Mirrors`: makes one mirror pod in the API server for each static pod.

    static pods of the manager ──┐
    mirrors of the watch ────────┼─► plan (`form.py`) ─────► POST ─► what the answer says is known at once
    the Node, sources' news ─────┘                       └─► DELETE with the uid, once ─► the watch says that it is gone

A mirror is only a copy: its deletion in the API never affects the pod, and it is created again. No mirror is created
before the Node is registered and the existing mirrors are known. A mirror whose static pod is gone is deleted once
every source has reported. The mirror of a pod that is ending stays, so that the last statuses are visible. A mirror
that finalizers keep after its deletion delays its replacement; the deletion is not requested again.

Repeated foreign deletions, changes or creations of mirrors are corrected with growing delays (`ForeignWrites`). A
refusal by the API server (a missing namespace, a policy) is reported once, by a log line and an event of the pod, and
retried with back-off; other pods are not delayed by it.

Source: kubelet, pkg/kubelet/pod/mirror_client.go, kubelet.go (tryReconcileMirrorPods), kubelet_pods.go.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import structlog

from kubeletx.api import (
    AlreadyExists,
    Clock,
    Conflict,
    EventSink,
    KubeletxError,
    NotFound,
    ObjectRef,
    PodUid,
    TimedOut,
    Unavailable,
)
from kubeletx.api.backoff import Backoff
from kubeletx.api.names import CONFIG_MIRROR, POD_SPEC_HASH, Event
from kubeletx.kube.client import KubeClient
from kubeletx.kube.client.backoff import server_backoff
from kubeletx.kube.client.errors import least_seconds
from kubeletx.kube.client.resources import PODS
from kubeletx.kube.types.core import Pod
from kubeletx.kube.types.node import Node
from kubeletx.pods import DesiredPod

from ..field_managers import tell_foreign_write
from ..foreign_writes import ForeignWrites
from ..pods import ApiPods, is_mirror
from .form import Create, Delete, Key, Step, is_current, mirror_of, plan_mirrors

log = structlog.get_logger(__name__)

LOOK_SECONDS = 10.0
"""Interval of checks without an event: some changes cause none, such as a source reporting a recovered pod."""
FIRST_SECONDS, CAP_SECONDS = 0.5, 60.0

StaticPods = Callable[[], tuple[dict[Key, DesiredPod], set[Key]]]
"""Returns the static pods by key, and the keys of static pods that no source has reported since the agent's start."""


class Mirrors:
    """Keeps one mirror pod in the API server for each static pod.

    `run` is its only task: it compares static pods and mirrors, and creates or deletes mirrors. `wake` makes it compare
    them again.
    """

    def __init__(
        self,
        client: KubeClient,
        pods: ApiPods,
        static_pods: StaticPods,
        *,
        all_seen: Callable[[], bool],
        events: EventSink,
        clock: Clock,
    ) -> None:
        """`pods`: the mirrors in the API server. `static_pods`: see `StaticPods`.

        `all_seen`: returns True if every source of static pods has reported its pods.
        """
        self._client = client
        self._pods = pods
        self._static_pods = static_pods
        self._all_seen = all_seen
        self._events = events
        self._clock = clock
        self._node: Node | None = None
        self._news = asyncio.Event()
        self._waits: dict[Key, tuple[Backoff, float]] = {}
        self._reported: dict[Key, str] = {}
        self._foreign = ForeignWrites(clock)
        self._shown: dict[Key, tuple[PodUid, str]] = {}
        """UID and spec hash of each static pod as its mirror last showed them."""
        self._answers: set[Key] = set()
        """Keys of the steps of this round that correct a foreign write."""
        self._named: set[Key] = set()
        """Keys of mirrors whose foreign writer was logged; a key is dropped once the mirror is correct again."""
        self._deleted: dict[PodUid, int] = {}
        """UID of each mirror that still exists although the API server accepted its deletion.

        The value is the number of complete lists received before the deletion.
        """
        pods.subscribe(self._api_changed)

    # --- inputs ---

    def wake(self, *_: object) -> None:
        """Make `run` compare again, because a pod or a source changed. The arguments are ignored."""
        self._news.set()

    def node_changed(self, node: Node | None) -> None:
        """Listener of `ApiNode`: make `run` compare again if the Node, which owns the mirrors, has a new UID.

        `node`: None if there is no Node in the API server.
        """
        before, self._node = self._node, node
        if (before.metadata.uid if before else None) != (node.metadata.uid if node else None):
            self._news.set()

    def _api_changed(self, pod: Pod, is_there: bool) -> None:
        if is_mirror(pod):
            self._news.set()

    # --- life ---

    async def run(self) -> None:
        """Create and delete mirrors until cancelled. Start it once pods are listed."""
        while True:
            cancel = self._clock.call_at(self._clock.monotonic() + self._seconds(), self._news.set)
            await self._news.wait()
            cancel()
            self._news.clear()
            for step in self._steps():
                if not await self._try(step):
                    break

    def _seconds(self) -> float:
        now = self._clock.monotonic()
        due = min((at for _, at in self._waits.values()), default=now + LOOK_SECONDS)
        return max(0.0, min(LOOK_SECONDS, due - now))

    def _steps(self) -> list[Step]:
        if self._node is None:
            return []
        statics, unsure = self._static_pods()
        mirrors = dict(self._pods.mirrors)
        self._note_shown(statics, mirrors)
        planned = {
            _key(step): step
            for step in plan_mirrors(statics, mirrors, unsure=unsure, all_seen=self._all_seen())
        }
        here = {mirror.uid for mirror in mirrors.values()}
        for uid in [
            uid for uid, lists in self._deleted.items() if uid not in here or lists != self._pods.lists
        ]:
            del self._deleted[uid]  # a complete list still has it: the API server's state was restored
        for table in (self._waits, self._reported):
            for key in table.keys() - planned.keys():
                del table[key]
        now = self._clock.monotonic()
        planned = {key: step for key, step in planned.items() if not self._is_under_way(step)}
        due = [key for key in planned if key not in self._waits]
        due += [
            key for key, (_, at) in self._waits.items() if now >= at
        ]  # last, so that they delay no other step
        self._answers = {key for key in due if key in planned and self._is_answer(planned[key], statics)}
        return [
            planned[key]
            for key in due
            if key in planned and (key not in self._answers or self._foreign.may_answer(key, self._news.set))
        ]

    def _note_shown(self, statics: Mapping[Key, DesiredPod], mirrors: Mapping[Key, Pod]) -> None:
        for key in self._shown.keys() - statics.keys() - mirrors.keys():
            del self._shown[key]
        for key, static in statics.items():
            mirror = mirrors.get(key)
            if (
                mirror is not None
                and mirror.metadata.deletion_timestamp is None
                and is_current(mirror, static)
            ):
                self._shown[key] = static.uid, static.spec_hash
                self._settle(key)

    def _settle(self, key: Key) -> None:
        self._named.discard(key)
        self._foreign.settle(key)

    def _is_answer(self, step: Step, statics: Mapping[Key, DesiredPod]) -> bool:
        """Return True if the step corrects a change by another client; False if a change of the static pod causes it.

        The deletion of a mirror that has a deletion timestamp is never a correction, so it is immediate. Creating its
        replacement may be one, and may have to wait.
        """
        key = _key(step)
        static, shown = statics.get(key), self._shown.get(key)
        if isinstance(step, Delete) and step.mirror.metadata.deletion_timestamp is not None:
            return False
        return shown is None if static is None else shown == (static.uid, static.spec_hash)

    def _is_under_way(self, step: Step) -> bool:
        return isinstance(step, Delete) and step.mirror.uid in self._deleted

    async def _try(self, step: Step) -> bool:
        """Carry out a step and return True, also if the API server refuses it.

        Returns False if the API server does not answer, so that the caller does not try the other steps now.
        """
        key = _key(step)
        try:
            if key in self._answers and key not in self._named:
                self._named.add(key)
                await self._tell_foreign(step)
            if isinstance(step, Delete):
                await self._delete(step)
            else:
                await self._create(step.static)
        except KubeletxError as error:
            backoff = self._waits.get(key, (server_backoff(first=FIRST_SECONDS, cap=CAP_SECONDS), 0.0))[0]
            now = self._clock.monotonic()
            self._waits[key] = (backoff, now + backoff.next(now, at_least=least_seconds(error)))
            self._tell(step, error)
            return not isinstance(error, Unavailable | TimedOut)
        self._waits.pop(key, None)
        self._reported.pop(key, None)
        if isinstance(step, Delete) and key not in self._shown:
            self._settle(key)
        self._news.set()  # what was deleted may have to be made again
        return True

    async def _tell_foreign(self, step: Step) -> None:
        pod = step.mirror if isinstance(step, Delete) else step.static.pod
        notes = {"annotations": dict.fromkeys((CONFIG_MIRROR, POD_SPEC_HASH))}
        await tell_foreign_write(
            self._client,
            PODS.path(pod.namespace, pod.name),
            f"mirror pod {pod.ref}",
            {"metadata": notes},
            next_wait=self._foreign.next_wait(_key(step)),
        )

    async def _delete(self, step: Delete) -> None:
        mirror, lists = step.mirror, self._pods.lists
        try:
            await self._client.delete(
                PODS.path(mirror.namespace, mirror.name), uid=mirror.uid, grace_seconds=0
            )
        except (NotFound, Conflict):  # it is gone; if another one has replaced it, the watch delivers that
            self._pods.drop(mirror)
            return
        self._deleted[mirror.uid] = lists
        log.info("Deleted mirror pod", pod=mirror.ref, reason=step.why)

    async def _create(self, static: DesiredPod) -> None:
        node = self._node
        if node is None:
            return
        wanted = mirror_of(static, node_name=node.metadata.name, node_uid=node.metadata.uid)
        try:
            made = await self._client.create(PODS.path(wanted.namespace), wanted, Pod)
        except AlreadyExists:
            made = await self._client.get(PODS.path(wanted.namespace, wanted.name), Pod)
            if not is_mirror(made):
                raise Conflict(
                    f"another pod in the API server is called {wanted.ref}; delete it, or rename the manifest's pod"
                ) from None
        else:
            log.info("Created mirror pod", pod=made.ref, pod_uid=static.uid)
        self._pods.put(made)

    def _tell(self, step: Step, error: KubeletxError) -> None:
        """Log a step's error, unless it was logged already; record an event if a mirror cannot be created.

        An API server that does not answer is left out: the client logs that itself.
        """
        key, text = _key(step), str(error)
        if isinstance(error, Unavailable | TimedOut) or self._reported.get(key) == text:
            return
        self._reported[key] = text
        log.warning("Failed to bring a mirror pod up to date", pod="/".join(key), err=text)
        if isinstance(step, Create):
            pod = step.static.pod
            self._events.record(
                ObjectRef(kind="Pod", name=pod.name, namespace=pod.namespace, uid=step.static.uid),
                type="Warning",
                reason=Event.FAILED_MIRROR,
                message=f"Error creating the mirror pod: {text}",
            )


def _key(step: Step) -> Key:
    pod = step.mirror if isinstance(step, Delete) else step.static.pod
    return pod.namespace, pod.name
