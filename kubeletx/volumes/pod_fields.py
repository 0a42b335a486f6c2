"""Values of fieldRef and resourceFieldRef as text, for environment variables and downward API volumes. Pure.

Values that are not in the Pod object (addresses, data of the node) are in `FieldContext`. Source: core/v1
ObjectFieldSelector, ResourceFieldSelector.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Final

import msgspec

from kubeletx.api import InvalidPod
from kubeletx.kube.text import quantity
from kubeletx.kube.types.core import Container, ObjectFieldSelector, Pod, ResourceFieldSelector


class FieldContext(msgspec.Struct, frozen=True, kw_only=True):
    """Values for fieldRef and resourceFieldRef that are not in the Pod object.

    `host_ips`: addresses of the node. `pod_ips`: addresses of the pod; empty until the sandbox has one. `allocatable`:
    allocatable amounts of the node by resource name, CPU in millicores, all others in whole units; they are used as the
    limit of a container without one.
    """

    node_name: str
    host_ips: tuple[str, ...] = ()
    pod_ips: tuple[str, ...] = ()
    allocatable: dict[str, int] = {}


_SUBSCRIPT: Final = re.compile(r"metadata\.(labels|annotations)\['([^']*)'\]")

_FIELDS: Final[dict[str, Callable[[Pod, FieldContext], str]]] = {
    "metadata.name": lambda pod, _: pod.metadata.name,
    "metadata.namespace": lambda pod, _: pod.metadata.namespace,
    "metadata.uid": lambda pod, _: pod.metadata.uid,
    "metadata.labels": lambda pod, _: format_map(pod.metadata.labels),
    "metadata.annotations": lambda pod, _: format_map(pod.metadata.annotations),
    "spec.nodeName": lambda pod, context: pod.spec.node_name or context.node_name,
    "spec.serviceAccountName": lambda pod, _: pod.spec.service_account_name or "",
    "status.hostIP": lambda _, context: context.host_ips[0] if context.host_ips else "",
    "status.hostIPs": lambda _, context: ",".join(context.host_ips),
    "status.podIP": lambda _, context: context.pod_ips[0] if context.pod_ips else "",
    "status.podIPs": lambda _, context: ",".join(context.pod_ips),
}

_DEFAULTED_LIMITS: Final = frozenset({"cpu", "memory", "ephemeral-storage"})


CONTAINER_REASON: Final = "CreateContainerConfigError"


def field_text(
    pod: Pod,
    selector: ObjectFieldSelector,
    context: FieldContext,
    *,
    field: str,
    reason: str = CONTAINER_REASON,
) -> str:
    """Return the value of a fieldRef; empty for a label or annotation that does not exist.

    Raises InvalidPod for an unsupported fieldPath. `field`, `reason`: path of the fieldRef in the manifest, and reason,
    for this error.
    """
    path = selector.field_path
    if subscript := _SUBSCRIPT.fullmatch(path):
        values = pod.metadata.labels if subscript[1] == "labels" else pod.metadata.annotations
        return values.get(subscript[2], "")
    if path not in _FIELDS:
        raise InvalidPod(
            field=f"{field}.fieldPath",
            problem=f"unsupported fieldPath: {path}",
            fix="use one of " + ", ".join(_FIELDS),
            reason=reason,
        )
    return _FIELDS[path](pod, context)


def resource_text(
    pod: Pod,
    container: Container | None,
    selector: ResourceFieldSelector,
    context: FieldContext,
    *,
    field: str,
    containers: Mapping[str, Container],
    reason: str = CONTAINER_REASON,
) -> str:
    """Return the value of a resourceFieldRef, divided by its divisor and rounded up.

    `container`: the container whose environment has the reference, used if the selector names no container; None for a
    volume, whose selectors must name one. `containers`: the pod's containers by name. Raises InvalidPod if there is no
    such container or resource. `field`, `reason`: path in the manifest, and reason, for this error.
    """
    owner = containers.get(selector.container_name) if selector.container_name else container
    kind, _, resource = selector.resource.partition(".")
    if owner is None:
        name = selector.container_name or ""
        raise InvalidPod(
            field=f"{field}.containerName", problem=f"container {name!r} not found", reason=reason
        )
    if kind not in {"limits", "requests"} or not _is_known(resource):
        raise InvalidPod(
            field=f"{field}.resource",
            problem=f"unsupported container resource: {selector.resource}",
            fix="use limits or requests of cpu, memory, ephemeral-storage or hugepages-<size>",
            reason=reason,
        )
    amount = _limit(pod, owner, resource, context) if kind == "limits" else _request(owner, resource)
    divisor = _amount(resource, selector.divisor) if selector.divisor else 0
    if divisor <= 0:
        divisor = 1000 if resource == "cpu" else 1
    return str(-(-amount // divisor))


def containers_by_name(pod: Pod) -> dict[str, Container]:
    """Return every container of the pod (init, regular and ephemeral) by name; names are unique in a pod."""
    return {container.name: container for container in all_containers(pod)}


def all_containers(pod: Pod) -> Iterator[Container]:
    """Yield init, regular, then ephemeral containers, each in spec order."""
    yield from pod.spec.init_containers
    yield from pod.spec.containers
    yield from pod.spec.ephemeral_containers


def format_map(values: Mapping[str, str]) -> str:
    """Format labels or annotations as lines ``key="value"``, sorted by key, without a newline at the end."""
    return "\n".join(f"{key}={quote(values[key])}" for key in sorted(values))


_ESCAPES: Final = {
    "\a": r"\a",
    "\b": r"\b",
    "\f": r"\f",
    "\n": r"\n",
    "\r": r"\r",
    "\t": r"\t",
    "\v": r"\v",
    "\\": r"\\",
    '"': r"\"",
}


def quote(text: str) -> str:
    """Return `text` in double quotes, with control characters escaped as in Go's strconv.Quote."""
    return '"' + "".join(map(_escape, text)) + '"'


def _escape(character: str) -> str:
    if character in _ESCAPES:
        return _ESCAPES[character]
    if character == " " or character.isprintable():
        return character
    code = ord(character)
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _is_known(resource: str) -> bool:
    return resource in _DEFAULTED_LIMITS or resource.startswith("hugepages-")


def _amount(resource: str, text: str) -> int:
    return quantity.to_millicores(text) if resource == "cpu" else quantity.to_bytes(text)


def _limit(pod: Pod, container: Container, resource: str, context: FieldContext) -> int:
    for limits in (container.resources.limits, pod.spec.resources.limits):
        text = limits.get(resource)
        if text is not None and _amount(resource, text) > 0:
            return _amount(resource, text)
    return context.allocatable.get(resource, 0) if resource in _DEFAULTED_LIMITS else 0


def _request(container: Container, resource: str) -> int:
    text = container.resources.requests.get(resource, container.resources.limits.get(resource))
    return 0 if text is None else _amount(resource, text)
