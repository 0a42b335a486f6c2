"""`OwnStep`: a step context as the actions of one workload see it."""

from __future__ import annotations

from collections.abc import Callable

from kubeletx.api import KubeletxError, Resources
from kubeletx.kube.types.core import Pod

from ..model.results import Result
from ..workloads.overrides import PodOverrides
from . import resize
from .context import StepContext


class OwnStep(StepContext, frozen=True, kw_only=True):
    """The `WorkloadStep` of `workloads.step`."""

    @classmethod
    def of(cls, step: StepContext) -> OwnStep:
        """The same context."""
        return cls(**{name: getattr(step, name) for name in step.__struct_fields__})

    async def amend(self, change: Callable[[PodOverrides], PodOverrides]) -> None:
        """Change the pod's overrides: on the disk first. Raises Unavailable when they cannot be written."""
        await self.overrides.amend(self.worker, change)

    def count(self, pod: Pod) -> None:
        """Count this form of the pod on the node. Raises Conflict when there is no room for it."""
        resize.count(self, pod)

    def resources(self, name: str) -> Resources:
        """Resources that a living unit is to have now."""
        return self.specs.resources(self.pod, self.facts, name)

    def resize_failed(self, name: str, error: KubeletxError, otherwise: str, *, may_heal: bool) -> Result:
        """Report a failed resize once; `otherwise`: the reason, if the error has none of its own."""
        return resize.failed(self, name, "machine", error, otherwise, may_heal=may_heal)
