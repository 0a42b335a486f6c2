"""Prepare a pod's volumes before it starts, release them after it stopped."""

from __future__ import annotations

import structlog

from kubeletx.api import KubeletxError
from kubeletx.api.names import Event

from ..model import results
from ..model.results import Result
from .context import StepContext

log = structlog.get_logger(__name__)


async def prepare_volumes(step: StepContext) -> Result:
    """Make directories, files and mounts on the node; the runtime brings volumes into a guest later."""
    pod, began = step.pod, step.now().mono
    try:
        before = await step.specs.prepare(step.desired)
    except KubeletxError as error:
        step.warning(Event.FAILED_MOUNT, str(error))
        return results.VolumesFailed(error.reason or Event.FAILED_MOUNT, str(error))
    # A spec that came meanwhile (a source claimed a pod that was found again) has volumes of its own.
    if step.pod is not pod:
        return results.Nothing()
    return results.Together((results.RanBefore(before), results.VolumesReady(began)))


async def release_volumes(step: StepContext) -> Result:
    """Release the pod's volumes; targets of hostPath are left unchanged."""
    try:
        await step.specs.release(step.desired)
    except KubeletxError as error:
        log.warning("Failed to release volumes", pod=step.desired.ref, err=str(error))
        return results.VolumesFailed("FailedUnmount", str(error))
    return results.VolumesReleased()
