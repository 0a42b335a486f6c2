"""Make sure that a container's image is in the store of the bound runtime (I1 in docs/kubelet-parity.md)."""

from __future__ import annotations

from ..model import results
from ..model.actions import EnsureImage
from ..model.results import Result
from ..model.roles import spec_of
from ..unit_images import ImageUser
from .context import StepContext


async def ensure_image(step: StepContext, action: EnsureImage) -> Result:
    """Pull the image if its pull policy demands it."""
    name, own_kernel = action.name, step.facts.own.has_own_kernel
    user = ImageUser(
        container=spec_of(step.pod, name, own_kernel=own_kernel),
        pod=step.pod,
        source=step.desired.source,
        has_own_kernel=own_kernel,
        handle=step.handle,
        events=step.events,
    )
    found = await step.deps.images.ensure(user)
    if found.status is not None:
        return results.ImagePresent(name, found.status)
    return results.ImageFailed(name, found.reason, found.message, found.retry_at)
