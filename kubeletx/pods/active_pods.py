"""`ActivePods`: the workers of this node's pods by UID, and methods that end pods for reasons of the node."""

from __future__ import annotations

import structlog
from msgspec.structs import replace

from kubeletx.api import Clock, PodUid
from kubeletx.kube.types.core import Pod
from kubeletx.runtimes.registry import RuntimeRegistry

from .model.facts import Deletion
from .plan.progress import has_ended
from .specs.labels import grace_seconds as own_grace_seconds
from .worker import PodWorker

log = structlog.get_logger(__name__)


class ActivePods:
    """Holds the worker of each pod on this node, by UID, in `workers`; the manager fills it.

    Preemption, eviction and the host's shutdown use this class to find and end pods.
    """

    def __init__(self, registry: RuntimeRegistry, clock: Clock) -> None:
        self.workers: dict[PodUid, PodWorker] = {}
        self._registry = registry
        self._clock = clock

    def pod_of(self, uid: PodUid) -> Pod | None:
        """Return the newest spec of the pod; None if the pod is not on this node."""
        worker = self.workers.get(uid)
        return worker.desired.pod if worker is not None else None

    def can_end(self, uid: PodUid) -> bool:
        """Return True if the pod can be ended now: it has no runtime yet, or its runtime answers.

        False for a pod that is not on this node.
        """
        worker = self.workers.get(uid)
        if worker is None:
            return False
        if worker.facts.runtime is None:
            return True
        handle = self._registry.find(worker.facts.runtime)
        return handle is not None and handle.state.reachable

    def is_ending(self, uid: PodUid) -> bool:
        """Return True if the pod is ending or has ended, and its runtime, if any, answers.

        False for a pod that is not on this node.
        """
        worker = self.workers.get(uid)
        if worker is None or not self.can_end(uid):
            return False
        return worker.desired.deletion is not None or has_ended(worker.desired, worker.facts)

    def has_stopped(self, uid: PodUid) -> bool:
        """Return True if the pod has ended or is not on this node."""
        worker = self.workers.get(uid)
        return worker is None or has_ended(worker.desired, worker.facts)

    def end(
        self,
        uid: PodUid,
        *,
        reason: str,
        message: str,
        grace_seconds: int | None = None,
        over_own_limit: bool = False,
        has_succeeded: bool = False,
    ) -> bool:
        """End the pod as Failed, or as Succeeded if `has_succeeded`, with this reason and message, and return True.

        Do nothing and return False if the pod is not on this node, is ending or has ended. `grace_seconds` None: the
        pod's own grace period. `over_own_limit`: see `Deletion`. An exit of the agent before the pod's containers have
        stopped forgets the request; callers repeat it.
        """
        worker = self.workers.get(uid)
        if worker is None or worker.desired.deletion is not None or has_ended(worker.desired, worker.facts):
            return False
        log.info("Ending pod", pod=worker.desired.ref, pod_uid=uid, reason=reason, err=message)
        worker.delete(
            Deletion(
                requested_at=self._clock.monotonic(),
                grace_seconds=own_grace_seconds(worker.desired.pod)
                if grace_seconds is None
                else grace_seconds,
                reason=reason,
                message=message,
                over_own_limit=over_own_limit,
                has_succeeded=has_succeeded,
            )
        )
        return True

    def hasten(self, uid: PodUid, *, grace_seconds: int) -> None:
        """Shorten the grace period of a pod that is ending, to at most `grace_seconds` from now.

        A pod that is not ending is left unchanged.
        """
        worker = self.workers.get(uid)
        if worker is None or worker.desired.deletion is None or has_ended(worker.desired, worker.facts):
            return
        now = self._clock.monotonic()
        worker.delete(replace(worker.desired.deletion, requested_at=now, grace_seconds=grace_seconds))
