"""How desired pods reach the manager: `PodSink`, fed by every pod source.

A source reports changes, one pod at a time, and says once when its first complete set was delivered.
Until every configured source has said so, nothing is cleaned up (kubelet S4). A source never deletes
by silence: a pod goes only by `remove`.
"""

from __future__ import annotations

from typing import Protocol

from kubeletx.api import InvalidPod, PodUid
from kubeletx.kube.types.core import Pod

FILE = "file"
URL = "http"
APPLIED = "applied"
API = "api"
"""Names of the built-in sources, as in annotation ``kubernetes.io/config.source``."""


class PodSink(Protocol):
    """The manager's side. All calls are synchronous, quick, and made from the event loop."""

    def update(self, source: str, pod: Pod) -> None:
        """The pod is wanted like this now. `pod.metadata.uid` is set, defaults are applied."""
        ...

    def remove(self, source: str, uid: PodUid, grace_seconds: int | None = None, force: bool = False) -> None:
        """The pod is no longer wanted. None: the pod's own grace period. `force`: do not wait for a
        runtime that does not answer (DECISIONS 11). Unknown uids are ignored."""
        ...

    def synced(self, source: str) -> None:
        """Everything this source has at present was delivered at least once."""
        ...

    def invalid(self, source: str, origin: str, error: InvalidPod, uid: PodUid | None = None) -> None:
        """`origin` (a file or URL) cannot be used. With `uid`: the pod that it stood for goes on running
        and shows the error."""
        ...

    def valid(self, source: str, origin: str) -> None:
        """`origin` can be used again, or is gone: its error is forgotten."""
        ...
