"""Remove what a pod leaves on the node: cgroup, data directory, logs."""

from __future__ import annotations

import structlog

from kubeletx.api import KubeletxError

from ..model import changes
from ..model.changes import Change
from .context import StepContext

log = structlog.get_logger(__name__)


async def remove_directories(step: StepContext) -> Change:
    """Refuses to remove a directory in which something is still mounted; tried again with back-off."""
    try:
        await step.specs.remove(step.pod)
    except KubeletxError as error:
        log.warning("Failed to remove directories", pod=step.desired.ref, err=str(error))
        return changes.stop_failed("FailedCleanup", str(error))
    return changes.directories_gone
