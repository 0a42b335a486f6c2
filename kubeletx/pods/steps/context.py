"""`StepContext`: the objects and methods that a step (the code of one action) may use; rules for errors of runtimes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import msgspec
import structlog

from kubeletx.api import KubeletxError, PodUid, TimedOut, Unavailable, Unsupported
from kubeletx.kube.types.core import Container, LifecycleHandler, Pod
from kubeletx.runtimes.handles.handle import RuntimeHandle

from ..dependencies import PodDependencies
from ..model.actions import RunPostStart, StopUnit
from ..model.facts import DesiredPod, Now, PodFacts
from ..model.results import Result, Together, Unsettled
from ..overrides import OverrideFiles
from ..pod_events import PodEvents
from ..preemption import Preemption
from ..worker import PodWorker
from ..workloads.overrides import PodOverrides
from .spec_builder import SpecBuilder

log = structlog.get_logger(__name__)

T = TypeVar("T")


class StepContext(msgspec.Struct, frozen=True, kw_only=True):
    """Objects that the step of one action may use. One is created for each action of a pod's worker.

    Properties such as `desired` and `facts` return the worker's newest value at each access.
    """

    deps: PodDependencies
    specs: SpecBuilder
    preemption: Preemption
    overrides: OverrideFiles
    worker: PodWorker
    now: Callable[[], Now]
    """Function that returns the present wall-clock and monotonic time."""

    @property
    def desired(self) -> DesiredPod:
        return self.worker.desired

    @property
    def pod(self) -> Pod:
        return self.worker.desired.pod

    @property
    def uid(self) -> PodUid:
        return self.worker.desired.uid

    @property
    def facts(self) -> PodFacts:
        return self.worker.facts

    @property
    def handle(self) -> RuntimeHandle:
        """Handle of the pod's runtime. Raises Unavailable if the runtime is no longer configured."""
        name = self.worker.facts.runtime
        handle = self.deps.registry.find(name) if name is not None else None
        if handle is None:
            raise Unavailable(f"runtime {name} is not configured", reason="RuntimeNotFound")
        return handle

    @property
    def events(self) -> PodEvents:
        return PodEvents(self.deps.events, self.pod)

    def normal(self, reason: str, message: str, *, container: str = "") -> None:
        """Record a Normal event about the pod or, if `container` is not empty, about this container of it."""
        self.events.normal(reason, message, container=container)

    def warning(self, reason: str, message: str, *, container: str = "") -> None:
        """Record a Warning event about the pod or, if `container` is not empty, about this container of it."""
        self.events.warning(reason, message, container=container)

    def call_failed(
        self,
        error: KubeletxError,
        problem: str,
        event: str,
        text: str,
        *,
        container: str = "",
        **more: object,
    ) -> None:
        """Log `problem`, a constant text, about a failed call of the runtime, and record Warning `event` with `text`.

        If the runtime did not answer, only a debug line is logged: one outage would cause many events, and is logged
        elsewhere. `event`: empty: record no event. `more`: further fields of the log line.
        """
        level = log.debug if isinstance(error, Unavailable) else log.warning
        if event and not isinstance(error, Unavailable):
            self.warning(event, text, container=container)
        if container:
            more = {"container": container, **more}
        level(problem, pod=self.desired.ref, **more, err=str(error))

    async def amend(self, change: Callable[[PodOverrides], PodOverrides]) -> None:
        """Apply `change` to the pod's overrides; write them to the disk, then set them in the worker's facts.

        Raises Unavailable if they cannot be written.
        """
        await self.overrides.amend(self.worker, change)

    async def run_hook(
        self,
        handler: LifecycleHandler,
        container: Container,
        action: RunPostStart | StopUnit,
        *,
        seconds: float | None,
    ) -> str:
        """Run a postStart or preStop hook. Return the text of its failure; empty if it succeeded.

        `seconds`: deadline of the hook; None: no deadline.
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


def after_error(error: KubeletxError, now: Now, result: Result) -> Result:
    """Return `result`; if the call timed out, return it together with `Unsettled`.

    A call that timed out may still take effect. With `Unsettled`, the pod is not changed further until the runtime's
    state was read again by a query that began after `now`.
    """
    if isinstance(error, TimedOut):
        return Together((result, Unsettled(now.mono)))
    return result


def require(handle: RuntimeHandle, protocol: type[T], what: str) -> T:
    """Return the capability of the runtime; raise Unsupported if it has none. `what`: such as ``resize its units``."""
    capability = handle.capability(protocol)
    if capability is None:
        raise Unsupported(f"runtime {handle.name} cannot {what}")
    return capability
