"""`WorkloadStep`: the interface that steps of a workload's own actions may use.

`steps.own.OwnStep` implements it.
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
    """Objects that one action of one pod may use.

    `desired` and `facts` are the newest ones at each access.
    """

    @property
    def now(self) -> Callable[[], Now]:
        """Function that returns the present moment on both clocks."""
        ...

    @property
    def desired(self) -> DesiredPod:
        """The newest desired state of the pod."""
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
        """Record a Normal event about the pod or, if given, its container."""
        ...

    def warning(self, reason: str, message: str, *, container: str = "") -> None:
        """Record a Warning event about the pod or, if given, its container."""
        ...

    async def amend(self, change: Callable[[PodOverrides], PodOverrides]) -> None:
        """Change the pod's overrides, on the disk before in memory.

        Raises Unavailable if they cannot be written.
        """
        ...

    def count(self, pod: Pod) -> None:
        """Count the pod on the node with the resources of this spec. Raises Conflict if they do not fit."""
        ...

    def resources(self, name: str) -> Resources:
        """Resources that a living unit is to have now."""
        ...

    def resize_failed(self, name: str, error: KubeletxError, otherwise: str, *, may_heal: bool) -> Result:
        """Return the result of a failed resize, with an event if the error is new.

        `otherwise`: the reason, if the error has none. `may_heal`: retry with back-off.
        """
        ...
