"""Late binding: chooses the runtime of a pod (DECISIONS 3 to 6). Pure; the result depends only on the arguments.

the pod names a runtime?  no ──▶ first listed runtime of its type that is not cordoned ──▶ chosen, ready or not
   │ yes, or a handler: then the first listed runtime that has it and is not cordoned
   ├─ field, annotation and class disagree, or another workload type ──▶ rejected
   ├─ unknown, cordoned, not ready, an unsupported feature ──▶ waits; the choice is made again when that runtime changes
   └─ chosen
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from kubeletx.api import CONTAINER, PodUid, RuntimeName, Traits, names
from kubeletx.kube.manifests.units import spec_workload_type
from kubeletx.kube.types.core import Pod

from .features import missing

HANDLER_MARK = "--"


class RuntimeCandidate(msgspec.Struct, frozen=True, kw_only=True):
    """Data about one runtime that the choice of a pod's runtime uses.

    `traits`: None if the runtime was never reached. `handlers`: its runtime handlers; empty if not known. `cordoned`:
    an operator allows no new pods on it.
    """

    name: RuntimeName
    workload_type: str
    ready: bool = False
    network_ready: bool = False
    cordoned: bool = False
    traits: Traits | None = None
    handlers: tuple[str, ...] = ()


class Chosen(msgspec.Struct, frozen=True, kw_only=True):
    """Result of the choice: assign the pod to `runtime`.

    `handler`: runtime handler that the runtime class names; empty for the default. `why`: reason, for users.
    """

    runtime: RuntimeName
    handler: str = ""
    why: str = ""


class WaitForRuntime(msgspec.Struct, frozen=True, kw_only=True):
    """Result of the choice: the pod waits, for this reason.

    `runtime`: the runtime that it waits for; None if any change of the runtimes or classes may help.
    """

    reason: str
    message: str
    runtime: RuntimeName | None = None


class RejectPod(msgspec.Struct, frozen=True, kw_only=True):
    """Result of the choice: reject the pod, because waiting cannot help; its author must change it."""

    reason: str
    message: str


Choice = Chosen | WaitForRuntime | RejectPod


Lacking = Callable[[Traits, str], Sequence[str]]
"""Returns what the workload needs and a runtime lacks, as texts for users. Arguments: its traits and the handler."""


class RuntimeRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Request for a runtime, by a pod or by a sandbox of another CRI client.

    `workload_type`: None if not given. `name`: name of the runtime; None for the first runtime that has the handler, or
    without a handler for the default runtime of the type. `handler`: runtime handler; empty for the default. `sources`:
    the fields that hold name or handler, for messages.
    `type_follows_name`: without a `workload_type`, use the type of the named runtime.
    """

    uid: PodUid
    workload_type: str | None = None
    name: str | None = None
    handler: str = ""
    sources: tuple[str, ...] = ()
    type_follows_name: bool = False


Requested = RuntimeRequest | WaitForRuntime | RejectPod


def choose(pod: Pod, view: Sequence[RuntimeCandidate], class_map: Mapping[str, str]) -> Choice:
    """Choose the runtime for a pod that is not assigned to one yet.

    `view`: all runtimes, in the configured order. `class_map`: runtime class name to handler, see `split_handler`.
    """
    request = requested_runtime(pod, class_map, {runtime.name for runtime in view})
    return choose_for(request, view, lambda traits, handler: missing(pod, traits, handler))


def split_handler(handler: str, runtimes: Container[str]) -> tuple[str, str]:
    """Return the runtime and the runtime handler that the handler of a RuntimeClass names; each may be empty.

    It is ``NAME`` or ``NAME--HANDLER`` if NAME is in `runtimes`, the names of this node's runtimes. Otherwise the whole
    text is the name of a runtime handler, such as ``nvidia``.
    """
    name, _, own = handler.partition(HANDLER_MARK)
    return (name, own) if name in runtimes else ("", handler)


def choose_for(request: Requested, view: Sequence[RuntimeCandidate], lacking: Lacking) -> Choice:
    """Choose the runtime for a request; a `WaitForRuntime` or `RejectPod` is returned unchanged.

    `view`: all runtimes, in the configured order.
    """
    if not isinstance(request, RuntimeRequest):
        return request
    by_name = {runtime.name: runtime for runtime in view}
    if request.name is None and request.handler:
        runtime = _first_with(request, view)
        if runtime is None:
            return _no_handler(request, view)
        request = replace(request, name=runtime.name)
    workload_type = _type_of(request, by_name)
    if request.name is not None:
        return _named(request, workload_type, by_name, lacking)
    return _default(workload_type, view, lacking)


def requested_runtime(pod: Pod, class_map: Mapping[str, str], runtimes: Container[str]) -> Requested:
    """Read from the pod's fields and annotations which runtime it requests. `runtimes`: names of this node's runtimes.

    Returns `RejectPod` if they name different runtimes, `WaitForRuntime` if the runtime class is not in `class_map`.
    """
    annotations = pod.metadata.annotations
    named: list[tuple[str, str]] = []
    if pod.spec.runtime_service_name:
        named.append(("spec.runtimeServiceName", pod.spec.runtime_service_name))
    handler = ""
    if class_name := pod.spec.runtime_class_name:
        target = class_map.get(class_name)
        if target is None:
            known = ", ".join(sorted(class_map)) or "none"
            return WaitForRuntime(
                reason=names.RUNTIME_NOT_FOUND,
                message=f"spec.runtimeClassName: class {class_name!r} is not mapped to a runtime; "
                f"mapped classes: {known}",
            )
        runtime, handler = split_handler(target, runtimes)
        named.append((f"spec.runtimeClassName {class_name}", runtime))
    return _request(
        named,
        annotations,
        uid=pod.uid,
        handler=handler,
        workload_type=spec_workload_type(pod),
        type_follows_name=bool(class_name),
    )


def requested_by_sandbox(
    handler: str, annotations: Mapping[str, str], uid: PodUid, runtimes: Container[str]
) -> Requested:
    """Read which runtime a sandbox of another CRI client requests.

    `handler`: runtime handler in the CRI request, as in a RuntimeClass, or empty. `runtimes`: names of this node's
    runtimes.
    """
    name, rest = split_handler(handler, runtimes)
    named = [("runtime handler", name)] if handler else []
    return _request(
        named, annotations, uid=uid, handler=rest, workload_type=None, type_follows_name=bool(handler)
    )


def _request(
    named: list[tuple[str, str]],
    annotations: Mapping[str, str],
    *,
    uid: PodUid,
    handler: str,
    workload_type: str | None,
    type_follows_name: bool,
) -> RuntimeRequest | RejectPod:
    """Combine the requests in fields and annotations; return `RejectPod` if they name different runtimes.

    `named`: field and runtime for each field that names a runtime, the most specific field first; the runtime is empty
    for a field that names only a handler.
    """
    if annotation := annotations.get(names.RUNTIME_SERVICE_NAME):
        named.insert(
            1 if named and named[0][0] == "spec.runtimeServiceName" else 0,
            (f"annotation {names.RUNTIME_SERVICE_NAME}", annotation),
        )
    runtimes = {name: where for where, name in named if name}
    if len(runtimes) > 1:
        listed = ", ".join(f"{where} names {name!r}" for where, name in named if name)
        return RejectPod(
            reason=names.RUNTIME_MISMATCH, message=f"the pod names different runtimes: {listed}; name one"
        )
    return RuntimeRequest(
        uid=uid,
        workload_type=workload_type or annotations.get(names.WORKLOAD_TYPE) or None,
        name=next(iter(runtimes), None),
        handler=handler,
        sources=tuple(where for where, _ in named),
        type_follows_name=type_follows_name,
    )


def _first_with(request: RuntimeRequest, view: Sequence[RuntimeCandidate]) -> RuntimeCandidate | None:
    """Return the first listed runtime with the requested handler, one of the requested type and not cordoned if any."""
    matching = [runtime for runtime in view if request.handler in runtime.handlers]
    matching = [r for r in matching if request.workload_type in (None, r.workload_type)] or matching
    return next((r for r in matching if not r.cordoned), matching[0] if matching else None)


def _no_handler(request: RuntimeRequest, view: Sequence[RuntimeCandidate]) -> WaitForRuntime:
    known = ", ".join(sorted({handler for runtime in view for handler in runtime.handlers})) or "none"
    return WaitForRuntime(
        reason=names.RUNTIME_NOT_FOUND,
        message=f"{request.sources[0]}: no runtime {request.handler.partition(HANDLER_MARK)[0]!r} on this node, and "
        f"no runtime with handler {request.handler!r}; runtimes: {', '.join(sorted(r.name for r in view)) or 'none'}; "
        f"handlers: {known}",
    )


def _type_of(request: RuntimeRequest, by_name: Mapping[RuntimeName, RuntimeCandidate]) -> str:
    if request.workload_type:
        return request.workload_type
    runtime = by_name.get(RuntimeName(request.name or "")) if request.type_follows_name else None
    return runtime.workload_type if runtime is not None else CONTAINER


def _named(
    request: RuntimeRequest,
    workload_type: str,
    by_name: Mapping[RuntimeName, RuntimeCandidate],
    lacking: Lacking,
) -> Choice:
    name = RuntimeName(request.name or "")
    where = request.sources[0]
    runtime = by_name.get(name)
    if runtime is None:
        known = ", ".join(sorted(by_name)) or "none"
        return WaitForRuntime(
            reason=names.RUNTIME_NOT_FOUND,
            message=f"{where}: no runtime {name!r} on this node; runtimes: {known}",
            runtime=name,
        )
    if runtime.workload_type != workload_type:
        return RejectPod(
            reason=names.RUNTIME_MISMATCH,
            message=f"{where}: runtime {name!r} is of type {runtime.workload_type}, the pod is a "
            f"{workload_type} workload",
        )
    if runtime.traits is not None and (
        problem := _unsupported(runtime.name, lacking(runtime.traits, request.handler))
    ):
        return problem
    if runtime.cordoned:
        return WaitForRuntime(
            reason=names.RUNTIME_CORDONED, message=f"runtime {name!r} is cordoned", runtime=name
        )
    if not runtime.ready or runtime.traits is None:
        return WaitForRuntime(
            reason=names.RUNTIME_NOT_READY, message=f"runtime {name!r} is not ready", runtime=name
        )
    if request.handler and runtime.handlers and request.handler not in runtime.handlers:
        return WaitForRuntime(
            reason=names.RUNTIME_NOT_FOUND,
            message=f"{where}: runtime {name!r} has no handler {request.handler!r}; "
            f"handlers: {', '.join(runtime.handlers)}",
            runtime=name,
        )
    return Chosen(runtime=name, handler=request.handler, why=f"named by {', '.join(request.sources)}")


def _default(workload_type: str, view: Sequence[RuntimeCandidate], lacking: Lacking) -> Choice:
    of_type = [runtime for runtime in view if runtime.workload_type == workload_type]
    if not of_type:
        return WaitForRuntime(
            reason=names.RUNTIME_NOT_FOUND, message=f"no runtime of type {workload_type} on this node"
        )
    runtime = next((r for r in of_type if not r.cordoned), None)
    if runtime is None:
        return WaitForRuntime(
            reason=names.RUNTIME_CORDONED,
            message=f"every runtime of type {workload_type} is cordoned: {', '.join(r.name for r in of_type)}",
        )
    if runtime.traits is None:  # its features are not known yet; it is still the default
        return WaitForRuntime(
            reason=names.RUNTIME_NOT_READY,
            message=f"runtime {runtime.name!r}, the default of type {workload_type}, was not reached yet",
            runtime=runtime.name,
        )
    return _unsupported(runtime.name, lacking(runtime.traits, "")) or Chosen(
        runtime=runtime.name, why=f"default of type {workload_type}"
    )


def _unsupported(name: RuntimeName, lacking: Sequence[str]) -> RejectPod | WaitForRuntime | None:
    """Return the wait for the features, or the rejection where a kubelet rejects the pod, too."""
    if not lacking:
        return None
    message = f"runtime {name!r} cannot do what the pod needs: {', '.join(lacking)}"
    if tuple(lacking) == ("strict-groups",):
        return RejectPod(reason=names.STRICT_GROUPS_UNSUPPORTED, message=message)
    return WaitForRuntime(reason=names.RUNTIME_UNSUPPORTED, message=message, runtime=name)
