"""Runs a container's postStart hook.

The container counts as started once the hook is done (docs/kubelet-parity.md, row T1).
"""

from __future__ import annotations

from kubeletx.api.names import Event
from kubeletx.kube.types.core import Container

from ..model import results
from ..model.actions import RunPostStart
from ..model.facts import HookState
from ..model.results import Result
from ..model.roles import find_unit
from .context import StepContext


async def run_post_start(step: StepContext, action: RunPostStart) -> Result:
    """Run the postStart hook of the action's container, without a deadline, as the kubelet does.

    If the hook fails, the result makes the next plan kill the container.
    """
    container = find_unit(step.pod, action.name)
    if not isinstance(container, Container) or container.lifecycle is None:
        return results.HookNoted(action.name, action.unit_id, HookState.DONE)
    handler = container.lifecycle.post_start
    if handler is None:
        return results.HookNoted(action.name, action.unit_id, HookState.DONE)
    error = await step.run_hook(handler, container, action, seconds=None)
    if error:
        # The event omits the error: a hook's output may contain secrets, and more people can read events than pods.
        step.warning(Event.FAILED_POST_START_HOOK, "PostStartHook failed", container=action.name)
        return results.HookNoted(action.name, action.unit_id, HookState.FAILED, error)
    return results.HookNoted(action.name, action.unit_id, HookState.DONE)
