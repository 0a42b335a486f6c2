"""`check_standby`: rejects a pod that rests by its annotation on a runtime that cannot freeze containers."""

from __future__ import annotations

from kubeletx.api import SupportsStandby, Traits, names
from kubeletx.kube.types.core import Pod

from ...model.facts import Rejection
from ..workload import RuntimeTraits


def check_standby(pod: Pod, runtime: RuntimeTraits, traits: Traits | None) -> Rejection | None:
    """Reject a pod with annotation ``kubeletx.io/standby`` if its runtime cannot freeze containers.

    `traits`: traits of the runtime; None: it has not answered yet, and the pod is not rejected.
    """
    if names.STANDBY not in pod.metadata.annotations or traits is None:
        return None
    if runtime.capability(SupportsStandby) is not None:
        return None
    return Rejection(
        reason=names.RUNTIME_UNSUPPORTED,
        message="the pod's runtime cannot do what the pod needs: standby "
        f"(metadata.annotations[{names.STANDBY}]); remove the annotation or choose a runtime that freezes containers",
    )
