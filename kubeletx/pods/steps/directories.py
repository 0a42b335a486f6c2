"""Removes the cgroup, data directory and logs of a deleted pod."""

from __future__ import annotations

import structlog

from kubeletx.api import KubeletxError

from ..model import results
from ..model.results import Result
from .context import StepContext

log = structlog.get_logger(__name__)


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
