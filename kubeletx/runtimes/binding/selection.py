"""Late binding: which runtime a pod gets (DECISIONS 3 to 6). Pure; only the order of the list matters.

names it?  no ──▶ first listed runtime of its type that is not cordoned ──▶ chosen, ready or not
   │ yes
   ├─ field, annotation and class disagree ──▶ rejected
   ├─ unknown, cordoned, not ready ──▶ waits, and is asked again when that runtime changes
   ├─ another workload type, a feature it cannot do ──▶ rejected
   └─ chosen
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from kubeletx.api import CONTAINER, VM, RuntimeName, Traits, names
from kubeletx.kube.types.core import Pod

from .features import missing, reason_of

HANDLER_MARK = "--"


class RuntimeView(msgspec.Struct, frozen=True, kw_only=True):
    """One runtime as the choice sees it. `traits` None: never connected. `handlers` empty: not known."""

    name: RuntimeName
    workload_type: str
    ready: bool = False
    network_ready: bool = False
    cordoned: bool = False
    traits: Traits | None = None
    handlers: tuple[str, ...] = ()


class Chosen(msgspec.Struct, frozen=True, kw_only=True):
    """Bind the pod to `runtime`. `handler`: of the runtime class, or empty. `why`: for people."""

    runtime: RuntimeName
    handler: str = ""
    why: str = ""


class Waits(msgspec.Struct, frozen=True, kw_only=True):
    """Not now. `runtime`: the one it waits for, if it is known by name."""

    reason: str
    message: str
    runtime: RuntimeName | None = None


class Rejected(msgspec.Struct, frozen=True, kw_only=True):
    """Never: the pod's author must change it."""

    reason: str
    message: str


Choice = Chosen | Waits | Rejected


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """What the pod says about its runtime. `sources`: where the name stands, for messages."""

    workload_type: str | None
    name: str | None
    handler: str = ""
    sources: tuple[str, ...] = ()


def choose(pod: Pod, view: Sequence[RuntimeView], class_map: Mapping[str, str]) -> Choice:
    """The runtime for a pod that is not bound yet.

    `view`: in the order listed. `class_map`: runtime class name to ``NAME`` or ``NAME--HANDLER``.
    """
    wish = wish_of(pod, class_map)
    if not isinstance(wish, Wish):
        return wish
    by_name = {runtime.name: runtime for runtime in view}
    workload_type = wish.workload_type or _type_of_class(pod, wish, by_name)
    if wish.name is not None:
        return _named(pod, wish, workload_type, by_name)
    return _default(pod, workload_type, view)


def wish_of(pod: Pod, class_map: Mapping[str, str]) -> Wish | Waits | Rejected:
    """The pod's wish; Rejected if it names two runtimes, Waits for a class that nobody mapped."""
    annotations = pod.metadata.annotations
    named: list[tuple[str, str]] = []
    if pod.spec.runtime_service_name:
        named.append(("spec.runtimeServiceName", pod.spec.runtime_service_name))
    if annotation := annotations.get(names.RUNTIME_SERVICE_NAME):
        named.append((f"annotation {names.RUNTIME_SERVICE_NAME}", annotation))
    handler = ""
    if class_name := pod.spec.runtime_class_name:
        target = class_map.get(class_name)
        if target is None:
            known = ", ".join(sorted(class_map)) or "none"
            return Waits(
                reason=names.RUNTIME_NOT_FOUND,
                message=f"spec.runtimeClassName: class {class_name!r} is not mapped to a runtime; "
                f"mapped classes: {known}",
            )
        runtime, _, handler = target.partition(HANDLER_MARK)
        named.append((f"spec.runtimeClassName {class_name}", runtime))
    if len({name for _, name in named}) > 1:
        found = ", ".join(f"{where} names {name!r}" for where, name in named)
        return Rejected(
            reason=names.RUNTIME_MISMATCH, message=f"the pod names different runtimes: {found}; name one"
        )
    workload_type = VM if pod.spec.virtual_machine is not None else annotations.get(names.WORKLOAD_TYPE)
    return Wish(
        workload_type=workload_type or None,
        name=named[0][1] if named else None,
        handler=handler,
        sources=tuple(where for where, _ in named),
    )


def workload_type_of(pod: Pod, view: Sequence[RuntimeView], class_map: Mapping[str, str]) -> str:
    """The pod's workload type (DECISIONS 3); ``container`` if nothing says otherwise."""
    wish = wish_of(pod, class_map)
    if not isinstance(wish, Wish):
        return VM if pod.spec.virtual_machine is not None else CONTAINER
    return wish.workload_type or _type_of_class(pod, wish, {r.name: r for r in view})


def _type_of_class(pod: Pod, wish: Wish, by_name: Mapping[RuntimeName, RuntimeView]) -> str:
    runtime = by_name.get(RuntimeName(wish.name or "")) if pod.spec.runtime_class_name else None
    return runtime.workload_type if runtime is not None else CONTAINER


def _named(pod: Pod, wish: Wish, workload_type: str, by_name: Mapping[RuntimeName, RuntimeView]) -> Choice:
    name = RuntimeName(wish.name or "")
    where = wish.sources[0]
    runtime = by_name.get(name)
    if runtime is None:
        known = ", ".join(sorted(by_name)) or "none"
        return Waits(
            reason=names.RUNTIME_NOT_FOUND,
            message=f"{where}: no runtime {name!r} on this node; runtimes: {known}",
            runtime=name,
        )
    if runtime.workload_type != workload_type:
        return Rejected(
            reason=names.RUNTIME_MISMATCH,
            message=f"{where}: runtime {name!r} is of type {runtime.workload_type}, the pod is a "
            f"{workload_type} workload",
        )
    if runtime.traits is not None and (
        problem := _unsupported(pod, runtime.name, runtime.traits, wish.handler)
    ):
        return problem
    if runtime.cordoned:
        return Waits(reason=names.RUNTIME_CORDONED, message=f"runtime {name!r} is cordoned", runtime=name)
    if not runtime.ready or runtime.traits is None:
        return Waits(reason=names.RUNTIME_NOT_READY, message=f"runtime {name!r} is not ready", runtime=name)
    if wish.handler and runtime.handlers and wish.handler not in runtime.handlers:
        return Waits(
            reason=names.RUNTIME_NOT_FOUND,
            message=f"{where}: runtime {name!r} has no handler {wish.handler!r}; "
            f"handlers: {', '.join(runtime.handlers)}",
            runtime=name,
        )
    return Chosen(runtime=name, handler=wish.handler, why=f"named by {', '.join(wish.sources)}")


def _default(pod: Pod, workload_type: str, view: Sequence[RuntimeView]) -> Choice:
    of_type = [runtime for runtime in view if runtime.workload_type == workload_type]
    if not of_type:
        return Waits(
            reason=names.RUNTIME_NOT_FOUND, message=f"no runtime of type {workload_type} on this node"
        )
    runtime = next((r for r in of_type if not r.cordoned), None)
    if runtime is None:
        return Waits(
            reason=names.RUNTIME_CORDONED,
            message=f"every runtime of type {workload_type} is cordoned: {', '.join(r.name for r in of_type)}",
        )
    if runtime.traits is None:  # what it can do is not known yet; it stays the first listed
        return Waits(
            reason=names.RUNTIME_NOT_READY,
            message=f"runtime {runtime.name!r}, the default of type {workload_type}, was not reached yet",
            runtime=runtime.name,
        )
    return _unsupported(pod, runtime.name, runtime.traits) or Chosen(
        runtime=runtime.name, why=f"default of type {workload_type}"
    )


def _unsupported(pod: Pod, name: RuntimeName, traits: Traits, handler: str = "") -> Rejected | None:
    lacking = missing(pod, traits, handler)
    if not lacking:
        return None
    return Rejected(
        reason=reason_of(lacking),
        message=f"runtime {name!r} cannot do what the pod needs: {', '.join(lacking)}",
    )
