"""`require_seen`: checks that the pod's runtime has reported the pod since the agent started."""

from __future__ import annotations

from kubeletx.api import Unavailable
from kubeletx.api.names import RUNTIME_NOT_READY
from kubeletx.pods import PodExecutor, PodWorker


def require_seen(services: PodExecutor, worker: PodWorker) -> None:
    """Raise Unavailable if the pod's runtime does not answer, or has not listed the pod yet.

    Does nothing for a pod that is not assigned to a runtime. Raises NotFound if the runtime was removed from the node.
    """
    if worker.facts.runtime is None:
        return
    handle = services.registry.get(worker.facts.runtime)
    if not handle.state.reachable:
        text = f"runtime {handle.name} does not answer: {handle.state.message}"
        raise Unavailable(text, reason=RUNTIME_NOT_READY)
    if worker.facts.snapshot is None:
        text = f"runtime {handle.name} has not reported pod {worker.desired.ref} yet; try again"
        raise Unavailable(text, reason=RUNTIME_NOT_READY)
