"""`OwnStep`: the step context for actions that only one kind of workload has."""

from __future__ import annotations

from collections.abc import Callable

from kubeletx.api import KubeletxError, Resources
from kubeletx.kube.types.core import Pod

from ..model.results import Result
from ..workloads.overrides import PodOverrides
from . import resize
from .context import StepContext


class OwnStep(StepContext, frozen=True, kw_only=True):
    """Step context that implements `workloads.step.WorkloadStep`."""

    @classmethod
    def of(cls, step: StepContext) -> OwnStep:
        """Make an `OwnStep` with the fields of a step context."""
        return cls(**{name: getattr(step, name) for name in step.__struct_fields__})

    async def amend(self, change: Callable[[PodOverrides], PodOverrides]) -> None:
        """Change the pod's overrides, on the disk before in memory.

        Raises Unavailable if they cannot be written.
        """
        await self.overrides.amend(self.worker, change)

    def count(self, pod: Pod) -> None:
        """Count the pod on the node with the resources of this spec. Raises Conflict if they do not fit."""
        resize.count(self, pod)

    def resources(self, name: str) -> Resources:
        """Resources that a living unit is to have now."""
        return self.specs.resources(self.pod, self.facts, name)

    def resize_failed(self, name: str, error: KubeletxError, otherwise: str, *, may_heal: bool) -> Result:
        """Return the result of a failed resize, with an event if the error is new.

        `otherwise`: the reason, if the error has none. `may_heal`: retry with back-off.
        """
        return resize.failed(self, name, "machine", error, otherwise, may_heal=may_heal)
