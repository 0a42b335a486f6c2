"""`check_standby`: holds back a pod whose annotations on standby request what its runtime cannot do."""

from __future__ import annotations

from kubeletx.api import SupportsStandby, Traits, names
from kubeletx.kube.types.core import Pod

from ...model.facts import Waiting
from ..workload import RuntimeTraits


def check_standby(pod: Pod, runtime: RuntimeTraits, traits: Traits | None) -> Waiting | None:
    """Return the waiting reason of a pod with annotation ``kubeletx.io/standby`` if its runtime cannot freeze containers.

    Also of one with annotation ``kubeletx.io/standby-strategy`` if the runtime does not have that strategy. None: the
    runtime can do it, or (`traits` None) has not answered yet.
    """
    if traits is None:
        return None
    notes = pod.metadata.annotations
    if names.STANDBY in notes and runtime.capability(SupportsStandby) is None:
        return Waiting(
            reason=names.RUNTIME_UNSUPPORTED,
            message="the pod's runtime cannot do what the pod needs: standby "
            f"(metadata.annotations[{names.STANDBY}]); remove the annotation or choose a runtime that can freeze pods",
        )
    strategy, known = notes.get(names.STANDBY_STRATEGY), traits.standby_strategies
    if strategy is None or strategy in known:
        return None
    field = f"metadata.annotations[{names.STANDBY_STRATEGY}]"
    if not known:
        problem = (
            "is set, but the pod's runtime has no strategies to choose from; remove the annotation or choose"
        )
        return Waiting(reason=names.RUNTIME_UNSUPPORTED, message=f"{field}: {problem} another runtime")
    return Waiting(
        reason=names.RUNTIME_UNSUPPORTED,
        message=f"{field}: {strategy!r} is not known to the pod's runtime; use one of: {', '.join(known)}",
    )
