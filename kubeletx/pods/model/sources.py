"""`PodSink`, through which every source delivers pods to the manager, and the traits of sources.

A source reports changes, one pod at a time, and says once when its first complete set was delivered.
Until every configured source is synced, nothing is cleaned up (kubelet S4). A pod that a source
no longer mentions is kept: only `remove` removes it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Protocol

import msgspec

from kubeletx.api import InvalidPod, PodUid
from kubeletx.kube.types.core import Pod

FILE = "file"
URL = "http"
APPLIED = "applied"
API = "api"
"""Names of the built-in sources, as in annotation ``kubernetes.io/config.source``."""


class SourceTraits(msgspec.Struct, frozen=True, kw_only=True):
    """Treatment of pods of one source, such as the cluster or manifest files: mirror pods, eviction, deletion.

    The defaults fit sources that are local to the node, such as manifest files.
    """

    name: str
    is_cluster: bool = False
    """True if the pods are objects of the cluster's API server, which gets their status."""
    mirrored: bool = True
    """True if the cluster shows a mirror pod for each pod of this source."""
    terminal_on_delete: bool = False
    """True: a deleted pod is reported as ended once nothing of it runs."""
    counts_overhead: bool = True
    """True if the runtime's own overhead counts for pods that declare none: no scheduler has counted it."""
    is_scheduled: bool = False
    """True if a scheduler chose this node by its labels and taints.

    A pod that does not fit them is then rejected.
    """
    is_critical: bool = False
    """True: the pods are never evicted."""
    tolerates_taints: bool = False
    """True if the pods tolerate every taint that would end them."""
    reclaims_after_loss: bool = False
    """True: after the loss of the state database, pods that the source does not deliver are stopped.

    False: kept.
    """
    remedy: str = "static pods: delete the manifest file"
    """Advice for removing a pod of this source."""


class SourceTable:
    """The traits of every source by name. A source that is not in the table has the default traits."""

    def __init__(self, sources: Iterable[SourceTraits]) -> None:
        self._traits = {one.name: one for one in sources}

    def of(self, name: str) -> SourceTraits:
        """The traits of the source."""
        return self._traits.get(name) or SourceTraits(name=name)

    def __contains__(self, name: str) -> bool:
        return name in self._traits

    def with_more(self, more: Iterable[SourceTraits]) -> SourceTable:
        """A copy of the table with these sources added."""
        return SourceTable((*self._traits.values(), *more))


BUILT_IN: Final = SourceTable(
    (
        SourceTraits(name=FILE, is_critical=True, tolerates_taints=True),
        SourceTraits(name=URL, is_critical=True),
        SourceTraits(name=APPLIED),
        SourceTraits(
            name=API,
            is_cluster=True,
            mirrored=False,
            terminal_on_delete=True,
            counts_overhead=False,
            is_scheduled=True,
            remedy="use kubectl delete",
        ),
    )
)
CLUSTER: Final = BUILT_IN.of(API)


class Accepted(msgspec.Struct, frozen=True):
    """Answer to `PodSink.update`: the pod was accepted and has a worker."""


class WaitsFor(msgspec.Struct, frozen=True):
    """Answer to `PodSink.update`: another pod with this namespace and name exists.

    The new one starts when it is gone.
    """

    ref: str
    """namespace/name"""
    uid: PodUid
    source: str

    @property
    def message(self) -> str:
        """Message for users."""
        return f"waits for the end of pod {self.ref} ({self.uid}) of source {self.source!r}"


class Refused(msgspec.Struct, frozen=True):
    """Answer to `PodSink.update`: the pod was refused, for the reason in `message`."""

    message: str


Outcome = Accepted | WaitsFor | Refused


class PodSink(Protocol):
    """Interface through which sources deliver pods.

    All methods are synchronous, quick, and called in the event loop.
    """

    def update(self, source: str, pod: Pod) -> Outcome:
        """Add or change a pod. `pod.metadata.uid` is set and defaults are applied.

        Returns Refused if a pod of another source has this UID.
        """
        ...

    def remove(self, source: str, uid: PodUid, grace_seconds: int | None = None, force: bool = False) -> None:
        """Remove a pod. `grace_seconds` None: the pod's own grace period.

        `force`: do not wait for a runtime that does not answer (DECISIONS 11 in docs/decisions/answers.md).
        Unknown UIDs, and those of another source, are ignored.
        """
        ...

    def synced(self, source: str) -> None:
        """Report that all pods this source has at present were delivered at least once."""
        ...

    def invalid(self, source: str, origin: str, error: InvalidPod, uid: PodUid | None = None) -> None:
        """Report that `origin` (a file or URL) is invalid. With `uid`: its pod runs on and shows the error."""
        ...

    def valid(self, source: str, origin: str) -> None:
        """Report that `origin` is valid again, or gone: its error is dropped."""
        ...
