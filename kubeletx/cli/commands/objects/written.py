"""Pods as users write them: without status and without what the agent adds; and how a changed one is sent."""

from __future__ import annotations

from typing import Any, Final

from kubeletx.api import Conflict, names
from kubeletx.kube.types.core import Pod
from kubeletx.server.status import to_error
from kubeletx.server.views import ApplyReport, ApplyResult

from ...connection.client import AgentClient, Parameters, plain, pod_path

Manifest = dict[str, Any]

_OWN_ANNOTATIONS: Final = (
    names.CONFIG_SOURCE,
    names.CONFIG_SEEN,
    names.CONFIG_HASH,
    names.CONFIG_MIRROR,
    names.BOUND_RUNTIME,
    names.ORPHANED,
    "kubeletx.io/manifest-problem",
)
_OWN_METADATA: Final = ("uid", "creationTimestamp", "resourceVersion", "generation", "managedFields")
_ELSEWHERE: Final = {
    "api": "it is a pod of the cluster; use 'kubectl {verb} pod {name} -n {namespace}'",
    "file": "it comes from a manifest file of this node; change that file",
    "http": "it comes from the manifest URL; change the manifest there",
    "fornax": "it comes from a FornaxCore; change it there",
}


def written(pod: Pod | Manifest) -> Manifest:
    """Return the pod as JSON without its status and without fields and annotations that the agent sets."""
    item: Manifest = plain(pod)
    item.pop("status", None)
    metadata = item.get("metadata", {})
    for field in _OWN_METADATA:
        metadata.pop(field, None)
    for annotation in _OWN_ANNOTATIONS:
        metadata.get("annotations", {}).pop(annotation, None)
    return item


def applied_pod(agent: AgentClient, verb: str, namespace: str, name: str) -> Manifest:
    """Return a pod of ``kubeletx apply`` as `written`. Raises NotFound.

    Raises Conflict for a pod of another source, with the way to change it. `verb`: the command, such as label.
    """
    pod = agent.get(pod_path(namespace, name), Pod)
    source = pod.metadata.annotations.get(names.CONFIG_SOURCE, "applied")
    if source != "applied":
        instead = _ELSEWHERE.get(source, f"it comes from source {source!r}; change it there")
        fix = instead.format(verb=verb, name=name, namespace=namespace)
        raise Conflict(f"pod {namespace}/{name} cannot be changed here: {fix}")
    return written(pod)


def send_changed(agent: AgentClient, data: bytes, *, dry_run: bool = False) -> ApplyResult:
    """Replace the pod of a manifest by its changed form, and return the result. Raises the agent's error."""
    query: Parameters = {"origin": "request", "replace": True, "fieldValidation": "Strict", "dryRun": dry_run}
    (result,) = agent.call("POST", "/v1/pods", ApplyReport, query, data).items
    if result.error is not None:
        raise to_error(result.error)
    return result
