"""Controllers in manifests: a controller that makes exactly one pod is converted to that pod; others are refused.

| kind                    | pod      | if                                            |
|-------------------------|----------|-----------------------------------------------|
| Deployment, ReplicaSet  | `NAME`   | one replica                                   |
| DaemonSet               | `NAME`   |                                               |
| StatefulSet             | `NAME-0` | one replica; its claims become claims         |
| Job                     | `NAME`   | one completion, not Indexed, without policies |

Nothing replaces the pod: its restart policy restarts containers. A Job with policy Never is tried again as well, up to `backoffLimit`
times: its pod gets OnFailure, since there is no new pod for each try. Source: apps/v1, batch/v1; podman kube play.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from kubeletx.api import InvalidPod
from kubeletx.api.names import BACKOFF_LIMIT

from ..types.meta import ApiStruct, LabelSelector, ObjectMeta
from .convert import convert
from .unknown_fields import unknown_fields


class Controller(NamedTuple):
    """Kind of a controller. `restart_policies`: its pod may have one of these; the first is the default."""

    api_version: str
    restart_policies: tuple[str, ...] = ("Always",)
    counts: tuple[str, ...] = ("replicas",)
    """Fields with numbers of pods; each must be 1 or missing."""


CONTROLLERS: Final = {
    "Deployment": Controller("apps/v1"),
    "ReplicaSet": Controller("apps/v1"),
    "StatefulSet": Controller("apps/v1"),
    "DaemonSet": Controller("apps/v1", counts=()),
    "Job": Controller("batch/v1", ("Never", "OnFailure"), ("completions", "parallelism")),
}
_REFUSED: Final = {
    ("paused", True): "a paused Deployment makes no pod",
    ("suspend", True): "a suspended Job makes no pod",
    ("completionMode", "Indexed"): "an Indexed Job numbers its pods",
}
_RETRIES: Final = 6
"""backoffLimit of a Job without one."""
_POLICIES: Final = ("podFailurePolicy", "successPolicy")
_OF_CLUSTERS: Final = frozenset((
    "apiVersion", "kind", "status", "spec.strategy", "spec.updateStrategy", "spec.minReadySeconds", "spec.paused",
    "spec.revisionHistoryLimit", "spec.progressDeadlineSeconds", "spec.volumeClaimTemplates", "spec.podManagementPolicy",
    "spec.ordinals", "spec.persistentVolumeClaimRetentionPolicy", "spec.podFailurePolicy", "spec.successPolicy",
    "spec.backoffLimitPerIndex", "spec.maxFailedIndexes", "spec.manualSelector", "spec.ttlSecondsAfterFinished",
    "spec.completionMode", "spec.suspend", "spec.podReplacementPolicy", "spec.managedBy",
))  # fmt: skip
"""Fields of controllers that do not reach a pod, or are read from the document."""


class _Template(ApiStruct, frozen=True, kw_only=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: dict[str, Any] = {}


class _Spec(ApiStruct, frozen=True, kw_only=True):
    replicas: int | None = None
    completions: int | None = None
    parallelism: int | None = None
    active_deadline_seconds: int | None = None
    backoff_limit: int | None = None
    service_name: str = ""
    selector: LabelSelector | None = None
    template: _Template | None = None


class _Object(ApiStruct, frozen=True, kw_only=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: _Spec = _Spec()


def unknown_of(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield the paths of the controller's own unknown fields, outside of the template."""
    return (field for field in unknown_fields(document, _Object) if field not in _OF_CLUSTERS)


def documents_of(
    document: Mapping[str, Any], kind: str, *, obj: str, prefix: str
) -> tuple[list[dict[str, Any]], dict[str, Any], str]:
    """Return the claims and the pod that a controller makes, as documents, and the path of the pod's template.

    `obj`: name of the controller in errors. `prefix`: its path in the file. Raises InvalidPod if it makes another
    number of pods than one, or if the pod would not be the same without the controller.
    """
    dot = f"{prefix}." if prefix else ""

    def refuse(field: str, problem: str, fix: str) -> InvalidPod:
        return InvalidPod(obj=obj, field=f"{dot}spec.{field}", problem=problem, fix=fix)

    controller, made = CONTROLLERS[kind], convert(document, _Object, obj=obj, prefix=prefix)
    spec, template, name = made.spec, made.spec.template, made.metadata.name
    if template is None or not template.spec:
        raise refuse("template", "is missing", "add the template of the pod")
    pod_name = f"{name}-0" if kind == "StatefulSet" else name
    written: Mapping[str, Any] = document["spec"]
    for field in controller.counts:
        number = written.get(field)
        if number not in (None, 1):
            problem = f"{number} is not one pod, which is what a node without a cluster runs"
            fix = f"run one ({field}: 1), which is pod {pod_name}, or write each Pod by itself"
            raise refuse(field, problem, fix)
    for (field, value), why in _REFUSED.items():
        if written.get(field) == value:
            raise refuse(
                field, f"{value} cannot be run without a cluster: {why}", "remove it, or write a Pod"
            )
    for field in _POLICIES:
        if written.get(field):
            raise refuse(field, "needs the Job controller of a cluster", "remove it, or write a Pod")
    policy = template.spec.get("restartPolicy") or controller.restart_policies[0]
    if policy not in controller.restart_policies:
        problem = f"{policy!r} is not possible in a {kind}"
        raise refuse(
            "template.spec.restartPolicy", problem, f"use {' or '.join(controller.restart_policies)}"
        )
    labels = template.metadata.labels
    if spec.selector is not None and not spec.selector.match_labels.items() <= labels.items():
        problem = "does not match the labels of the template"
        raise refuse("selector.matchLabels", problem, "correct spec.template.metadata.labels")
    pod_spec = {**template.spec, "restartPolicy": policy}
    annotations = template.metadata.annotations
    if kind == "Job":
        limit = _RETRIES if spec.backoff_limit is None else spec.backoff_limit
        if limit < 0:
            raise refuse("backoffLimit", f"{limit} is negative", "write 0 or more")
        if limit:
            pod_spec["restartPolicy"] = "OnFailure"
        annotations = {**annotations, BACKOFF_LIMIT: str(limit)}
        labels = {**labels, "job-name": name, "batch.kubernetes.io/job-name": name}
        if spec.active_deadline_seconds is not None:
            pod_spec.setdefault("activeDeadlineSeconds", spec.active_deadline_seconds)
    claims: list[dict[str, Any]] = []
    if kind == "StatefulSet":
        labels = {
            **labels,
            "apps.kubernetes.io/pod-index": "0",
            "statefulset.kubernetes.io/pod-name": pod_name,
        }
        pod_spec = {"hostname": pod_name, "subdomain": spec.service_name, **pod_spec}
        templates = written.get("volumeClaimTemplates") or []
        if not isinstance(templates, list) or not all(isinstance(each, dict) for each in templates):
            raise refuse("volumeClaimTemplates", "is not a list of claims", "write a list of claims")
        claims = [_claim(each, pod_name, made.metadata.namespace, pod_spec) for each in templates]
    metadata = {
        **msgspec.to_builtins(template.metadata),
        "name": pod_name,
        "namespace": made.metadata.namespace,
        "labels": labels,
        "annotations": annotations,
    }
    return claims, {"metadata": metadata, "spec": pod_spec}, f"{dot}spec.template"


def _claim(
    template: Mapping[str, Any], pod_name: str, namespace: str, pod_spec: dict[str, Any]
) -> dict[str, Any]:
    """Return the claim of a StatefulSet's pod, and put the volume that uses it into `pod_spec`."""
    given = template.get("metadata")
    metadata = dict(given) if isinstance(given, dict) else {}
    volume = str(metadata.get("name", ""))
    name = f"{volume}-{pod_name}"
    volumes = pod_spec.get("volumes") or []
    others = [other for other in volumes if not isinstance(other, dict) or other.get("name") != volume]
    pod_spec["volumes"] = [*others, {"name": volume, "persistentVolumeClaim": {"claimName": name}}]
    return {
        "metadata": {**metadata, "name": name, "namespace": namespace},
        "spec": template.get("spec") or {},
    }
