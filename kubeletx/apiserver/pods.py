"""`ApiPods`: passes the pods that the API server has assigned to this node to the pod manager.

    watch of spec.nodeName=<node> ─► ApiPods ─► PodSink (update, remove, synced)
                                        └─────► listeners, which compare their state with the API server's

- A pod with a deletionTimestamp is removed with its grace period; it stays in the API until the reporter deletes it.
- A pod that the API server no longer has (force deletion, a restored backup) is removed too.
- A pod that has ended and that the pod manager no longer has is not started again.
- Mirror pods represent static pods; they are kept separately and never run.
- A pod that cannot be decoded keeps its last spec. If it was recovered after a restart of the agent, the source does
  not count as synced, so nothing is cleaned up, until the pod can be decoded or is gone.

Source: kubelet, pkg/kubelet/config/apiserver.go, config.go.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import structlog
from msgspec.structs import replace

from kubeletx.api import PodUid
from kubeletx.api.names import CONFIG_MIRROR
from kubeletx.kube.manifests.defaults import set_defaults
from kubeletx.kube.types.core import ObjectMeta, Pod, PodStatus
from kubeletx.kube.types.meta import is_older
from kubeletx.pods import FINAL, OURS
from kubeletx.pods.model.sources import API, PodSink, Refused

log = structlog.get_logger(__name__)

Listener = Callable[[Pod, bool], None]
"""Called with a pod as in the API server, and True if it exists there, False if it was deleted."""


class ApiPods:
    """Passes the pods of the API server to the pod manager. Implements `ReflectorSink` of pods."""

    def __init__(
        self,
        sink: PodSink,
        *,
        is_here: Callable[[PodUid], bool],
        may_begin: Callable[[], bool] = lambda: True,
    ) -> None:
        """`is_here`: returns True if the pod manager has the pod, running or waiting.

        `may_begin`: returns True if pods that the pod manager does not have may be started now.
        """
        self._sink = sink
        self._is_here = is_here
        self._may_begin = may_begin
        self._pods: dict[PodUid, Pod] = {}
        self._mirrors: dict[tuple[str, str], Pod] = {}
        self._listeners: list[Listener] = []
        self._ended: set[PodUid] = set()
        """Pods that were ended by force on the node, kept while the API server still has them."""
        self._unread: set[PodUid] = set()
        """Pods recovered after a restart that the API server has, but that could not be decoded."""
        self.lists = 0
        """Number of complete lists received.

        Resource versions seen before the last list must not be compared with later ones: the API server may have been
        restored from an older state.
        """

    @property
    def pods(self) -> Mapping[PodUid, Pod]:
        """Every pod of this node as in the API server, without mirror pods."""
        return self._pods

    @property
    def mirrors(self) -> Mapping[tuple[str, str], Pod]:
        return self._mirrors

    def subscribe(self, listener: Listener) -> None:
        """Call the listener on every change of a pod or mirror pod."""
        self._listeners.append(listener)

    def end(self, uid: PodUid) -> None:
        """Record that the node ended the pod by force (DECISIONS 11): later updates of it do not start it again."""
        self._ended.add(uid)

    def begin(self, uid: PodUid) -> None:
        """Record that the pod runs on this node, which cancels an earlier `end`."""
        self._ended.discard(uid)

    def begin_all(self) -> None:
        """Pass all known pods to the manager again, since `may_begin` has changed."""
        for pod in list(self._pods.values()):
            self._hand_over(pod)

    # --- ReflectorSink ---

    def replace(self, items: Sequence[Pod], unreadable: Sequence[ObjectMeta]) -> None:
        """Replace all known pods with `items`; known pods that are missing from the list are removed from the node.

        `unreadable`: metadata of pods that could not be decoded; they keep their last spec. Reports the source as
        synced, unless pods among them were recovered after a restart and never decoded.
        """
        there = {pod.uid for pod in items} | {PodUid(meta.uid) for meta in unreadable}
        for pod in [*self._pods.values(), *self._mirrors.values()]:
            if pod.uid not in there:
                self.drop(pod)
        self.lists += 1
        self._ended &= there
        for pod in items:
            self._mirrors.pop((pod.namespace, pod.name), None)
            self.put(pod)
        uids = {PodUid(meta.uid) for meta in unreadable}
        self._unread = {uid for uid in uids - self._pods.keys() if self._is_here(uid)}
        if self._unread:
            log.warning(
                "Skipping clean-up while pods that run here cannot be decoded", pods=len(self._unread)
            )
        else:
            self._sink.synced(API)

    def put(self, item: Pod) -> None:
        """Store the pod and pass it to the manager; a mirror pod is only stored."""
        if is_mirror(item):
            key = (item.namespace, item.name)
            if (known := self._mirrors.get(key)) is not None and is_older(item.metadata, known.metadata):
                return  # the watch is behind the answer to our own write
            self._mirrors[key] = item
        else:
            self._pods[item.uid] = item
            self._hand_over(item)
            self._was_read(item.uid)
        self._tell(item, True)

    def drop(self, item: Pod) -> None:
        """Remove the pod, which the API server no longer has, from this node; a mirror pod is only forgotten."""
        key = (item.namespace, item.name)
        if is_mirror(item):
            if (known := self._mirrors.get(key)) is not None and known.uid == item.uid:
                del self._mirrors[key]
        else:
            self._pods.pop(item.uid, None)
            self._ended.discard(item.uid)
            self._sink.remove(API, item.uid)
            self._was_read(item.uid)
        self._tell(item, False)

    def undecodable(self, meta: ObjectMeta, problem: str) -> None:
        """Do nothing: the pod keeps its last decoded form, and the reflector has logged the problem."""

    # --- private ---

    def _hand_over(self, pod: Pod) -> None:
        is_here = self._is_here(pod.uid)
        deleted = pod.metadata.deletion_timestamp is not None
        if not is_here and not self._may_begin():
            return
        if not is_here and (deleted or pod.uid in self._ended or pod.status.phase in FINAL):
            return
        outcome = self._sink.update(API, prepared(pod))
        if deleted and not isinstance(outcome, Refused):
            self._sink.remove(API, pod.uid, pod.metadata.deletion_grace_period_seconds)

    def _was_read(self, uid: PodUid) -> None:
        if uid in self._unread:
            self._unread.discard(uid)
            if not self._unread:
                self._sink.synced(API)

    def _tell(self, pod: Pod, is_there: bool) -> None:
        for listener in self._listeners:
            listener(pod, is_there)


def is_mirror(pod: Pod) -> bool:
    """Return True if the pod is the mirror pod of a static pod."""
    return CONFIG_MIRROR in pod.metadata.annotations


def prepared(pod: Pod) -> Pod:
    """Return the pod with this agent's defaults, as it is passed to the pod manager.

    Its status keeps only what others wrote and a final phase, so that the agent's own reports do not change it.
    """
    status = pod.status
    return set_defaults(
        replace(
            pod,
            metadata=replace(pod.metadata, resource_version=""),
            status=PodStatus(
                phase=status.phase if status.phase in FINAL else None,
                reason=status.reason if status.phase in FINAL else None,
                message=status.message if status.phase in FINAL else None,
                conditions=tuple(condition for condition in status.conditions if condition.type not in OURS),
                nominated_node_name=status.nominated_node_name,
                resource_claim_statuses=status.resource_claim_statuses,
            ),
        )
    )
