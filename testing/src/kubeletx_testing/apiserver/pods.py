"""Pods in the API server double: defaults, admission at creation, and allowed changes.

Defaults come from `kubeletx.kube.manifests.defaults`, validation from `kubeletx.kube.validation`; both follow
upstream. Source: kubernetes, pkg/registry/core/pod/strategy.go;
plugin/pkg/admission/{serviceaccount,priority,runtimeclass, defaulttolerationseconds};
pkg/apis/core/validation ValidatePodUpdate.
"""

from __future__ import annotations

import copy
from typing import Any, Final

import msgspec

from kubeletx.api import InvalidPod
from kubeletx.kube.manifests.defaults import set_defaults
from kubeletx.kube.qos import qos_class
from kubeletx.kube.text.quantity import parse
from kubeletx.kube.types.core import Pod
from kubeletx.kube.validation import validate_pod

from .errors import Json, bad_request, forbidden, invalid
from .objects import suffix
from .pod_references import pod_references
from .resources import resource
from .settings import Settings, timestamp
from .status_rules import pod_status_causes
from .store import Store
from .typed_fields import pod_status

MIRROR: Final = "kubernetes.io/config.mirror"
TOKEN_PATH: Final = "/var/run/secrets/kubernetes.io/serviceaccount"
ROOT_CA: Final = "kube-root-ca.crt"
_TOKEN_SECONDS: Final = 3607
_TOLERATED: Final = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
RESIZES_PODS: Final = "InPlacePodLevelResourcesVerticalScaling"
RESIZES_INIT: Final = "InPlacePodVerticalScalingInitContainers"
_SYSTEM_PRIORITIES: Final = {"system-node-critical": 2000001000, "system-cluster-critical": 2000000000}
_MAY_CHANGE: Final = (
    "Forbidden: pod updates may not change fields other than `spec.containers[*].image`,"
    "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing "
    "tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)
PODS: Final = resource("pods")


def admit_pod(pod: Json, store: Store, settings: Settings) -> Json:
    """Return a new pod after defaulting, admission and validation, in phase Pending.

    Raises StatusError if the pod is refused.
    """
    metadata = pod["metadata"]
    is_mirror = MIRROR in (metadata.get("annotations") or {})
    spec: Json = copy.deepcopy(pod.get("spec") or {})
    _set_account_fields(spec)
    if settings.service_account_admission and is_mirror:
        _admit_mirror(metadata, spec)
    elif settings.service_account_admission:
        _admit_service_account(metadata, spec, store)
    _tolerate(spec)
    _admit_runtime_class(metadata, spec, store)
    _admit_priority(metadata, spec, store)
    made = {**pod, "spec": spec}
    typed = _typed(made)
    complete: Json = _with_missing(made, msgspec.to_builtins(set_defaults(typed)))
    _complete_containers(complete["spec"])
    complete["spec"].setdefault("securityContext", {})
    _validate(complete)
    complete["status"] = {"phase": "Pending", "qosClass": qos_class(_typed(complete).spec)}
    return complete


def change_pod(old: Json, new: Json) -> Json:
    """Return the pod to store when it is changed through the main resource: `new` with the status of `old`.

    Raises StatusError 422 if an immutable field changed.
    """
    spec = _defaulted(new)["spec"]
    if not _same_but_for(old["spec"], spec):
        raise invalid(PODS, old["metadata"]["name"], [("spec", "FieldValueForbidden", _MAY_CHANGE)])
    return {**new, "spec": spec, "status": old.get("status", {})}


def change_pod_status(old: Json, new: Json) -> Json:
    """Return the pod to store when its status is changed: `new` with the spec and the owners of `old`.

    Raises StatusError 400 or 422 if the status is invalid.
    """
    metadata = dict(new["metadata"])
    _keep(metadata, old["metadata"], "ownerReferences")
    status = dict(new.get("status") or {})
    status["qosClass"] = status.get("qosClass") or old.get("status", {}).get("qosClass")
    made = {**new, "metadata": metadata, "spec": old["spec"], "status": status}
    _set_primary_ip(status)
    _typed(made)
    if causes := pod_status_causes(old["spec"], old.get("status", {}), status):
        raise invalid(PODS, old["metadata"]["name"], causes)
    return {**made, "status": pod_status(status)}


def change_ephemeral_containers(old: Json, new: Json) -> Json:
    """Return the pod to store when ephemeral containers are added.

    It is `new` with the spec of `old`, except for the ephemeral containers. Raises StatusError 422 if an
    existing ephemeral container is changed or missing. Source: ValidatePodEphemeralContainersUpdate.
    """
    before = {container["name"]: container for container in old["spec"].get("ephemeralContainers", [])}
    spec = _defaulted(new)["spec"]
    after = {container["name"]: container for container in spec.get("ephemeralContainers", [])}
    for name, container in before.items():
        if after.get(name) != container:
            word = "changed" if name in after else "removed"
            problem = f'Forbidden: existing ephemeral containers "{name}" may not be {word}'
            cause = ("spec.ephemeralContainers", "FieldValueForbidden", problem)
            raise invalid(PODS, old["metadata"]["name"], [cause])
    kept = {**old["spec"], "ephemeralContainers": spec.get("ephemeralContainers", [])}
    return {**new, "spec": kept, "status": old.get("status", {})}


def resize_pod(old: Json, new: Json, store: Store) -> Json:
    """Return the pod to store when its resources are changed through the resize subresource.

    Only the resources of the pod and of its containers are taken from the spec of `new`. As in a real v1.36,
    the node must exist and be large enough; for a resize of pod-level resources, and of init containers that are no
    sidecars, it must declare the feature.
    A running pod whose container statuses show no resources is on a node that cannot resize. Raises
    StatusError 403 or 422. Source: ValidatePodResize.
    """
    after = _defaulted(new)["spec"]
    wanted = {container["name"]: container.get("resources", {}) for container in _containers(after)}
    spec = copy.deepcopy(old["spec"])
    if after.get("resources"):
        spec["resources"] = after["resources"]
    for container in _containers(spec):
        container["resources"] = wanted.get(container["name"], container.get("resources", {}))
    made = {**new, "spec": spec, "status": old.get("status", {})}
    causes = []
    before = old["status"].get("qosClass")
    if qos_class(_typed(made).spec) != before:
        problem = f'Invalid value: "{before}": Pod QOS Class may not change as a result of resizing'
        causes.append(("spec", "FieldValueInvalid", problem))
    running = [
        status for status in old["status"].get("containerStatuses", []) if "running" in status["state"]
    ]
    if running and "resources" not in running[0]:
        problem = "Forbidden: Pod running on node without support for resize"
        causes.append(("spec", "FieldValueForbidden", problem))
    if causes:
        raise invalid(PODS, old["metadata"]["name"], causes)
    needs = [RESIZES_PODS] if spec.get("resources") != old["spec"].get("resources") else []
    if _of_init(spec) != _of_init(old["spec"]):
        needs.append(RESIZES_INIT)
    problem = _undeclared(needs, spec, store) or _too_much_for_its_node(spec, store)
    if problem:
        raise forbidden(PODS, old["metadata"]["name"], problem)
    return made


def _of_init(spec: Json) -> list[Json]:
    """Return the resources of the init containers that are no sidecars."""
    containers = (
        container
        for container in spec.get("initContainers", [])
        if container.get("restartPolicy") != "Always"
    )
    return [container.get("resources", {}) for container in containers]


def _undeclared(needs: list[str], spec: Json, store: Store) -> str:
    """Return the message of a refusal if the pod's node does not declare all features `needs`; else empty.

    Source: plugin/pkg/admission/nodedeclaredfeatures.
    """
    node = store.find(resource("nodes"), ("", spec.get("nodeName", "")))
    declared = (node.value.get("status") or {}).get("declaredFeatures", []) if node is not None else needs
    missing = [need for need in needs if need not in declared]
    if not missing:
        return ""
    name = spec["nodeName"]
    return f'pod update requires features {", ".join(missing)} which are not available on node "{name}"'


def _too_much_for_its_node(spec: Json, store: Store) -> str:
    name = spec.get("nodeName")
    if not name:
        return ""
    node = store.find(resource("nodes"), ("", name))
    if node is None:
        return f'node "{name}" not found'
    allocatable = (node.value.get("status") or {}).get("allocatable") or {}
    for what, unit in (("cpu", 10**6), ("memory", 10**9)):
        amounts = [
            (container.get("resources") or {}).get("requests", {}).get(what, "0")
            for container in spec["containers"]
        ]
        if whole := ((spec.get("resources") or {}).get("requests") or {}).get(what):
            amounts = [whole]
        wanted, there = (
            sum(parse(amount).nanos for amount in amounts),
            parse(allocatable.get(what, "0")).nanos,
        )
        if wanted > there:
            return (
                f"node didn't have enough allocatable resources: {what}, requested: {wanted // unit}, allocatable: "
                f"{there // unit}"
            )
    return ""


def bind_pod(
    pod: Json, node: str, annotations: dict[str, str], labels: dict[str, str], settings: Settings
) -> Json:
    """Return the pod with this node in spec.nodeName and with the condition PodScheduled.

    `annotations`, `labels`: those of the Binding, which are added to the pod's. Source:
    registry/core/pod/storage setPodNodeAndMetadata.
    """
    metadata = dict(pod["metadata"])
    if annotations:
        metadata["annotations"] = {**metadata.get("annotations", {}), **annotations}
    if labels:
        metadata["labels"] = {**metadata.get("labels", {}), **labels}
    status = dict(pod.get("status", {}))
    others = [condition for condition in status.get("conditions", []) if condition["type"] != "PodScheduled"]
    status["conditions"] = [*others, _scheduled(settings)]
    spec = {**pod["spec"], "nodeName": node}
    return {**pod, "metadata": metadata, "spec": spec, "status": pod_status(status)}


def complete_template(template: Json) -> Json:
    """Return the metadata and the spec of a pod template, with defaults.

    Raises StatusError 400 if it is not a pod.
    """
    spec = template.get("spec") or {}
    complete = _defaulted({"metadata": template.get("metadata") or {}, "spec": {"containers": [], **spec}})
    complete["spec"].setdefault("securityContext", {})
    return {"metadata": template.get("metadata") or {}, "spec": complete["spec"]}


def _scheduled(settings: Settings) -> Json:
    return {"type": "PodScheduled", "status": "True", "lastTransitionTime": timestamp(settings.now())}


def _defaulted(pod: Json) -> Json:
    complete: Json = _with_missing(pod, msgspec.to_builtins(set_defaults(_typed(pod))))
    _complete_containers(complete["spec"])
    _set_account_fields(complete["spec"])
    return complete


def _keep(metadata: Json, before: Json, field: str) -> None:
    metadata.pop(field, None)
    if field in before:
        metadata[field] = before[field]


def _typed(pod: Json) -> Pod:
    try:
        return msgspec.convert(pod, Pod)
    except msgspec.ValidationError as err:
        if "missing required field" in str(err):  # a real server sees an empty value
            return Pod()
        raise bad_request(f'Pod in version "v1" cannot be handled as a Pod: json: {err}') from err


def _validate(pod: Json) -> None:
    if pod["spec"].get("ephemeralContainers"):
        cause = ("spec.ephemeralContainers", "FieldValueForbidden", "Forbidden: cannot be set on create")
        raise invalid(PODS, pod["metadata"]["name"], [cause])
    plain = {**pod, "metadata": {**pod["metadata"], "annotations": {}}}
    problems = validate_pod(_typed(plain), "")
    if problems:
        raise invalid(PODS, pod["metadata"]["name"], [_cause(problem) for problem in problems])


def _cause(problem: InvalidPod) -> tuple[str, str, str]:
    field = problem.field or ""
    if problem.problem == "is missing":
        return field, "FieldValueRequired", "Required value"
    return field, "FieldValueInvalid", f"Invalid value: {problem.problem}"


def _with_missing(value: Any, defaults: Any) -> Any:
    """Return a copy of `value` in which missing fields, at every level, are taken from `defaults`."""
    if isinstance(value, dict) and isinstance(defaults, dict):
        merged = {name: _with_missing(part, defaults.get(name)) for name, part in value.items()}
        return {**{name: part for name, part in defaults.items() if name not in value}, **merged}
    if isinstance(value, list) and isinstance(defaults, list | tuple) and len(value) == len(defaults):
        return [_with_missing(one, other) for one, other in zip(value, defaults, strict=True)]
    return copy.deepcopy(value)


def _containers(spec: Json) -> list[Json]:
    return [*spec.get("initContainers", []), *spec.get("containers", [])]


def _complete_containers(spec: Json) -> None:
    for container in [*_containers(spec), *spec.get("ephemeralContainers", [])]:
        container.setdefault("resources", {})
        for variable in container.get("env", []):
            if reference := (variable.get("valueFrom") or {}).get("resourceFieldRef"):
                reference.setdefault("divisor", "0")
    for volume in spec.get("volumes", []):
        if "hostPath" in volume:
            volume["hostPath"].setdefault("type", "")


def _set_account_fields(spec: Json) -> None:
    name = spec.get("serviceAccountName") or spec.get("serviceAccount")
    if name:
        spec["serviceAccountName"] = spec["serviceAccount"] = name


def _admit_service_account(metadata: Json, spec: Json, store: Store) -> None:
    name = spec.get("serviceAccountName") or "default"
    spec["serviceAccountName"] = spec["serviceAccount"] = name
    namespace = metadata["namespace"]
    account = store.find(resource("serviceaccounts"), (namespace, name))
    if account is None:
        problem = f'error looking up service account {namespace}/{name}: serviceaccount "{name}" not found'
        raise forbidden(PODS, metadata["name"], problem)
    if not spec.get("imagePullSecrets") and account.value.get("imagePullSecrets"):
        spec["imagePullSecrets"] = copy.deepcopy(account.value["imagePullSecrets"])
    wanted = spec.get("automountServiceAccountToken", account.value.get("automountServiceAccountToken", True))
    if wanted:
        _mount_token(spec)


def _admit_mirror(metadata: Json, spec: Json) -> None:
    """Raise StatusError 403 if a mirror pod refers to a service account or a secret.

    Source: serviceaccount/admission.go Validate.
    """
    found = {plural for plural, _, _ in pod_references({"metadata": metadata, "spec": spec}, "")}
    for plural, name in (("serviceaccounts", "service accounts"), ("secrets", "secrets")):
        if plural in found:
            raise forbidden(PODS, metadata["name"], f"a mirror pod may not reference {name}")


def _mount_token(spec: Json) -> None:
    volume = f"kube-api-access-{suffix()}"
    mounted = False
    for container in _containers(spec):
        mounts = container.setdefault("volumeMounts", [])
        if not any(mount.get("mountPath") == TOKEN_PATH for mount in mounts):
            mounts.append({"name": volume, "readOnly": True, "mountPath": TOKEN_PATH})
            mounted = True
    if not mounted:
        return
    namespace_field = {"apiVersion": "v1", "fieldPath": "metadata.namespace"}
    sources = [
        {"serviceAccountToken": {"expirationSeconds": _TOKEN_SECONDS, "path": "token"}},
        {"configMap": {"name": ROOT_CA, "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": namespace_field}]}},
    ]
    projected = {"name": volume, "projected": {"sources": sources, "defaultMode": 420}}
    spec["volumes"] = [*spec.get("volumes", []), projected]


def _admit_runtime_class(metadata: Json, spec: Json, store: Store) -> None:
    name = spec.get("runtimeClassName")
    if not name:
        return
    stored = store.find(resource("runtimeclasses"), ("", name))
    if stored is None:
        raise forbidden(PODS, metadata["name"], f'pod rejected: RuntimeClass "{name}" not found')
    overhead = (stored.value.get("overhead") or {}).get("podFixed")
    if overhead:
        spec["overhead"] = dict(overhead)
    scheduling = stored.value.get("scheduling") or {}
    if scheduling.get("nodeSelector"):
        spec["nodeSelector"] = {**spec.get("nodeSelector", {}), **scheduling["nodeSelector"]}
    if scheduling.get("tolerations"):
        spec["tolerations"] = [*spec.get("tolerations", []), *scheduling["tolerations"]]


def _admit_priority(metadata: Json, spec: Json, store: Store) -> None:
    name, asked = spec.get("priorityClassName"), spec.get("priority")
    stored = store.find(resource("priorityclasses"), ("", name)) if name else None
    if name in _SYSTEM_PRIORITIES:
        spec["priority"] = _SYSTEM_PRIORITIES[name]
    elif stored is not None:
        spec["priority"] = stored.value.get("value", 0)
        spec.setdefault("preemptionPolicy", stored.value.get("preemptionPolicy", "PreemptLowerPriority"))
    elif name:
        raise forbidden(PODS, metadata["name"], f"no PriorityClass with name {name} was found")
    else:
        spec["priority"] = 0
    spec.setdefault("preemptionPolicy", "PreemptLowerPriority")
    if asked is not None and asked != spec["priority"]:
        raise forbidden(
            PODS,
            metadata["name"],
            f"the integer value of priority ({asked}) must not be provided in pod spec; priority admission controller "
            f"computed {spec['priority']} from the given PriorityClass name",
        )


def _tolerate(spec: Json) -> None:
    tolerations = list(spec.get("tolerations", []))
    for key in _TOLERATED:
        if not any(_tolerates(toleration, key) for toleration in tolerations):
            added = {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
            tolerations.append(added)
    spec["tolerations"] = tolerations


def _tolerates(toleration: Json, key: str) -> bool:
    same_key, same_effect = toleration.get("key", key) == key, toleration.get("effect", "NoExecute")
    return bool(same_key) and same_effect == "NoExecute"


def _same_but_for(old: Json, new: Json) -> bool:
    before, after = copy.deepcopy(old), copy.deepcopy(new)
    for spec in (before, after):
        spec.pop("activeDeadlineSeconds", None)
        spec.pop("schedulingGates", None)
        for container in _containers(spec):
            container.pop("image", None)
    kept = before.pop("tolerations", [])
    if any(toleration not in after.get("tolerations", []) for toleration in kept):
        return False
    after.pop("tolerations", None)
    if before.get("terminationGracePeriodSeconds", 0) < 0:
        before["terminationGracePeriodSeconds"] = 1
    return bool(before == after)


def _set_primary_ip(status: Json) -> None:
    """Make podIP and podIPs of a status agree.

    podIP replaces podIPs if it is set and differs from the first of them. If podIP is not set, the first of
    podIPs becomes podIP. Source: pkg/apis/core/v1/conversion.go.
    """
    first = (status.get("podIPs") or [{}])[0].get("ip")
    if status.get("podIP") and status["podIP"] != first:
        status["podIPs"] = [{"ip": status["podIP"]}]
    elif first:
        status["podIP"] = first
