"""`present`: adds the status, the runtime and the time of deletion to a pod, as kubectl would show them."""

from __future__ import annotations

from datetime import timedelta

from msgspec.structs import replace

from kubeletx.api import names
from kubeletx.kube.types.core import Pod, PodStatus
from kubeletx.pods import DesiredPod, Now, PodFacts

PROBLEM = "kubeletx.io/manifest-problem"
"""Annotation of a pod whose manifest has become invalid; the pod continues to run with its last valid manifest."""


def present(
    desired: DesiredPod, facts: PodFacts | None, status: PodStatus | None, now: Now, *, orphaned: bool = False
) -> Pod:
    """Return the pod as kubectl would show it: the desired pod with status, deletion timestamp and annotations.

    `facts` None: the pod waits for the end of an older pod of its name. `status` None: shown as Pending. `orphaned`:
    mark the pod with an annotation as claimed by no pod source.
    """
    pod = desired.pod
    annotations = dict(pod.metadata.annotations)
    if facts is not None and facts.runtime is not None:
        annotations[names.BOUND_RUNTIME] = str(facts.runtime)
    if orphaned:
        annotations[names.ORPHANED] = "true"
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
