"""The status board: the newest status of every pod, and listeners to changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kubeletx.api import PodUid
from kubeletx.kube.types.core import PodStatus

from ..model.facts import DesiredPod, PodFacts

Listener = Callable[[DesiredPod, PodFacts, PodStatus | None], None]
"""(pod, facts, status); status None: the pod is gone. Called from the event loop; must be quick."""


class StatusBoard:
    """Holds the newest status of every pod and calls listeners when the status of one changes."""

    def __init__(self) -> None:
        self._statuses: dict[PodUid, PodStatus] = {}
        self._listeners: list[Listener] = []

    @property
    def statuses(self) -> Mapping[PodUid, PodStatus]:
        """The newest status of each pod."""
        return self._statuses

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Call the listener on every change of a status; returns the function that removes the listener."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def put(self, desired: DesiredPod, facts: PodFacts, status: PodStatus) -> bool:
        """Store the pod's status; if it differs from the stored one, call the listeners and return True."""
        if self._statuses.get(desired.uid) == status:
            return False
        self._statuses[desired.uid] = status
        for listener in list(self._listeners):
            listener(desired, facts, status)
        return True

    def drop(self, desired: DesiredPod, facts: PodFacts) -> None:
        """Remove the status of a pod that is gone, if there is one, and call the listeners with status None."""
        if self._statuses.pop(desired.uid, None) is not None:
            for listener in list(self._listeners):
                listener(desired, facts, None)
