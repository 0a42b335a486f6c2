"""`PodEvents`: records events about one pod; removes credentials in image URLs from the messages."""

from __future__ import annotations

import msgspec

from kubeletx.api import EventSink, without_credentials
from kubeletx.kube.types.core import Pod

from .model.roles import all_units, field_of, pod_ref


class PodEvents(msgspec.Struct, frozen=True):
    """Recorder of events about one pod.

    `container`, a parameter of the methods: name of the container that the event is about; empty for the whole pod.
    """

    sink: EventSink
    pod: Pod

    def normal(self, reason: str, message: str, *, container: str = "") -> None:
        """Record a Normal event."""
        self._record("Normal", reason, message, container)

    def warning(self, reason: str, message: str, *, container: str = "") -> None:
        """Record a Warning event."""
        self._record("Warning", reason, message, container)

    def _record(self, type_: str, reason: str, message: str, container: str) -> None:
        pod = self.pod
        field = field_of(pod, container) if container else ""
        self.sink.record(pod_ref(pod, field), type=type_, reason=reason, message=_public(message, pod))


def _public(message: str, pod: Pod) -> str:
    """Remove credentials of the pod's image URLs from the message."""
    if "@" not in message:  # a pod of a thousand containers has as many images to compare
        return message
    for unit in all_units(pod):
        image = unit.image or ""
        shown = without_credentials(image)
        if shown != image:
            message = message.replace(image, shown)
    return message
