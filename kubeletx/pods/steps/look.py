"""Reads the present state of one pod from its runtime."""

from __future__ import annotations

from msgspec.structs import replace

from kubeletx.api import KubeletxError

from ..model import results
from ..model.results import Result
from ..plan.progress import is_blind
from .context import StepContext


async def look(step: StepContext) -> Result:
    """Read the pod's state from its runtime. The runtime's handle keeps the resulting `PodSnapshot`.

    If the runtime does not answer, or the answer lacks details of a unit, the result makes the worker repeat this.
    """
    try:
        snapshot = await step.handle.look(step.uid)
    except KubeletxError:
        return results.LookFailed()
    # A runtime that lists a unit without its details is queried again, but not at once.
    if is_blind(replace(step.facts, snapshot=snapshot)):
        return results.LookFailed(answered=True)
    return results.Nothing()
