"""Reads the termination message of an ended container."""

from __future__ import annotations

from kubeletx.api import KubeletxError
from kubeletx.kube.types.core import Container

from ..model import results
from ..model.actions import ReadMessage
from ..model.results import Result
from ..model.roles import find_unit
from .context import StepContext


async def read_message(step: StepContext, action: ReadMessage) -> Result:
    """Read the termination message of the action's unit. An empty message is stored, too, so it is read only once."""
    message = ""
    container = find_unit(step.pod, action.name)
    snapshot = step.facts.snapshot
    status = snapshot.status_of(action.unit_id) if snapshot is not None else None
    if isinstance(container, Container):
        failed = status is None or status.exit_code != 0
        try:
            message = await step.deps.directories.read_message(
                step.pod, container, action.attempt, failed=failed
            )
        except KubeletxError as error:
            message = f"Error on reading termination message: {error}"
    return results.MessageRead(action.name, action.unit_id, message)
