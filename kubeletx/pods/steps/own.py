"""`OwnStep`: the `StepContext` for actions that only one kind of workload has, such as machines."""

from __future__ import annotations

from collections.abc import Callable

from kubeletx.api import KubeletxError, Resources
from kubeletx.kube.types.core import Pod

from ..model.results import Result
from ..workloads.overrides import PodOverrides
from . import resize
from .context import StepContext


class OwnStep(StepContext, frozen=True, kw_only=True):
    """Step context with the additional methods of protocol `workloads.step.WorkloadStep`."""

    @classmethod
    def of(cls, step: StepContext) -> OwnStep:
        """Create an `OwnStep` with the fields of `step`."""
        return cls(**{name: getattr(step, name) for name in step.__struct_fields__})

    def standby_changed(self, operation: str, seconds: float, freed_bytes: int) -> None:
        """Count a call that froze, hibernated or thawed a container.

        `operation`: freeze, hibernate or thaw. `freed_bytes`: memory that the container gave back.
        """
        self.deps.counters.standby.add(seconds, operation)
        self.deps.counters.standby_freed_bytes += freed_bytes

    async def amend(self, change: Callable[[PodOverrides], PodOverrides]) -> None:
        """Apply `change` to the pod's overrides; write them to disk, then put them into the worker's facts.

        Raises Unavailable if they cannot be written.
        """
        await self.overrides.amend(self.worker, change)

    def count(self, pod: Pod) -> None:
        """Reserve the resources of this version of the pod on the node, in place of its present reservation.

        Raises Conflict, and changes nothing, if they do not fit.
        """
        resize.count(self, pod)

    def resources(self, name: str) -> Resources:
        """Compute the resources that the pod's running container or machine `name` should have now."""
        return self.specs.resources(self.pod, self.facts, name)

    def resize_failed(self, name: str, error: KubeletxError, otherwise: str, *, may_heal: bool) -> Result:
        """Return the result of a failed resize of machine `name`; record an event if the error is new.

        `otherwise`: reason to use unless the error's reason is Deferred or Infeasible. `may_heal`: retry with
        back-off; False: retry only after the pod was edited.
        """
        return resize.failed(self, name, "machine", error, otherwise, may_heal=may_heal)
