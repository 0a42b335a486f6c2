"""The page of one pod as fragments. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

import msgspec

from kubeletx.kube.pod_summary import summarise
from kubeletx.kube.types.core import Pod
from kubeletx.kube.types.event import Event

from .live import Fragments
from .state import NodeState
from .templates import render
from .values import History
from .words import runtime_of, tone


class PodPage:
    """Renders the page of one pod. `history`: is set whenever it was read again."""

    def __init__(self, state: NodeState, namespace: str, name: str, now: Callable[[], datetime]) -> None:
        self._state = state
        self._namespace = namespace
        self._name = name
        self._now = now
        self.history = History()

    @property
    def pod(self) -> Pod | None:
        """The newest pod of this name; None if there is none any more."""
        for pod in reversed(self._state.pods.values()):
            if (pod.namespace, pod.name) == (self._namespace, self._name):
                return pod
        return None

    def fragments(self) -> Fragments:
        """Return the page as it is now."""
        pod = self.pod
        if pod is None:
            gone = render("pod_gone", namespace=self._namespace, name=self._name)
            return Fragments(parts={"pod-head": gone})
        summary = summarise(pod, self._now())
        return Fragments(
            parts={
                "pod-head": render(
                    "pod_head", pod=pod, summary=summary, tone=tone(summary.status), runtime=runtime_of(pod)
                ),
                "pod-events": render("pod_events", events=self._events(pod)),
            }
        )

    def _events(self, pod: Pod) -> Sequence[Event]:
        about = [
            event
            for event in self._state.events.values()
            if event.involved_object.kind == "Pod" and event.involved_object.uid == pod.uid
        ]
        return about[::-1][:100]


def masked(pod: Pod) -> str:
    """Return the pod as YAML without values of environment variables, and without annotations that repeat it."""
    return str(msgspec.to_builtins(pod))
