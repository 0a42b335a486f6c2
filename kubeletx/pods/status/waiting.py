"""Chooses the Waiting state of containers, such as ErrImagePull or CrashLoopBackOff.

See docs/kubelet-parity.md, row ST4.
"""

from __future__ import annotations

from collections.abc import Iterator

from kubeletx.api import UnitState, UnitSummary
from kubeletx.kube.types.core import Container, ContainerStateWaiting, PodStatus

from ..model.backoff import duration_text, restart_at
from ..model.facts import ActionFailure, UnitFacts
from ..model.frame import Frame
from ..model.restart_policy import should_restart
from ..model.roles import init_units, is_sidecar
from ..model.runs import exit_code_of, killed_for
from ..plan.restart_all import MESSAGE, RESTARTING_ALL, is_outdated, is_restarting
from ..workloads.table import workload_of

CRASH_LOOP = "CrashLoopBackOff"
IMAGE_BACKOFF = "ImagePullBackOff"
PULL_REASONS = ("ErrImagePull", "RegistryUnavailable", "SignatureValidationFailed")
PULL_ERROR_SHOWN_SECONDS = 1.0
"""Time for which a failed pull has its own reason, before ImagePullBackOff (docs/kubelet-parity.md, row B3)."""


def runs_again(frame: Frame, container: Container, unit: UnitSummary, is_init: bool) -> bool:
    """Return True if the container will be started again. `unit`: its newest unit, which does not run.

    `is_init`: the container is an init container but no sidecar.
    """
    if not frame.will_run:
        return False
    if workload_of(frame.facts).is_wanted_off(frame.desired, frame.facts):
        return False
    if unit.state is not UnitState.EXITED or is_outdated(frame.desired, frame.facts, unit):
        return True
    code = exit_code_of(frame.facts, unit)
    if code is None:
        return False
    killed = killed_for(frame.facts, container.name)
    return should_restart(
        container, frame.desired.pod.spec.restart_policy, code, killed=killed, is_init=is_init
    )


def may_restart(frame: Frame, container: Container, exit_code: int) -> bool:
    """Return True if the container runs again after this exit code, by its restart policy and rules."""
    is_init = container in init_units(frame.desired.pod) and not is_sidecar(container)
    return should_restart(container, frame.desired.pod.spec.restart_policy, exit_code, is_init=is_init)


def waiting_reason(frame: Frame, container: Container) -> ContainerStateWaiting | None:
    """Return the Waiting state with the reason that the container does not run; None if there is no specific reason."""
    known = frame.facts.unit(container.name)
    crash = _crash_loop(frame, container, known)
    if crash is not None:
        return crash
    if is_outdated(frame.desired, frame.facts, frame.facts.newest(container.name)):
        if is_restarting(frame.desired, frame.facts):
            return ContainerStateWaiting(reason=RESTARTING_ALL, message=MESSAGE)
        return default_waiting(frame)
    if known.failure is not None:
        return failure_waiting(known.failure)
    if known.image_failure is not None:
        return _image_waiting(frame, container, known.image_failure)
    return None


def _crash_loop(frame: Frame, container: Container, known: UnitFacts) -> ContainerStateWaiting | None:
    if known.exited_at is None or known.backoff is None:
        return None
    cap = frame.facts.crash_cap_seconds
    if restart_at(known.backoff, known.exited_at, frame.now.mono, cap=cap) is None:
        return None
    pod = frame.desired.pod.metadata
    delay = duration_text(min(known.backoff.delay_seconds, cap))
    return ContainerStateWaiting(
        reason=CRASH_LOOP,
        message=f"back-off {delay} restarting failed container={container.name} "
        f"pod={pod.name}_{pod.namespace}({frame.desired.uid})",
    )


def _image_waiting(frame: Frame, container: Container, failure: ActionFailure) -> ContainerStateWaiting:
    turns_at = pull_error_ends_at(failure)
    if turns_at is None or frame.now.mono < turns_at:
        return failure_waiting(failure)
    return ContainerStateWaiting(
        reason=IMAGE_BACKOFF,
        message=f'Back-off pulling image "{container.image}": {failure.reason}: {failure.message}',
    )


def failure_waiting(failure: ActionFailure) -> ContainerStateWaiting:
    """Return a Waiting state with the failure's reason and message."""
    return ContainerStateWaiting(reason=failure.reason, message=failure.message or None)


def default_waiting(frame: Frame) -> ContainerStateWaiting:
    """Return the Waiting state of a container without a reason of its own: ContainerCreating or PodInitializing.

    Its message is the failure of a volume or the sandbox, if any. While the pod waits for a runtime, reason and message
    are those of this wait.
    """
    facts = frame.facts
    if facts.waiting is not None and frame.will_run:
        return ContainerStateWaiting(reason=facts.waiting.reason, message=facts.waiting.message)
    for failure in (facts.volumes.failure, facts.sandbox_failure):
        if failure is not None and frame.will_run:
            return ContainerStateWaiting(
                reason=frame.default_reason, message=f"{failure.reason}: {failure.message}"
            )
    return ContainerStateWaiting(reason=frame.default_reason)


def pull_error_ends_at(failure: ActionFailure | None) -> float | None:
    """Return the monotonic time from which a failed image pull is shown as ImagePullBackOff.

    None if `failure` is not a failed pull, or is not retried.
    """
    if failure is None or failure.retry_at is None or failure.reason not in PULL_REASONS:
        return None
    return failure.retry_at - failure.delay_seconds + PULL_ERROR_SHOWN_SECONDS


def begin_to_wait(before: PodStatus | None, after: PodStatus) -> Iterator[str]:
    """Yield the names of the containers that wait in CrashLoopBackOff in status `after`, but not in `before`.

    Event BackOff is recorded for them (docs/kubelet-parity.md, row B1).
    """
    waited = set(_in_crash_loop(before)) if before is not None else set()
    for name in _in_crash_loop(after):
        if name not in waited:
            yield name


def _in_crash_loop(status: PodStatus) -> Iterator[str]:
    for container_status in (*status.init_container_statuses, *status.container_statuses):
        if container_status.state.waiting is not None and container_status.state.waiting.reason == CRASH_LOOP:
            yield container_status.name
