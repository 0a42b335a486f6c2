"""Ask the bound runtime about one pod."""

from __future__ import annotations

from msgspec.structs import replace

from kubeletx.api import KubeletxError

from ..model import results
from ..model.results import Result
from ..plan.progress import is_blind
from .context import StepContext


async def look(step: StepContext) -> Result:
    """Read the pod's state from its runtime, whose handle keeps the snapshot.

    Without an answer, or if units lack their details, the look is planned again.
    """
    try:
        snapshot = await step.handle.look(step.uid)
    except KubeletxError:
        return results.LookFailed()
    # A runtime that lists a thing and tells nothing of it is asked again, but not at once.
    return results.LookFailed() if is_blind(replace(step.facts, snapshot=snapshot)) else results.Nothing()
