"""Rules of the Kubernetes API about which fields of an existing pod may change.

These may change: labels, annotations and images. Tolerations may be added. activeDeadlineSeconds may be set or
shortened. A negative grace period may become 1. Annotations that choose the runtime may change until the pod is
assigned to a runtime. For a virtual machine, the power state, CPU and memory, and network interfaces except eth0 may
change too. Any other change needs a new pod. Source: kubernetes, pkg/apis/core/validation, ValidatePodUpdate.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from kubeletx.api.names import CHOOSING
from kubeletx.kube.types.core import Container, Nic, Pod, PodSpec, VirtualMachine

_SIZES = ("cpu", "memory")
_NOTHING: tuple[Any, ...] = (None, {}, [], ())
"""Values that mean "not set". A missing field equals an empty one, except for selectors."""
_SELECTORS = frozenset({"labelSelector", "namespaceSelector", "selector"})
"""Fields for which an empty value and an unset one differ.

An empty selector selects everything; an unset one selects nothing or the pod's own namespace.
"""
FIRST_NIC = "eth0"
"""Name of the machine's network interface in the pod network."""

C = TypeVar("C", bound=Container | VirtualMachine)


def forbidden_changes(old: Pod, new: Pod) -> list[str]:
    """Return the paths of the fields that differ although they may not change, such as ``spec.hostNetwork``, sorted.

    Both pods must be completed with the API's defaults.
    """
    aligned = _with_allowed_changes(old.spec, new.spec)
    changed = sorted(_differences("spec", msgspec.to_builtins(aligned), msgspec.to_builtins(new.spec)))
    if new.spec.virtual_machine is None or not any(path.startswith("spec.nics") for path in changed):
        return changed
    return [path for path in changed if not path.startswith("spec.nics")] + _fixed_nics(
        old.spec.nics, new.spec.nics
    )


def changed_runtime(old: Pod, new: Pod) -> list[str]:
    """Return the paths of the changed annotations that choose the runtime.

    Such a change has no effect when the pod is already assigned to a runtime (DECISIONS 4, 5).
    """
    before, after = old.metadata.annotations, new.metadata.annotations
    return [f"metadata.annotations[{key}]" for key in CHOOSING if before.get(key) != after.get(key)]


def _with_allowed_changes(old: PodSpec, new: PodSpec) -> PodSpec:
    """Return the old spec with every allowed change applied; if it equals the new spec, all changes are allowed."""
    changes: dict[str, Any] = {
        "containers": _images(old.containers, new.containers),
        "init_containers": _images(old.init_containers, new.init_containers),
    }
    if new.ephemeral_containers[: len(old.ephemeral_containers)] == old.ephemeral_containers:
        changes["ephemeral_containers"] = new.ephemeral_containers
    if old.virtual_machine is not None and new.virtual_machine is not None:
        (machine,) = _images((old.virtual_machine,), (new.virtual_machine,))
        changes["virtual_machine"] = _machine(machine, new.virtual_machine)
        changes["nics"] = _nics(old.nics, new.nics)
    before, after = old.active_deadline_seconds, new.active_deadline_seconds
    if after is not None and (before is None or after <= before):
        changes["active_deadline_seconds"] = after
    kept = {_without_time(toleration) for toleration in new.tolerations}
    if all(_without_time(toleration) in kept for toleration in old.tolerations):
        changes["tolerations"] = new.tolerations
    if (old.termination_grace_period_seconds or 0) < 0 and new.termination_grace_period_seconds == 1:
        changes["termination_grace_period_seconds"] = 1
    return msgspec.structs.replace(old, **changes)


def _machine(old: VirtualMachine, new: VirtualMachine) -> VirtualMachine:
    """Return the old machine with the new power state, and with the new CPU and memory where they may change.

    CPU or memory may change only if the old and the new machine both set it.
    """
    limits, requests = (
        {**before, **{name: after[name] for name in _SIZES if name in before and name in after}}
        for before, after in (
            (old.resources.limits, new.resources.limits),
            (old.resources.requests, new.resources.requests),
        )
    )
    resources = msgspec.structs.replace(old.resources, limits=limits, requests=requests)
    return msgspec.structs.replace(old, power_spec=new.power_spec, resources=resources)


def _nics(old: tuple[Nic, ...], new: tuple[Nic, ...]) -> tuple[Nic, ...]:
    """Return the new interfaces if the change is allowed, else the old ones.

    Interfaces other than eth0 may be added and removed; an existing interface may not change.
    """
    after = {nic.name: nic for nic in new}
    kept = all(after.get(nic.name, nic) == nic for nic in old)
    has_first = any(nic.name == FIRST_NIC for nic in old)
    return new if kept and (not has_first or FIRST_NIC in after) else old


def _fixed_nics(old: tuple[Nic, ...], new: tuple[Nic, ...]) -> list[str]:
    """Return the paths of the interfaces that were removed or changed although they may not be."""
    after = {nic.name: nic for nic in new}
    gone = [f"spec.nics[{FIRST_NIC}]" for nic in old if nic.name == FIRST_NIC and nic.name not in after]
    return gone + [f"spec.nics[{nic.name}]" for nic in old if after.get(nic.name, nic) != nic]


def _images(old: tuple[C, ...], new: tuple[C, ...]) -> tuple[C, ...]:
    if [container.name for container in old] != [container.name for container in new]:
        return old
    return tuple(
        msgspec.structs.replace(before, image=after.image, image_pull_policy=_policy(before, after))
        for before, after in zip(old, new, strict=True)
    )


def _policy(before: C, after: C) -> str | None:
    """Return the new pull policy if the image changes, else the old one.

    The default of an unset policy depends on the image's tag, so the policy may change with the image.
    """
    return after.image_pull_policy if before.image != after.image else before.image_pull_policy


def _without_time(toleration: msgspec.Struct) -> bytes:
    return msgspec.json.encode(msgspec.structs.replace(toleration, toleration_seconds=None))


def _differences(path: str, old: Any, new: Any) -> list[str]:
    if old == new or _say_the_same(path, old, new):
        return []
    if isinstance(old, dict) and isinstance(new, dict):
        keys = old.keys() | new.keys()
        return [
            difference
            for key in keys
            for difference in _differences(f"{path}.{key}", old.get(key), new.get(key))
        ]
    if isinstance(old, list | tuple) and isinstance(new, list | tuple) and len(old) == len(new):
        pairs = enumerate(zip(old, new, strict=True))
        return [difference for i, (a, b) in pairs for difference in _differences(f"{path}[{i}]", a, b)]
    return [path]


def _say_the_same(path: str, old: Any, new: Any) -> bool:
    is_selector = path.rpartition(".")[2] in _SELECTORS
    return old in _NOTHING and new in _NOTHING and not is_selector
