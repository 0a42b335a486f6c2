"""`present`: adds to the pod of a source what a reader expects: its status, its runtime, its deletion."""

from __future__ import annotations

from datetime import timedelta

from msgspec.structs import replace

from kubeletx.api.names import BOUND_RUNTIME
from kubeletx.kube.types.core import Pod, PodStatus
from kubeletx.pods import DesiredPod, Now, PodFacts
from kubeletx.server.views import ORPHANED

PROBLEM = "kubeletx.io/manifest-problem"
"""Annotation: the source's manifest is invalid now; the pod runs on as it was before."""


def present(
    desired: DesiredPod, facts: PodFacts | None, status: PodStatus | None, now: Now, *, orphaned: bool = False
) -> Pod:
    """Return the pod as kubectl would show it. `facts` None: the pod waits for an older pod of its name to end."""
    pod = desired.pod
    annotations = dict(pod.metadata.annotations)
    if facts is not None and facts.runtime is not None:
        annotations[BOUND_RUNTIME] = str(facts.runtime)
    if orphaned:
        annotations[ORPHANED] = "true"
    if desired.problem:
        annotations[PROBLEM] = desired.problem
    metadata = replace(pod.metadata, annotations=annotations)
    if metadata.creation_timestamp is None and status is not None:
        metadata = replace(metadata, creation_timestamp=status.start_time)
    deletion = desired.deletion
    if deletion is not None and not deletion.reason:
        asked = now.wall - timedelta(seconds=now.mono - deletion.requested_at)
        metadata = replace(
            metadata,
            deletion_timestamp=asked + timedelta(seconds=deletion.grace_seconds),
            deletion_grace_period_seconds=deletion.grace_seconds,
        )
    return replace(pod, metadata=metadata, status=status or PodStatus(phase="Pending"))
