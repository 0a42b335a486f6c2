"""Prepares a pod's volumes before it starts, and releases them after it has stopped."""

from __future__ import annotations

import structlog

from kubeletx.api import KubeletxError
from kubeletx.api.names import Event

from ..model import results
from ..model.results import Result
from .context import StepContext

log = structlog.get_logger(__name__)


async def prepare_volumes(step: StepContext) -> Result:
    """Create the pod's directories and volumes on the node. Containers and guests get them when they are started."""
    pod, began = step.pod, step.now().mono
    try:
        before = await step.specs.prepare(step.desired)
    except KubeletxError as error:
        step.warning(Event.FAILED_MOUNT, str(error))
        return results.VolumesFailed(error.reason or Event.FAILED_MOUNT, str(error))
    # The pod object was replaced meanwhile, as when its source delivers a recovered pod; its volumes may differ.
    if step.pod is not pod:
        return results.Nothing()
    return results.Together((results.RanBefore(before), results.VolumesReady(began)))


async def release_volumes(step: StepContext) -> Result:
    """Unmount and remove the pod's volumes. Directories that hostPath volumes refer to are not changed."""
    try:
        await step.specs.release(step.desired)
    except KubeletxError as error:
        log.warning("Failed to release volumes", pod=step.desired.ref, err=str(error))
        step.warning(Event.FAILED_KILL_POD, str(error))
        return results.ReleaseFailed("FailedUnmount", str(error))
    return results.VolumesReleased()
