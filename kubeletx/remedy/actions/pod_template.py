"""Manifest of the Job that runs a remedy once: the administrator's pod template, completed. Pure.

- Names in a container's ``env`` and ``configmaps`` are Secrets and ConfigMaps: their keys become variables (``envFrom``).
- The node's description (JSON, `description`) is a file, `DESCRIPTION_FILE`. A container with a ``command`` also gets it on standard
  input: a shell of the image redirects it. Annotation ``kubeletx.io/remedy-stdin: "false"`` of the template turns this off, for
  images without ``/bin/sh``. A container without a ``command`` has the file only, since its entry point is unknown here.
- ``{{.NodeName}}`` in any text of the template becomes the node's name.
- The pod never runs on the node itself, unless the template has a ``nodeName``.
- Nothing is repeated: no restarts of containers, no second pod.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from ..model import RemedyTask

REMEDY_NODE: Final = "kubeletx.io/remedy-node"
"""Label of jobs and their pods: `node_label` of the node."""
REMEDY_OPERATION: Final = "kubeletx.io/remedy-operation"
"""Annotation of jobs, their pods and remediation objects: identity of the operation."""
REMEDY_STDIN: Final = "kubeletx.io/remedy-stdin"
DESCRIPTION_FILE: Final = "/etc/node-remedy/node.json"
_DESCRIPTION: Final = "kubeletx.io/remedy-description"
_DIRECTORY: Final = "/etc/node-remedy"
_NODE_NAME: Final = "{{.NodeName}}"
_TTL_SECONDS: Final = 24 * 3600
"""A job that ended is deleted at the latest after this time, also if no controller is left."""

Json = dict[str, Any]


def job_name(operation: str, method: str) -> str:
    """Return the name of the job of an operation. The same operation always has the same name."""
    word = re.sub(r"[^a-z0-9]+", "-", method.lower()).strip("-")[:24].strip("-") or "run"
    return f"remedy-{word}-{hashlib.sha256(operation.encode()).hexdigest()[:12]}"


def node_label(node: str) -> str:
    """Return the value of label `REMEDY_NODE` for a node: its name, or a hash of a name that is too long for a label."""
    return node if len(node) <= 63 else hashlib.sha256(node.encode()).hexdigest()[:40]


def description(task: RemedyTask) -> Json:
    """Return the node's description for remedies: JSON values, without secrets."""
    node, flow = task.node, task.fence.flow
    return {
        "apiVersion": "node-remedy/v1alpha",
        "kind": "NodeDescription",
        "node": {
            "name": node.name,
            "uid": node.metadata.uid,
            "labels": node.metadata.labels,
            "providerID": node.spec.provider_id,
            "bootID": node.status.node_info.boot_id,
            "unschedulable": node.spec.unschedulable,
            "taints": msgspec.to_builtins(node.spec.taints),
            "conditions": msgspec.to_builtins(node.status.conditions),
        },
        "operation": task.operation.id,
        "step": task.step.value,
        "remedy": flow.remedy_name or task.method.name,
        "reasons": list(flow.reasons),
        "parameters": dict(task.method.parameters),
    }


def with_node_name(value: Any, node: str) -> Any:
    """Return JSON values with ``{{.NodeName}}`` replaced in every text."""
    if isinstance(value, str):
        return value.replace(_NODE_NAME, node)
    if isinstance(value, Mapping):
        return {key: with_node_name(inner, node) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [with_node_name(item, node) for item in value]
    return value


def job_manifest(task: RemedyTask, namespace: str) -> Json:
    """Return the Job of this task's operation."""
    template = with_node_name(task.method.definition, task.node.name)
    labels = {"app.kubernetes.io/managed-by": "kubeletx-remedy", REMEDY_NODE: node_label(task.node.name)}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": job_name(task.operation.id, task.method.name),
            "namespace": namespace,
            "labels": labels,
            "annotations": {REMEDY_OPERATION: task.operation.id},
        },
        "spec": {
            "backoffLimit": 0,
            "activeDeadlineSeconds": max(1, math.ceil(task.method.seconds)),
            "ttlSecondsAfterFinished": _TTL_SECONDS,
            "template": _pod(template, labels, task),
        },
    }


def _pod(template: Json, labels: Mapping[str, str], task: RemedyTask) -> Json:
    metadata: Json = template.get("metadata") or {}
    annotations = metadata.get("annotations") or {}
    reads_stdin = str(annotations.get(REMEDY_STDIN, "true")).lower() != "false"
    spec: Json = dict(template.get("spec") or {})
    for field in ("initContainers", "containers"):
        if spec.get(field):
            spec[field] = [_container(container, task, reads_stdin) for container in spec[field]]
    described = {
        "path": "node.json",
        "fieldRef": {"fieldPath": f"metadata.annotations['{_DESCRIPTION}']"},
    }
    spec["volumes"] = [
        *(spec.get("volumes") or ()),
        {"name": "node-remedy", "downwardAPI": {"items": [described]}},
    ]
    spec["restartPolicy"] = "Never"
    if not spec.get("nodeName"):
        spec["affinity"] = _elsewhere(spec.get("affinity") or {}, task.node.name)
    text = json.dumps(description(task), separators=(",", ":"))
    return {
        "metadata": {
            **metadata,
            "labels": {**(metadata.get("labels") or {}), **labels},
            "annotations": {**annotations, REMEDY_OPERATION: task.operation.id, _DESCRIPTION: text},
        },
        "spec": spec,
    }


def _container(given: Json, task: RemedyTask, reads_stdin: bool) -> Json:
    made = dict(given)
    env = [entry for entry in given.get("env") or () if not isinstance(entry, str)]
    sources = [{"secretRef": {"name": name}} for name in given.get("env") or () if isinstance(name, str)]
    sources += [{"configMapRef": {"name": name}} for name in made.pop("configmaps", None) or ()]
    if sources:
        made["envFrom"] = [*sources, *(given.get("envFrom") or ())]
    known = {entry.get("name") for entry in env}
    variables = {
        "NODE_NAME": task.node.name,
        "NODE_UID": task.node.metadata.uid,
        "NODE_PROVIDER_ID": task.node.spec.provider_id,
        "REMEDY_STEP": task.step.value,
        "REMEDY_OPERATION": task.operation.id,
    }
    made["env"] = [
        *({"name": name, "value": value} for name, value in variables.items() if name not in known),
        *env,
    ]
    made["volumeMounts"] = [
        *(given.get("volumeMounts") or ()),
        {"name": "node-remedy", "mountPath": _DIRECTORY, "readOnly": True},
    ]
    if reads_stdin and given.get("command"):
        redirect = f'exec "$@" < {DESCRIPTION_FILE}'
        made["command"] = ["/bin/sh", "-c", redirect, "node-remedy", *given["command"]]
    return made


def _elsewhere(affinity: Json, node: str) -> Json:
    """Return the affinity with a rule that excludes the node. Terms are alternatives, so each gets the rule."""
    rule = {"key": "metadata.name", "operator": "NotIn", "values": [node]}
    of_nodes: Json = affinity.get("nodeAffinity") or {}
    required: Json = of_nodes.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    terms = [
        {**term, "matchFields": [*(term.get("matchFields") or ()), rule]}
        for term in required.get("nodeSelectorTerms") or [{}]
    ]
    wanted = {**required, "nodeSelectorTerms": terms}
    return {
        **affinity,
        "nodeAffinity": {**of_nodes, "requiredDuringSchedulingIgnoredDuringExecution": wanted},
    }
