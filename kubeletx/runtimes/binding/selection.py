"""Late binding: chooses the runtime of a pod (DECISIONS 3 to 6). Pure; the result depends only on the arguments.

the pod names a runtime?  no ──▶ first listed runtime of its type that is not cordoned ──▶ chosen, ready or not
   │ yes
   ├─ field, annotation and class disagree ──▶ rejected
   ├─ unknown, cordoned, not ready ──▶ waits; the choice is made again when that runtime changes
   ├─ another workload type, an unsupported feature ──▶ rejected
   └─ chosen
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from kubeletx.api import CONTAINER, PodUid, RuntimeName, Traits, names
from kubeletx.kube.manifests.units import spec_workload_type
from kubeletx.kube.types.core import Pod

from .features import missing, reason_of

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

    `workload_type`: None if not given. `name`: name of the runtime; None for the default runtime of the type.
    `handler`: runtime handler; empty for the default. `sources`: the fields that hold the name, for messages.
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

    `view`: all runtimes, in the configured order. `class_map`: runtime class name to ``NAME`` or ``NAME--HANDLER`` of a
    runtime.
    """
    return choose_for(
        requested_runtime(pod, class_map), view, lambda traits, handler: missing(pod, traits, handler)
    )


def choose_for(request: Requested, view: Sequence[RuntimeCandidate], lacking: Lacking) -> Choice:
    """Choose the runtime for a request; a `WaitForRuntime` or `RejectPod` is returned unchanged.

    `view`: all runtimes, in the configured order.
    """
    if not isinstance(request, RuntimeRequest):
        return request
    by_name = {runtime.name: runtime for runtime in view}
    workload_type = _type_of(request, by_name)
    if request.name is not None:
        return _named(request, workload_type, by_name, lacking)
    return _default(workload_type, view, lacking)


def requested_runtime(pod: Pod, class_map: Mapping[str, str]) -> Requested:
    """Read from the pod's fields and annotations which runtime it requests.

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
        runtime, _, handler = target.partition(HANDLER_MARK)
        named.append((f"spec.runtimeClassName {class_name}", runtime))
    return _request(
        named,
        annotations,
        uid=pod.uid,
        handler=handler,
        workload_type=spec_workload_type(pod),
        type_follows_name=bool(class_name),
    )


def requested_by_sandbox(handler: str, annotations: Mapping[str, str], uid: PodUid) -> Requested:
    """Read which runtime a sandbox of another CRI client requests.

    `handler`: runtime handler in the CRI request, as in a RuntimeClass: ``NAME``, ``NAME--HANDLER`` or empty.
    """
    name, _, rest = handler.partition(HANDLER_MARK)
    named = [("runtime handler", name)] if name else []
    return _request(
        named, annotations, uid=uid, handler=rest, workload_type=None, type_follows_name=bool(name)
    )


def workload_type_of(pod: Pod, view: Sequence[RuntimeCandidate], class_map: Mapping[str, str]) -> str:
    """Return the pod's workload type; ``container`` if neither pod nor runtime class gives one (DECISIONS 3)."""
    request = requested_runtime(pod, class_map)
    if not isinstance(request, RuntimeRequest):
        return spec_workload_type(pod) or CONTAINER
    return _type_of(request, {runtime.name: runtime for runtime in view})


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

    `named`: field and runtime for each field that names a runtime, the most specific field first.
    """
    if annotation := annotations.get(names.RUNTIME_SERVICE_NAME):
        named.insert(
            1 if named and named[0][0] == "spec.runtimeServiceName" else 0,
            (f"annotation {names.RUNTIME_SERVICE_NAME}", annotation),
        )
    if len({name for _, name in named}) > 1:
        found = ", ".join(f"{where} names {name!r}" for where, name in named)
        return RejectPod(
            reason=names.RUNTIME_MISMATCH, message=f"the pod names different runtimes: {found}; name one"
        )
    return RuntimeRequest(
        uid=uid,
        workload_type=workload_type or annotations.get(names.WORKLOAD_TYPE) or None,
        name=named[0][1] if named else None,
        handler=handler,
        sources=tuple(where for where, _ in named),
        type_follows_name=type_follows_name,
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


def _unsupported(name: RuntimeName, lacking: Sequence[str]) -> RejectPod | None:
    if not lacking:
        return None
    return RejectPod(
        reason=reason_of(tuple(lacking)),
        message=f"runtime {name!r} cannot do what the pod needs: {', '.join(lacking)}",
    )
