"""Remove what a pod leaves on the node: cgroup, data directory, logs."""

from __future__ import annotations

import structlog

from kubeletx.api import KubeletxError

from ..model import results
from ..model.results import Result
from .context import StepContext

log = structlog.get_logger(__name__)


async def remove_directories(step: StepContext) -> Result:
    """Remove the pod's directories. Refused, and retried with back-off, while something is mounted in one."""
    try:
        await step.specs.remove(step.pod)
    except KubeletxError as error:
        log.warning("Failed to remove directories", pod=step.desired.ref, err=str(error))
        return results.StopFailed("FailedCleanup", str(error))
    return results.DirectoriesGone()
