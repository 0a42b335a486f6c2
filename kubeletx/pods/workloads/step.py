"""`WorkloadStep`: what the steps of a workload's own actions may use; `steps.context.StepContext` has it all."""

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
    """One action of one pod. `desired` and `facts` are the newest ones at each access."""

    @property
    def now(self) -> Callable[[], Now]:
        """The present moment."""
        ...

    @property
    def desired(self) -> DesiredPod:
        """The newest spec."""
        ...

    @property
    def facts(self) -> PodFacts:
        """The newest facts."""
        ...

    @property
    def handle(self) -> RuntimeHandle:
        """The bound runtime. Raises Unavailable when it is no longer configured."""
        ...

    def normal(self, reason: str, message: str, *, container: str = "") -> None:
        """Record a Normal event."""
        ...

    def warning(self, reason: str, message: str, *, container: str = "") -> None:
        """Record a Warning event."""
        ...

    async def amend(self, change: Callable[[PodOverrides], PodOverrides]) -> None:
        """Change the pod's overrides: on the disk first. Raises Unavailable when they cannot be written."""
        ...

    def count(self, pod: Pod) -> None:
        """Count this form of the pod on the node. Raises Conflict when there is no room for it."""
        ...

    def resources(self, name: str) -> Resources:
        """Resources that a living unit is to have now."""
        ...

    def resize_failed(self, name: str, error: KubeletxError, otherwise: str, *, may_heal: bool) -> Result:
        """Report a failed resize once; `otherwise`: the reason, if the error has none of its own."""
        ...
