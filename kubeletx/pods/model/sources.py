"""`PodSink`, through which every source delivers its pods to the pod manager, and the traits of sources.

A source is, for example, the API server or a directory of manifest files. It reports changes, one pod at a time,
and calls `synced` once, after it has delivered its first complete set of pods. The agent removes
leftovers of earlier runs only after all configured sources are synced (docs/kubelet-parity.md, row S4). A pod
is removed only by `remove`.
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
FORNAX = "fornax"
"""Names of the built-in sources, as in annotation ``kubernetes.io/config.source``."""


class SourceTraits(msgspec.Struct, frozen=True, kw_only=True):
    """Treatment of the pods of one source, for example whether they get mirror pods or may be evicted.

    The defaults fit a source on the node itself, such as the pods of ``kubeletx apply``.
    """

    name: str
    is_cluster: bool = False
    """True if the pods are objects of the cluster's API server, which gets their status."""
    mirrored: bool = True
    """True if the cluster shows a mirror pod for each pod of this source."""
    terminal_on_delete: bool = False
    """True: a deleted pod is reported as Failed or Succeeded once none of its containers runs."""
    counts_overhead: bool = True
    """True: admission adds the runtime's overhead for pods without `spec.overhead`; no scheduler has done so."""
    is_scheduled: bool = False
    """True if a scheduler assigned the pods to this node.

    Admission then also checks the node's taints. It reads the Node object again before it rejects a pod because
    of the node's labels or taints.
    """
    is_critical: bool = False
    """True: the pods are never evicted."""
    tolerates_taints: bool = False
    """True: each pod gets a toleration for every NoExecute taint."""
    reclaims_after_loss: bool = False
    """Decides about running pods that the source does not deliver after the agent lost its state database.

    True: stop them. False: keep them running.
    """
    remedy: str = "static pods: delete the manifest file"
    """Advice for users who want to remove a pod of this source."""


class SourceTable:
    """Table of the traits of sources by name. A source that is not in the table has the default traits."""

    def __init__(self, sources: Iterable[SourceTraits]) -> None:
        self._traits = {source.name: source for source in sources}

    def of(self, name: str) -> SourceTraits:
        """Return the traits of the source with this name; the default traits if it is unknown."""
        return self._traits.get(name) or SourceTraits(name=name)

    def __contains__(self, name: str) -> bool:
        return name in self._traits

    def with_more(self, more: Iterable[SourceTraits]) -> SourceTable:
        """Return a copy of the table with these sources added."""
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
        SourceTraits(
            name=FORNAX,
            mirrored=False,
            terminal_on_delete=True,
            reclaims_after_loss=True,
            remedy="terminate it at its FornaxCore",
        ),
    )
)
CLUSTER: Final = BUILT_IN.of(API)


class Accepted(msgspec.Struct, frozen=True):
    """Answer to `PodSink.update`: the pod was accepted and has a worker."""


class WaitsFor(msgspec.Struct, frozen=True):
    """Answer to `PodSink.update`: an older pod with the same namespace and name still exists.

    The new pod starts when the older one is gone. The fields describe the older pod.
    """

    ref: str
    """namespace/name"""
    uid: PodUid
    source: str

    @property
    def message(self) -> str:
        return f"waits for the end of pod {self.ref} ({self.uid}) of source {self.source!r}"


class Refused(msgspec.Struct, frozen=True):
    """Answer to `PodSink.update`: the pod was refused. `message`: the reason."""

    message: str


Outcome = Accepted | WaitsFor | Refused


class PodSink(Protocol):
    """Interface through which sources deliver pods. `source`: name of the calling source.

    All methods are synchronous and quick. They must be called from the event loop.
    """

    def update(self, source: str, pod: Pod) -> Outcome:
        """Add a pod, or change the pod with the same UID.

        The caller has set `pod.metadata.uid` and applied the defaults. Returns Refused if a pod of another source
        has this UID.
        """
        ...

    def remove(self, source: str, uid: PodUid, grace_seconds: int | None = None, force: bool = False) -> None:
        """Remove a pod. `grace_seconds` None: the pod's own grace period.

        `force`: do not wait for a runtime that does not answer (DECISIONS 11 in docs/decisions/answers.md).
        Unknown UIDs, and UIDs of another source, are ignored.
        """
        ...

    def synced(self, source: str) -> None:
        """Report that the source has delivered all of its present pods at least once."""
        ...

    def invalid(self, source: str, origin: str, error: InvalidPod, uid: PodUid | None = None) -> None:
        """Report that the manifest from `origin` (a file or URL) is invalid.

        `uid`: the pod that was created from an earlier, valid version; it keeps running and shows the error.
        """
        ...

    def valid(self, source: str, origin: str) -> None:
        """Report that the manifest from `origin` is valid again or gone, so that its error is dropped."""
        ...
