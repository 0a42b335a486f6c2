"""`StepContext`: what a step may use, and how it speaks to users."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec
from structlog.typing import FilteringBoundLogger

from kubeletx.api import KubeletxError, ObjectRef, PodUid, TimedOut, Unavailable
from kubeletx.kube.text.image_names import without_credentials
from kubeletx.kube.types.core import Pod
from kubeletx.runtimes.handles.handle import RuntimeHandle

from ..model.changes import Change, together, unsettled
from ..model.facts import DesiredPod, Now, PodFacts
from ..model.roles import all_units, field_of

if TYPE_CHECKING:
    from ..executor import PodServices
    from ..worker import PodWorker


class StepContext(msgspec.Struct, frozen=True, kw_only=True):
    """One action of one worker. `desired` and `facts` are read anew at each access."""

    services: PodServices
    worker: PodWorker

    @property
    def desired(self) -> DesiredPod:
        """The newest spec."""
        return self.worker.desired

    @property
    def pod(self) -> Pod:
        """The newest pod."""
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
        """The bound runtime. Raises Unavailable when the agent does not know it any more."""
        name = self.worker.facts.runtime
        handle = self.services.registry.find(name) if name is not None else None
        if handle is None:
            raise Unavailable(f"runtime {name} is not configured", reason="RuntimeNotFound")
        return handle

    def now(self) -> Now:
        """The present moment."""
        return self.services.now()

    def event(self, type_: str, reason: str, message: str, *, container: str = "") -> None:
        """Tell the pod's users. `container`: the event is about that one."""
        field = field_of(self.pod, container) if container else ""
        ref = ObjectRef(
            kind="Pod", name=self.pod.name, namespace=self.pod.namespace, uid=str(self.uid), field=field
        )
        self.services.events.record(ref, type=type_, reason=reason, message=_public(message, self.pod))

    def normal(self, reason: str, message: str, *, container: str = "") -> None:
        """A Normal event."""
        self.event("Normal", reason, message, container=container)

    def warning(self, reason: str, message: str, *, container: str = "") -> None:
        """A Warning event."""
        self.event("Warning", reason, message, container=container)


def _public(message: str, pod: Pod) -> str:
    """The message without what image URLs of the pod may hold of credentials."""
    for unit in all_units(pod):
        image = unit.image or ""
        shown = without_credentials(image)
        if shown != image:
            message = message.replace(image, shown)
    return message


def after_error(error: KubeletxError, now: Now, change: Change) -> Change:
    """`change`, and after a timeout the debt of a look that begins once the call can no longer happen."""
    if isinstance(error, TimedOut):
        return together(change, unsettled(now.mono))
    return change


def is_silence(error: KubeletxError) -> bool:
    """No answer rather than a refusal: nobody needs an event for each of these."""
    return isinstance(error, Unavailable)


def level_of(error: KubeletxError, log: FilteringBoundLogger) -> Callable[..., object]:
    """How to log a failed call: an outage of the runtime has a line of its own already."""
    return log.debug if is_silence(error) else log.warning
