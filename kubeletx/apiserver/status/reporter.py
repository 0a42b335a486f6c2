"""`StatusReporter`: sends pod statuses to the API server, and deletes pods there that have ended on this node.

    board ──┐                         ┌─► PATCH pods/NAME/status, only what differs
            ├─► queue, one per pod ───┤
    watch ──┘                         └─► DELETE pods/NAME with the uid, once nothing of the pod is left here

The board is the pod manager's table of current pod statuses; it calls `board_changed`.

- For each pod only the newest status is sent, with one request at a time.
- A status that only shows the progress of a first start waits for the next one, until no pod has changed for a
  second, at most five seconds. Other statuses never wait.
- Pods that the watch reports are compared too: a status that another client has overwritten is written again, with
  growing delays while the other client continues (`ForeignWrites`).
- Failed requests are repeated with back-off, for as long as the pod is in the API server; an outage of the API server
  is logged once.
- The status of a static pod is written to its mirror pod, which has another UID; mirror pods are deleted by `Mirrors`.
- A pod with a deletion timestamp that this node does not have, and whose phase is not final, is reported as Failed
  before its deletion.
- A pod is deleted in the API server only after its last status was written and its worker is done, so that nothing of
  it runs. The deletion is requested once, unless the answer was lost.

Source: kubelet, pkg/kubelet/status/status_manager.go.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec
import structlog

from kubeletx.api import Clock, Conflict, KubeletxError, NotFound, PodUid
from kubeletx.api.backoff import Backoff
from kubeletx.api.names import BOUND_RUNTIME
from kubeletx.kube.client import KubeClient
from kubeletx.kube.client.backoff import server_backoff
from kubeletx.kube.client.errors import least_seconds
from kubeletx.kube.client.resources import PODS
from kubeletx.kube.types.core import Pod, PodStatus
from kubeletx.kube.types.meta import is_older
from kubeletx.pods import FINAL, DesiredPod, PodFacts, end_of_unknown

from ..field_managers import tell_foreign_write
from ..foreign_writes import ForeignWrites
from ..mirrors.form import Key, stands_for
from ..pods import ApiPods, is_mirror
from .allowed import allowed, is_startup_only
from .patch import status_patch

log = structlog.get_logger(__name__)

PARALLEL = 10
"""Maximum number of pods that are reported concurrently."""
QUIET_SECONDS = 1.0
"""Seconds for which a startup status waits for a newer one; a kubelet relists once a second."""
MOST_SECONDS = 5.0
"""Longest wait in seconds of a startup status while other pods change."""


class _Pending(msgspec.Struct):
    """A pod's newest status, which is to be reported.

    `runtime`: name of the pod's runtime; empty if unknown. `is_gone`: nothing of the pod is left on this node.
    """

    status: PodStatus
    runtime: str = ""
    is_gone: bool = False
    is_forced: bool = False
    """True for a pod that was ended by force on the node (DECISIONS 11)."""


class _Reported(msgspec.Struct, frozen=True):
    """The last status sent for a pod, and the pod in the API server's answer."""

    wanted: PodStatus
    answer: Pod
    lists: int
    """Number of complete lists of pods received before the status was sent."""


class StatusReporter:
    """Reports pod statuses to the API server.

    `board_changed` and `api_changed` are its inputs, `run` is its only task.
    """

    def __init__(
        self, client: KubeClient, pods: ApiPods, *, clock: Clock, is_here: Callable[[PodUid], bool]
    ) -> None:
        """`is_here`: returns True if the pod manager has the pod, running or waiting."""
        self._client = client
        self._pods = pods
        self._clock = clock
        self._is_here = is_here
        self._wanted: dict[PodUid, _Pending] = {}
        self._reported: dict[PodUid, _Reported] = {}
        self._let_go: dict[PodUid, int] = {}
        """UID of each pod whose deletion the API server accepted, or that did not exist there.

        The value is the number of complete lists received before. It prevents repeated deletions: the watch may be
        behind, and finalizers may keep the pod for long.
        """
        self._statics: dict[PodUid, DesiredPod] = {}
        self._static_uids: dict[Key, PodUid] = {}
        self._queue: dict[PodUid, None] = {}
        self._busy: set[PodUid] = set()
        self._backoffs: dict[PodUid, Backoff] = {}
        self._foreign = ForeignWrites(clock)
        self._later: dict[PodUid, Callable[[], None]] = {}
        self._news = asyncio.Event()
        self._reported_at = self._news_at = float("-inf")
        self._problem = ""
        pods.subscribe(self.api_changed)

    # --- inputs ---

    def board_changed(self, desired: DesiredPod, facts: PodFacts, status: PodStatus | None) -> None:
        """Listener of the pod manager's status board: queue a pod's new status.

        `status`: None if nothing of the pod is left on this node.
        """
        traits = desired.traits
        if not traits.is_cluster and not (traits.mirrored and self._static_changed(desired, status)):
            return
        known = self._wanted.get(desired.uid)
        if status is not None:
            self._wanted[desired.uid] = _Pending(status, str(facts.runtime or ""))
            self._pods.begin(desired.uid)
        elif known is not None:
            known.is_gone = True
            known.is_forced = desired.deletion is not None and desired.deletion.force
            if known.is_forced:
                self._pods.end(desired.uid)
        self._news_at = now = self._clock.monotonic()
        if status is not None and is_startup_only(status):
            self._put_at(desired.uid, now + QUIET_SECONDS, latest=now + MOST_SECONDS)
        else:
            self._put(desired.uid)

    def api_changed(self, pod: Pod, is_there: bool) -> None:
        """Listener of `ApiPods`: queue a comparison of the API server's status with this node's.

        `is_there` False: the pod was deleted in the API server, and its status is dropped.
        """
        if is_mirror(pod):
            uid = self._static_uids.get((pod.namespace, pod.name))
            if uid is not None and is_there:
                self._put_seen(uid, pod)
        elif is_there:
            self._put_seen(pod.uid, pod)
        else:
            self._let_go.pop(pod.uid, None)
            self._forget(pod.uid)

    @property
    def is_idle(self) -> bool:
        return not self._queue and not self._busy and not self._later

    @property
    def reported_at(self) -> float:
        """Monotonic time at which the last report ended; the present time while a report is due or under way."""
        return self._clock.monotonic() if self._queue or self._busy else self._reported_at

    # --- life ---

    async def run(self) -> None:
        for uid in self._wanted:
            self._put(uid)
        slots = asyncio.Semaphore(PARALLEL)
        async with asyncio.TaskGroup() as group:
            while True:
                await self._news.wait()
                self._news.clear()
                for uid in [uid for uid in self._queue if uid not in self._busy]:
                    await slots.acquire()
                    self._queue.pop(uid, None)
                    self._busy.add(uid)
                    task = group.create_task(self._tell(uid), name=f"status {uid}")
                    task.add_done_callback(lambda _: slots.release())

    async def _tell(self, uid: PodUid) -> None:
        try:
            await self._report(uid)
        except KubeletxError as error:
            self._failed(uid, error)
        except Exception:
            log.exception("Reporting a pod failed with a bug", pod_uid=uid)
        else:
            self._backoffs.pop(uid, None)
            self._problem = ""
        finally:
            self._busy.discard(uid)
            self._reported_at = self._clock.monotonic()
            if uid in self._queue:
                self._news.set()

    async def _report(self, uid: PodUid) -> None:
        pod, wanted = self._target(uid), self._wanted.get(uid)
        if pod is None:
            if wanted is not None and wanted.is_gone and self._pods.lists:
                self._forget(uid)  # gone here and in the API: no API object is left to report to
            return
        lists = self._pods.lists
        try:
            is_last = self._may_delete(pod, wanted) and self._let_go.get(uid) != lists
            if wanted is not None:
                await self._patch(uid, pod, wanted, is_last=is_last)
            if is_last:
                if wanted is None and pod.status.phase not in FINAL:  # finalizers may wait for its end
                    await self._patch(uid, pod, _Pending(end_of_unknown(pod, self._clock.now())))
                await self._client.delete(PODS.path(pod.namespace, pod.name), uid=uid, grace_seconds=0)
                self._was_let_go(uid, lists)
                log.debug("Deleted pod in the API", pod=pod.ref, pod_uid=uid)
        except NotFound:
            if uid not in self._statics:  # a mirror is created again and needs its status then
                self._forget(uid)
                self._was_let_go(uid, lists)
        except Conflict:  # another pod has this name: ours is gone, which the watch will report
            log.debug("Found another pod of this name in the API", pod=pod.ref, pod_uid=uid)

    def _static_changed(self, desired: DesiredPod, status: PodStatus | None) -> bool:
        """Record that a static pod exists (returns True), or that it is gone, which drops its status (False)."""
        key = (desired.pod.namespace, desired.pod.name)
        if status is None:
            self._statics.pop(desired.uid, None)
            if self._static_uids.get(key) == desired.uid:
                del self._static_uids[key]
            self._forget(desired.uid)
            return False
        self._statics[desired.uid] = desired
        self._static_uids[key] = desired.uid
        return True

    def _target(self, uid: PodUid) -> Pod | None:
        """Return the pod in the API server that has the status: the pod itself, or the mirror of a static pod.

        None if the API server has no such pod, or the mirror is outdated or being deleted.
        """
        static = self._statics.get(uid)
        if static is None:
            return self._pods.pods.get(uid)
        mirror = self._pods.mirrors.get((static.pod.namespace, static.pod.name))
        if mirror is None or mirror.metadata.deletion_timestamp is not None or not stands_for(mirror, static):
            return None
        return mirror

    async def _patch(self, uid: PodUid, pod: Pod, wanted: _Pending, *, is_last: bool = True) -> None:
        """Send the differences between `pod`, as in the API server, and `wanted`.

        If the patch corrects another client's change, it may be delayed; the pod is queued again then. `is_last`: the
        pod is deleted next, so the patch is not delayed.
        """
        reported = self._reported.get(uid)
        if reported is not None and reported.answer.uid != pod.uid:
            reported = None  # it was the status of an earlier mirror
        if reported is not None and reported.lists != self._pods.lists:
            reported = None  # if the API server was restored from an older state, it has lost our writes
        if reported is not None and is_older(pod.metadata, reported.answer.metadata):
            pod = reported.answer  # the watch is behind our last write
        if reported is not None and reported.wanted == wanted.status and reported.answer.status == pod.status:
            return  # this API server does not store the fields that still differ
        status = status_patch(pod.status, allowed(pod, wanted.status))
        metadata: dict[str, object] = {"uid": pod.uid}
        if wanted.runtime and pod.metadata.annotations.get(BOUND_RUNTIME) != wanted.runtime:
            metadata["annotations"] = {BOUND_RUNTIME: wanted.runtime}
        if status is None and len(metadata) == 1:
            self._foreign.settle(uid, is_answer=False)
            return
        is_answer = reported is not None and reported.wanted == wanted.status and not is_last
        if is_answer and not self._foreign.may_answer(uid, lambda: self._put(uid)):
            return
        patch = {"metadata": metadata, **({"status": status} if status is not None else {})}
        if is_answer:
            own = PODS.path(pod.namespace, pod.name)
            wait = self._foreign.next_wait(uid)
            await tell_foreign_write(self._client, own, f"pod {pod.ref}", patch, next_wait=wait)
        path = PODS.path(pod.namespace, pod.name, "status")
        lists = self._pods.lists
        answer = await self._client.patch(path, patch, Pod)
        self._foreign.settle(uid, is_answer=is_answer)
        if self._wanted.get(uid) is not None:  # else the pod was forgotten meanwhile
            self._reported[uid] = _Reported(wanted.status, answer, lists)

    def _may_delete(self, pod: Pod, wanted: _Pending | None) -> bool:
        if self._is_here(pod.uid):
            return False
        if pod.metadata.deletion_timestamp is None:
            return wanted is not None and wanted.is_gone and wanted.is_forced
        return wanted is None or wanted.is_gone

    def _was_let_go(self, uid: PodUid, lists: int) -> None:
        if uid in self._pods.pods:  # else the watch has reported the deletion already
            self._let_go[uid] = lists

    # --- queue ---

    def _put(self, uid: PodUid) -> None:
        self._cancel(uid)
        self._queue[uid] = None
        self._news.set()

    def _put_seen(self, uid: PodUid, pod: Pod) -> None:
        """Queue a comparison, because the pod in the API server has changed.

        A status that waits for a newer one (see `is_startup_only`) keeps waiting, unless the pod is being deleted.
        """
        wanted = self._wanted.get(uid)
        may_wait = wanted is None or (uid in self._later and is_startup_only(wanted.status))
        if not may_wait or pod.metadata.deletion_timestamp is not None:
            self._put(uid)

    def _put_at(self, uid: PodUid, when: float, *, latest: float) -> None:
        """Queue a report for the monotonic time `when`; while other pods change it is delayed up to `latest`."""
        if uid not in self._queue and uid not in self._later:
            self._later[uid] = self._clock.call_at(when, lambda: self._put_when_quiet(uid, latest))

    def _put_when_quiet(self, uid: PodUid, latest: float) -> None:
        self._later.pop(uid, None)
        quiet_at = min(self._news_at + QUIET_SECONDS, latest)
        if quiet_at > self._clock.monotonic():
            self._put_at(uid, quiet_at, latest=latest)
        else:
            self._put(uid)

    def _cancel(self, uid: PodUid) -> None:
        if (cancel := self._later.pop(uid, None)) is not None:
            cancel()

    def _failed(self, uid: PodUid, error: KubeletxError) -> None:
        now = self._clock.monotonic()
        backoff = self._backoffs.setdefault(uid, server_backoff(cap=10.0))
        seconds = backoff.next(now, at_least=least_seconds(error))
        if not self._client.problem and str(error) != self._problem:
            log.warning("Failed to report a pod", pod_uid=uid, err=str(error))
        self._problem = str(error)
        self._put_at(uid, now + seconds, latest=now + seconds)

    def _forget(self, uid: PodUid) -> None:
        for table in (self._wanted, self._reported, self._backoffs, self._queue):
            table.pop(uid, None)
        self._foreign.forget(uid)
        self._cancel(uid)
