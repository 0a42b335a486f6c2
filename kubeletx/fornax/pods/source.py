"""`CoreSource`: passes the pods of cores to the pod manager, as the pod source ``fornax``."""

from __future__ import annotations

from collections.abc import Container

from kubeletx.api import Conflict, PodUid
from kubeletx.kube.types.core import Pod
from kubeletx.pods import DesiredPod, PodManager
from kubeletx.pods.model.sources import FORNAX, Refused, WaitsFor


class CoreSource:
    """The pod source of cores. A core gets its answer at once, so no pod waits for another source's pod to end."""

    def __init__(self, manager: PodManager) -> None:
        self._manager = manager

    def start(self, pod: Pod) -> None:
        """Start the pod, or continue it after a restart of the agent.

        Raises Conflict if a pod of another source has its name or its UID.
        """
        outcome = self._manager.update(FORNAX, pod)
        match outcome:
            case Refused(message=message):
                raise Conflict(message, reason="UidTaken")
            case WaitsFor(source=source, ref=ref) if source != FORNAX:
                self._manager.remove(FORNAX, pod.uid)
                raise Conflict(f"pod {ref} of source {source!r} has the same name", reason="NameTaken")

    def remove(self, uid: PodUid) -> None:
        """End the pod within its own grace period. Does nothing if it is gone."""
        self._manager.remove(FORNAX, uid)

    def is_here(self, uid: PodUid) -> bool:
        """Return True if something of the pod may be left on the node, or if it waits for an earlier one."""
        worker = self._manager.workers.get(uid)
        if worker is not None:
            return worker.desired.source == FORNAX
        return any(queued.uid == uid for queued in self._manager.queued())

    def strays(self, known: Container[PodUid]) -> list[DesiredPod]:
        """Return the pods of this source that are not in `known` and that nothing ends yet."""
        return [
            desired
            for desired in self._manager.desired()
            if desired.source == FORNAX and desired.deletion is None and desired.uid not in known
        ]
