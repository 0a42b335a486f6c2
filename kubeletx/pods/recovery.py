"""Recovery of pods after a restart of the agent, from stored bindings and from the runtimes' lists; otherwise pure.

A binding is the stored assignment of a pod to a runtime. A pod with a binding and a record resumes with its full spec.
A pod with a binding but no record (the history was lost), and a pod on a runtime without a binding (the database was
lost), resume from the labels and annotations of their sandbox: enough to show the pod, to keep it, and to stop it with
its own grace period (DECISIONS 7 in docs/decisions/answers.md).
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
"""Value of `Binding.why` for a pod that is kept as an orphan until a source claims it (DECISIONS 8).

It is stored, so that the pod is still an orphan after further restarts.
"""


class RecoveredPod(msgspec.Struct, frozen=True, kw_only=True):
    """A pod that existed before this process. `status`: its last stored status; None if none was stored.

    `has_record`: True if the database had the pod's spec.
    """

    desired: DesiredPod
    runtime: RuntimeName
    binding: Binding | None = None
    status: PodStatus | None = None
    has_record: bool = False

    @property
    def is_without_history(self) -> bool:
        """True if only the runtime has data about the pod, because the database was lost."""
        return not self.has_record and self.binding is not None and self.binding.why == FOUND_WITHOUT_HISTORY


def find_again(
    registry: RuntimeRegistry, records: Mapping[PodUid, PodRecord], sources: SourceTable = BUILT_IN
) -> list[RecoveredPod]:
    """Rebuild every pod that a stored binding assigns to a runtime, in the order of the bindings.

    `records`: stored specs and statuses; a pod without a record is rebuilt from its sandbox or its binding. `sources`:
    traits of the pods' sources.
    """
    recovered = []
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
        recovered.append(
            RecoveredPod(
                desired=desired,
                runtime=binding.runtime,
                binding=binding,
                status=_after_shutdown(record, sources) if record is not None else None,
                has_record=record is not None,
            )
        )
    return recovered


def orphan_pod(uid: PodUid, snapshot: PodSnapshot | None) -> DesiredPod | None:
    """Rebuild a pod from the labels and annotations of its newest sandbox.

    None if there is no sandbox, or if the UID, name or namespace is not valid in Kubernetes.
    """
    if snapshot is None or not snapshot.sandboxes:
        return None
    sandbox = snapshot.sandboxes[0]
    notes = sandbox.annotations
    name = sandbox.labels.get(POD_NAME, sandbox.name)
    namespace = sandbox.labels.get(POD_NAMESPACE, sandbox.namespace)
    if words.uid(uid) or words.dns_subdomain(name) or words.dns_label(namespace):
        return None  # pods of this agent have valid names, and the name would become part of a path
    pod = Pod(
        metadata=ObjectMeta(
            name=name,
            namespace=namespace,
            uid=uid,
            creation_timestamp=at_ns(sandbox.created_at_ns),
        ),
        spec=PodSpec(
            termination_grace_period_seconds=whole_number(notes.get(POD_GRACE_SECONDS), at_most=INT32_MAX),
            restart_policy="Always",  # the API's default: the sandbox does not record the policy
        ),
    )
    return DesiredPod(
        uid=uid,
        pod=pod,
        source=notes.get(POD_SOURCE, UNKNOWN_SOURCE),
        spec_hash=notes.get(POD_SPEC_HASH, ""),
    )


def _created(desired: DesiredPod, binding: Binding) -> DesiredPod:
    """Set the pod's creation time to the binding's, or to the sandbox's if the sandbox is older.

    The sandbox is older if the binding was written again after a loss of the database.
    """
    known = desired.pod.metadata.creation_timestamp
    created = min(known, binding.bound_at) if known is not None else binding.bound_at
    metadata = replace(desired.pod.metadata, creation_timestamp=created)
    return replace(desired, pod=replace(desired.pod, metadata=metadata))


def _after_shutdown(record: PodRecord, sources: SourceTable) -> PodStatus | None:
    """Return the stored status, changed to Pending for a node-local pod that a shutdown of the host ended.

    The pod then starts again. A pod of the cluster stays Failed: its controller has created another one.
    """
    status = record.status
    if status is None or status.reason != TERMINATED or sources.of(record.source).is_cluster:
        return status
    kept = tuple(condition for condition in status.conditions if condition.type != DISRUPTION_TARGET)
    return replace(status, phase=PENDING, reason=None, message=None, conditions=kept)


def _from_binding(binding: Binding) -> DesiredPod:
    pod = Pod(
        metadata=ObjectMeta(name=binding.name, namespace=binding.namespace, uid=binding.uid), spec=PodSpec()
    )
    return DesiredPod(uid=binding.uid, pod=pod, source=binding.source, spec_hash="")
