"""`StatusBoard`: keeps the newest status of every pod and notifies listeners of changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kubeletx.api import PodUid
from kubeletx.kube.types.core import PodStatus

from ..model.facts import DesiredPod, PodFacts

Listener = Callable[[DesiredPod, PodFacts, PodStatus | None], None]
"""Function called with (pod, facts, status) when a pod's status changed; status None: the pod is gone.

It is called from the event loop and must return quickly.
"""


class StatusBoard:
    """Holds the newest status of every pod and calls listeners when the status of one changes."""

    def __init__(self) -> None:
        self._statuses: dict[PodUid, PodStatus] = {}
        self._listeners: list[Listener] = []

    @property
    def statuses(self) -> Mapping[PodUid, PodStatus]:
        return self._statuses

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` on every later change of a pod's status. Return a function that removes the listener."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def put(self, desired: DesiredPod, facts: PodFacts, status: PodStatus) -> bool:
        """Store the pod's status. If it differs from the stored one, call the listeners and return True, else False."""
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
