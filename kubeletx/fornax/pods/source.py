"""Pod source ``fornax`` of the pod manager: the pods of cores.

A core gets its answer at once, so no pod waits for the end of another source's pod.
"""

from __future__ import annotations

from kubeletx.api import Conflict, PodUid
from kubeletx.kube.types.core import Pod
from kubeletx.pods import PodManager
from kubeletx.pods.model.sources import FORNAX, Refused, WaitsFor


def start_pod(manager: PodManager, pod: Pod) -> None:
    """Start the pod, or continue it after a restart of the agent.

    Raises Conflict if a pod of another source has its name or its UID.
    """
    match manager.update(FORNAX, pod):
        case Refused(message=message):
            raise Conflict(message, reason="UidTaken")
        case WaitsFor(source=source, ref=ref) if source != FORNAX:
            manager.remove(FORNAX, pod.uid)
            raise Conflict(f"pod {ref} of source {source!r} has the same name", reason="NameTaken")


def is_here(manager: PodManager, uid: PodUid) -> bool:
    """Return True if something of the pod may be left on the node, or if it waits for an earlier one."""
    worker = manager.workers.get(uid)
    if worker is not None:
        return worker.desired.source == FORNAX
    return any(queued.uid == uid for queued in manager.queued())
