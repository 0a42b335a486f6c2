"""Steps for the pod's files on the node: its volumes, its overrides file, and the removal of its directories."""

from __future__ import annotations

import structlog
from msgspec.structs import replace

from kubeletx.api import KubeletxError
from kubeletx.api.names import Event

from ..model import results
from ..model.results import Result
from ..workloads.overrides import PodOverrides
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
    return results.Together((results.EarlierRuns(before), results.VolumesReady(began)))


async def release_volumes(step: StepContext) -> Result:
    """Unmount and remove the pod's volumes. Directories that hostPath volumes refer to are not changed."""
    try:
        await step.specs.release(step.desired)
    except KubeletxError as error:
        log.warning("Failed to release volumes", pod=step.desired.ref, err=str(error))
        step.warning(Event.FAILED_KILL_POD, str(error))
        return results.ReleaseFailed("FailedUnmount", str(error))
    return results.VolumesReleased()


async def read_overrides(step: StepContext) -> Result:
    """Load the pod's overrides file into the worker's facts, unless that was done."""
    try:
        await step.overrides.ensure_read(step.worker)
    except KubeletxError as error:
        log.warning("Failed to read the requests for a pod", pod=step.desired.ref, err=str(error))
        return results.OverridesFailed(error.reason or "", str(error))
    return results.Nothing()


async def drop_override(step: StepContext) -> Result:
    """Remove an operator's power request from the pod's overrides, because the spec's power changed after it."""
    try:
        await step.amend(_without_power)
    except KubeletxError as error:
        log.warning("Failed to drop a request for a pod", pod=step.desired.ref, err=str(error))
        return results.OverridesFailed(error.reason or "", str(error))
    return results.Nothing()


def _without_power(overrides: PodOverrides) -> PodOverrides:
    return replace(overrides, power="", power_spec="")


async def remove_directories(step: StepContext) -> Result:
    """Remove the pod's cgroup, data directory and logs.

    Fails, and is retried with back-off, while something is mounted in one of the directories.
    """
    try:
        await step.specs.remove(step.pod)
    except KubeletxError as error:
        log.warning("Failed to remove directories", pod=step.desired.ref, err=str(error))
        return results.StopFailed("FailedCleanup", str(error))
    return results.DirectoriesGone()
