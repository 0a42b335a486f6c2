"""`WorkloadStep`: what the steps of actions that only one kind of workload has, such as machines, may use.

A step is the function that carries out an action. `steps.own.OwnStep` implements the interface.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from kubeletx.api import KubeletxError, Resources
from kubeletx.kube.types.core import Pod
from kubeletx.runtimes.handles.handle import RuntimeHandle

from ..model.facts import DesiredPod, Now, PodFacts
from ..model.results import Result
from .overrides import PodOverrides


class WorkloadStep(Protocol):
    """Objects and methods that the step of one action of one pod may use.

    `desired` and `facts` return the newest value at each access.
    """

    @property
    def now(self) -> Callable[[], Now]:
        """Function that returns the present wall-clock and monotonic time."""
        ...

    @property
    def desired(self) -> DesiredPod:
        """The newest desired state of the pod."""
        ...

    @property
    def facts(self) -> PodFacts:
        """The newest facts about the pod."""
        ...

    @property
    def handle(self) -> RuntimeHandle:
        """Handle of the pod's runtime. Raises Unavailable if the runtime is no longer configured."""
        ...

    def normal(self, reason: str, message: str, *, container: str = "") -> None:
        """Record a Normal event about the pod or, if `container` is not empty, about this container of it."""
        ...

    def warning(self, reason: str, message: str, *, container: str = "") -> None:
        """Record a Warning event about the pod or, if `container` is not empty, about this container of it."""
        ...

    def standby_changed(self, operation: str, seconds: float, freed_bytes: int) -> None:
        """Count a call that froze, hibernated or thawed a container.

        `operation`: freeze, hibernate or thaw. `freed_bytes`: memory that the container gave back.
        """
        ...

    async def amend(self, change: Callable[[PodOverrides], PodOverrides]) -> None:
        """Apply `change` to the pod's overrides; write them to disk, then put them into the worker's facts.

        Raises Unavailable if they cannot be written.
        """
        ...

    def count(self, pod: Pod) -> None:
        """Reserve the resources of this version of the pod on the node, in place of its present reservation.

        Raises Conflict, and changes nothing, if they do not fit.
        """
        ...

    def resources(self, name: str) -> Resources:
        """Compute the resources that the pod's running container or machine `name` should have now."""
        ...

    def resize_failed(self, name: str, error: KubeletxError, otherwise: str, *, may_heal: bool) -> Result:
        """Return the result of a failed resize of machine `name`; record an event if the error is new.

        `otherwise`: reason to use unless the error's reason is Deferred or Infeasible. `may_heal`: retry with
        back-off; False: retry only after the pod was edited.
        """
        ...
