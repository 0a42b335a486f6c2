"""Assigns a pod to a runtime and stores this binding, or rejects the pod; deletes the binding when the pod is gone."""

from __future__ import annotations

import structlog

from kubeletx.api import KubeletxError, SupportsStandby, names
from kubeletx.api.names import BINDING_NOT_WRITTEN, Event
from kubeletx.kube.types.core import Pod
from kubeletx.node.events import shortened
from kubeletx.runtimes.binding.bindings import Binding
from kubeletx.runtimes.binding.selection import Chosen, RejectPod, WaitForRuntime
from kubeletx.runtimes.handles.handle import RuntimeHandle

from ..admission.chain import TAINT_TOLERATION, held_back
from ..admission.placement import NODE_AFFINITY
from ..model import results
from ..model.facts import Rejection, Waiting
from ..model.results import Result
from .context import StepContext

log = structlog.get_logger(__name__)

_OF_THE_NODE = (NODE_AFFINITY, TAINT_TOLERATION)
"""Rejection reasons that may no longer apply to a newer version of the Node object."""


async def bind(step: StepContext) -> Result:
    """Choose a runtime, admit the pod, and store the binding, before anything is created for the pod.

    The choice follows DECISIONS 3-6 in docs/decisions/answers.md. The result says whether the pod is assigned to a
    runtime, waits, or is rejected.
    """
    pod = step.pod
    if (held := held_back(pod)) is not None:
        return _wait(step, held.reason, held.message)
    if step.deps.review is not None:
        answer = await step.deps.review(pod)
        if step.desired.deletion is not None:
            return results.Nothing()
        if isinstance(answer, Rejection):
            return reject(step, answer.reason, answer.message)
        if answer is not None:
            return _review_again(step, answer)
    choice = step.deps.registry.choose(pod)
    match choice:
        case WaitForRuntime(reason=reason, message=message):
            return _wait(step, reason, message)
        case RejectPod(reason=reason, message=message):
            return reject(step, reason, message)
        case Chosen(runtime=name):
            pass
    handle = step.deps.registry.get(name)
    if (unable := _unable(pod, handle)) is not None:
        return _wait(step, unable.reason, f"runtime {name}: {unable.message}")
    admission = step.deps.admission
    rejection = admission.admit(step.desired, handle.traits)
    if rejection is not None and rejection.reason in _OF_THE_NODE and step.desired.traits.is_scheduled:
        await admission.refresh()
        if step.desired.deletion is not None:  # resources reserved after its end are never released
            return results.Nothing()
        rejection = admission.admit(step.desired, handle.traits)
    if rejection is not None and rejection.reason == NODE_AFFINITY:
        awaited = admission.runtime_awaited(pod)
        if awaited is not None:
            return _wait(step, awaited.reason, awaited.message)
    if rejection is not None:
        answer = step.preemption.make_room(
            step.desired, handle.traits, rejection, step.worker.runtime_changed
        )
        if isinstance(answer, Waiting):
            return _wait_for_room(step, answer)
        return reject(step, answer.reason, answer.message)
    return await _write(step, handle, choice)


def _unable(pod: Pod, handle: RuntimeHandle) -> Waiting | None:
    """Return why a pod waits whose annotations on standby request what its runtime cannot do.

    None: the runtime can do it, or has not answered yet.
    """
    traits = handle.traits
    if traits is None:
        return None
    notes = pod.metadata.annotations
    if names.STANDBY in notes and handle.capability(SupportsStandby) is None:
        return Waiting(
            reason=names.RUNTIME_UNSUPPORTED,
            message="the pod's runtime cannot do what the pod needs: standby "
            f"(metadata.annotations[{names.STANDBY}]); remove the annotation or choose a runtime that can freeze pods",
        )
    strategy, known = notes.get(names.STANDBY_STRATEGY), traits.standby_strategies
    if strategy is None or strategy in known:
        return None
    field = f"metadata.annotations[{names.STANDBY_STRATEGY}]"
    if not known:
        problem = (
            "is set, but the pod's runtime has no strategies to choose from; remove the annotation or choose"
        )
        return Waiting(reason=names.RUNTIME_UNSUPPORTED, message=f"{field}: {problem} another runtime")
    return Waiting(
        reason=names.RUNTIME_UNSUPPORTED,
        message=f"{field}: {strategy!r} is not known to the pod's runtime; use one of: {', '.join(known)}",
    )


async def _write(step: StepContext, handle: RuntimeHandle, choice: Chosen) -> Result:
    """Store the binding. If that fails, release the pod's reserved resources and let `Bind` be retried."""
    name, now = choice.runtime, step.now()
    try:
        await step.deps.registry.bind(
            Binding(
                uid=step.uid,
                runtime=name,
                kind=handle.kind,
                namespace=step.pod.namespace,
                name=step.pod.name,
                source=step.desired.source,
                bound_at=now.wall,
                why=choice.why,
            )
        )
    except KubeletxError as error:
        step.preemption.left(step.uid)
        waiting = step.facts.waiting
        if waiting is None or waiting.reason != BINDING_NOT_WRITTEN:
            log.warning("Failed to write the binding", pod=step.desired.ref, runtime=name, err=str(error))
            step.warning(BINDING_NOT_WRITTEN, f"Cannot bind to runtime {name}: {error}")
        return results.BindFailed(BINDING_NOT_WRITTEN, str(error))
    step.normal(Event.RUNTIME_BOUND, f"Bound to runtime {name}: {choice.why}")
    return results.Bound(name, now.wall)


def _wait(step: StepContext, reason: str, message: str) -> Result:
    """Return the result that makes the pod wait for a runtime. Record an event if the reason is new."""
    waiting = step.facts.waiting
    if waiting is None or waiting.reason != reason:
        step.warning(reason, message)
    return results.Waits(reason, message)


def _review_again(step: StepContext, waits: Waiting) -> Result:
    """Return the result that makes an undecided admission review be repeated later, with back-off.

    Record an event if the review's message is new.
    """
    if step.facts.waiting is None or step.facts.waiting.message != waits.message:
        step.warning(waits.reason, waits.message)
    return results.BindFailed(waits.reason, waits.message)


def _wait_for_room(step: StepContext, waits: Waiting) -> Result:
    if step.facts.waiting is None or step.facts.waiting.message != waits.message:
        log.info("Made room for a critical pod", pod=step.desired.ref, pod_uid=step.uid, err=waits.message)
    return results.Waits(waits.reason, waits.message)


async def unbind(step: StepContext) -> Result:
    """Delete the pod's binding and release its reserved resources.

    If the pod is deleted by force while its runtime does not answer, or while its sandboxes cannot be removed, replace
    the binding by a tombstone, a stored order to remove what is left on the runtime later (DECISIONS 11). If the tombstone
    cannot be written, the step is retried. The registry itself repeats a failed deletion of the binding; the pod does
    not wait for it.
    """
    registry, snapshot = step.deps.registry, step.facts.snapshot
    is_left = step.facts.outage is not None or (snapshot is not None and bool(snapshot.sandboxes))
    if is_left and registry.bindings().get(step.uid) is not None:
        try:
            await registry.abandon_binding(step.uid)
        except KubeletxError as error:
            return results.StopFailed("TombstoneNotWritten", str(error))
        log.warning(
            "Ended pod; its runtime still has parts of it", pod=step.desired.ref, runtime=step.facts.runtime
        )
    else:
        await registry.unbind(step.uid)
    step.preemption.left(step.uid)
    return results.Unbound()


def reject(step: StepContext, reason: str, message: str) -> Result:
    """Record the rejection, and return the result that makes the pod Failed with this reason and message."""
    message = shortened(message)
    log.info("Rejected pod", pod=step.desired.ref, pod_uid=step.uid, reason=reason, err=message)
    step.warning(reason, message)
    step.deps.counters.admission_rejections[reason] += 1
    return results.Rejected(reason, message)
