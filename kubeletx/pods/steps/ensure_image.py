"""Pulls a container's image to the image store of the pod's runtime (docs/kubelet-parity.md, row I1)."""

from __future__ import annotations

from ..model import results
from ..model.actions import EnsureImage
from ..model.results import Result
from ..model.roles import spec_of
from ..unit_images import ImageUser
from .context import StepContext


async def ensure_image(step: StepContext, action: EnsureImage) -> Result:
    """Make sure that the image of the action's container is available; pull it if the pull policy requires that."""
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
