"""`StepContext`: the objects and methods that a step may use."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from kubeletx.api import PodUid, Unavailable
from kubeletx.kube.types.core import Container, LifecycleHandler, Pod
from kubeletx.runtimes.handles.handle import RuntimeHandle

from ..call_errors import after_error as after_error
from ..call_errors import is_silence as is_silence
from ..call_errors import level_of as level_of
from ..dependencies import PodDependencies
from ..model.actions import RunPostStart, StopUnit
from ..model.facts import DesiredPod, Now, PodFacts
from ..overrides import OverrideFiles
from ..pod_events import PodEvents
from ..preemption import Preemption
from ..worker import PodWorker
from .spec_builder import SpecBuilder


class StepContext(msgspec.Struct, frozen=True, kw_only=True):
    """Objects that one action of one worker may use.

    `desired` and `facts` are the newest ones at each access.
    """

    deps: PodDependencies
    specs: SpecBuilder
    preemption: Preemption
    overrides: OverrideFiles
    worker: PodWorker
    now: Callable[[], Now]
    """Returns the present moment on both clocks."""

    @property
    def desired(self) -> DesiredPod:
        """The newest desired state of the pod."""
        return self.worker.desired

    @property
    def pod(self) -> Pod:
        """The pod's newest API object."""
        return self.worker.desired.pod

    @property
    def uid(self) -> PodUid:
        """The pod's UID."""
        return self.worker.desired.uid

    @property
    def facts(self) -> PodFacts:
        """The newest facts."""
        return self.worker.facts

    @property
    def handle(self) -> RuntimeHandle:
        """The bound runtime. Raises Unavailable when it is no longer configured."""
        name = self.worker.facts.runtime
        handle = self.deps.registry.find(name) if name is not None else None
        if handle is None:
            raise Unavailable(f"runtime {name} is not configured", reason="RuntimeNotFound")
        return handle

    @property
    def events(self) -> PodEvents:
        """Recorder of events about the pod."""
        return PodEvents(self.deps.events, self.pod)

    def normal(self, reason: str, message: str, *, container: str = "") -> None:
        """Record a Normal event about the pod or, if given, its container."""
        self.events.normal(reason, message, container=container)

    def warning(self, reason: str, message: str, *, container: str = "") -> None:
        """Record a Warning event about the pod or, if given, its container."""
        self.events.warning(reason, message, container=container)

    async def run_hook(
        self,
        handler: LifecycleHandler,
        container: Container,
        action: RunPostStart | StopUnit,
        *,
        seconds: float | None,
    ) -> str:
        """Run a lifecycle hook; return the text of its failure, or an empty string.

        `seconds`: its deadline; None: none.
        """
        return await self.deps.hooks.run(
            handler,
            container,
            action.unit_id,
            facts=self.facts,
            host_network=bool(self.pod.spec.host_network),
            seconds=seconds,
            events=self.events,
        )
