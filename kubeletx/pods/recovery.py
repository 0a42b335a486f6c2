"""Recovery of pods after a restart: from bindings, then from the runtimes' lists; pure apart from reading both.

A binding with a record resumes with the full spec. A binding without one (the history was lost), and a pod on a runtime
without a binding (the database was lost), resume from the sandbox's own labels and annotations: enough to show it, to
keep it, and to stop it with its own grace period (DECISIONS 7 in docs/decisions/answers.md).
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from kubeletx.api import PodUid, RuntimeName
from kubeletx.api.names import (
    DISRUPTION_TARGET,
    POD_GRACE_SECONDS,
    POD_NAME,
    POD_NAMESPACE,
    POD_SOURCE,
    POD_SPEC_HASH,
    TERMINATED,
)
from kubeletx.kube.manifests.hashes import pod_hash
from kubeletx.kube.text.numbers import INT32_MAX, whole_number
from kubeletx.kube.types.core import ObjectMeta, Pod, PodSpec, PodStatus
from kubeletx.kube.validation import words
from kubeletx.runtimes.binding.bindings import Binding
from kubeletx.runtimes.handles.snapshots import PodSnapshot
from kubeletx.runtimes.registry import RuntimeRegistry

from .model.facts import DesiredPod
from .model.frame import at_ns
from .model.phase import PENDING
from .model.sources import BUILT_IN, SourceTable
from .records import PodRecord

UNKNOWN_SOURCE = "unknown"
FOUND_WITHOUT_HISTORY = "found again on its runtime after the database was lost"
"""`Binding.why` of a pod that stays as an orphan, over restarts too, until a source claims it (DECISIONS 8)."""


class RecoveredPod(msgspec.Struct, frozen=True, kw_only=True):
    """A pod that existed before this process. `status`: the last one that was stored; None: none.

    `has_record`: the database had its spec.
    """

    desired: DesiredPod
    runtime: RuntimeName
    binding: Binding | None = None
    status: PodStatus | None = None
    has_record: bool = False

    @property
    def is_without_history(self) -> bool:
        """True if only its runtime has data about the pod, because the database was lost."""
        return not self.has_record and self.binding is not None and self.binding.why == FOUND_WITHOUT_HISTORY


def find_again(
    registry: RuntimeRegistry, records: Mapping[PodUid, PodRecord], sources: SourceTable = BUILT_IN
) -> list[RecoveredPod]:
    """Every bound pod of this agent, in the order of binding."""
    found = []
    for binding in registry.bindings().values():
        if binding.owner != "pod":
            continue
        record = records.get(binding.uid)
        if record is not None:
            desired = DesiredPod(
                uid=binding.uid,
                pod=record.pod,
                source=record.source,
                spec_hash=pod_hash(record.pod),
            )
        else:
            handle = registry.find(binding.runtime)
            snapshot = handle.snapshot(binding.uid) if handle is not None else None
            desired = _created(orphan_pod(binding.uid, snapshot) or _from_binding(binding), binding)
        found.append(
            RecoveredPod(
                desired=desired,
                runtime=binding.runtime,
                binding=binding,
                status=_after_shutdown(record, sources) if record is not None else None,
                has_record=record is not None,
            )
        )
    return found


def orphan_pod(uid: PodUid, snapshot: PodSnapshot | None) -> DesiredPod | None:
    """Rebuild a pod from the sandbox's labels and annotations; None without a valid sandbox."""
    if snapshot is None or not snapshot.sandboxes:
        return None
    sandbox = snapshot.sandboxes[0]
    notes = sandbox.annotations
    name = sandbox.labels.get(POD_NAME, sandbox.name)
    namespace = sandbox.labels.get(POD_NAMESPACE, sandbox.namespace)
    if words.uid(uid) or words.dns_subdomain(name) or words.dns_label(namespace):
        return None  # no pod of ours has such a name; it would become part of paths
    pod = Pod(
        metadata=ObjectMeta(
            name=name,
            namespace=namespace,
            uid=uid,
            creation_timestamp=at_ns(sandbox.created_at_ns),
        ),
        spec=PodSpec(
            termination_grace_period_seconds=whole_number(notes.get(POD_GRACE_SECONDS), at_most=INT32_MAX),
            restart_policy="Always",
        ),
    )
    return DesiredPod(
        uid=uid,
        pod=pod,
        source=notes.get(POD_SOURCE, UNKNOWN_SOURCE),
        spec_hash=notes.get(POD_SPEC_HASH, ""),
    )


def _created(desired: DesiredPod, binding: Binding) -> DesiredPod:
    """Set the creation time: that of the binding, or of the sandbox if the binding was rewritten after a loss."""
    known = desired.pod.metadata.creation_timestamp
    created = min(known, binding.bound_at) if known is not None else binding.bound_at
    metadata = replace(desired.pod.metadata, creation_timestamp=created)
    return replace(desired, pod=replace(desired.pod, metadata=metadata))


def _after_shutdown(record: PodRecord, sources: SourceTable) -> PodStatus | None:
    """The stored status; a node-local pod that a shutdown of the host ended becomes Pending, so that it starts again.

    A cluster's pod stays Failed: its controller has created another one.
    """
    status = record.status
    if status is None or status.reason != TERMINATED or sources.of(record.source).is_cluster:
        return status
    kept = tuple(one for one in status.conditions if one.type != DISRUPTION_TARGET)
    return replace(status, phase=PENDING, reason=None, message=None, conditions=kept)


def _from_binding(binding: Binding) -> DesiredPod:
    pod = Pod(
        metadata=ObjectMeta(name=binding.name, namespace=binding.namespace, uid=binding.uid), spec=PodSpec()
    )
    return DesiredPod(uid=binding.uid, pod=pod, source=binding.source, spec_hash="")
