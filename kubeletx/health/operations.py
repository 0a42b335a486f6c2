"""End of a boot: reboot, shutdown and poweroff in the reference's order. Pure.

    WAITING ─► ANNOUNCED 30 s ─► HALTING ≤ 300 s ─► SETTLING 30 s ─► ACTING 120 s ─► LATE
                                    └─► HALTED (a shutdown ends here)

A request of a user waits while an image is tested and until the node is drained. The same request again changes nothing; a
different one is refused while one is under way. Of two that wait the stronger one wins: poweroff, shutdown, reboot.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final, TypeGuard

import msgspec
from msgspec.structs import replace

from .model import Begin, BootReason, OperationKind

ANNOUNCE_SECONDS: Final = 30
HALT_SECONDS: Final = 300
SETTLE_SECONDS: Final = 30
BACKSTOP_SECONDS: Final = 120


class OperationStep(enum.StrEnum):
    """Step of an operation, see the drawing at the top of this file."""

    WAITING = "Waiting"
    """An image is tested, or the node is drained; the operation begins afterwards."""
    ANNOUNCED = "Announced"
    """The status announces it; other agents finish their work."""
    HALTING = "Halting"
    """The reason is written; pods and domains end."""
    SETTLING = "Settling"
    """All are halted, or the limit is over; buffers are written."""
    ACTING = "Acting"
    """The machine was asked to reboot or to switch off."""
    LATE = "Late"
    """It is still there: the guardian ends, so that the watchdog resets the machine."""
    HALTED = "Halted"
    """End of a shutdown: the machine stays on."""


class StepCause(enum.StrEnum):
    """Reason for a step; the values are the labels of the drawing in docs/states.md."""

    VERDICT = "verdict on the image, node drained"
    ANNOUNCED = f"{ANNOUNCE_SECONDS} s"
    HALTED = f"all halted, or {HALT_SECONDS} s"
    STOPS = "the same, for a shutdown"
    SETTLED = f"{SETTLE_SECONDS} s"
    BACKSTOP = f"{BACKSTOP_SECONDS} s"


_S, _C = OperationStep, StepCause
TABLE: Final[Mapping[tuple[OperationStep, StepCause], OperationStep]] = {
    (_S.WAITING, _C.VERDICT): _S.ANNOUNCED,
    (_S.ANNOUNCED, _C.ANNOUNCED): _S.HALTING,
    (_S.HALTING, _C.HALTED): _S.SETTLING,
    (_S.HALTING, _C.STOPS): _S.HALTED,
    (_S.SETTLING, _C.SETTLED): _S.ACTING,
    (_S.ACTING, _C.BACKSTOP): _S.LATE,
}

_STRENGTH: Final = {OperationKind.REBOOT: 0, OperationKind.SHUTDOWN: 1, OperationKind.POWEROFF: 2}


class BootEnd(msgspec.Struct, frozen=True, kw_only=True):
    """An operation under way. `since`: second at which `step` began. `all_halted`: pods and domains have ended."""

    kind: OperationKind
    boot_reason: BootReason
    reason: str
    step: OperationStep
    since: int
    all_halted: bool = False
    stack: str = ""
    replaced: BootEnd | None = None
    """Operation that waited when this one began."""


def waits(operation: BootEnd | None) -> TypeGuard[BootEnd]:
    """Return True if there is an operation that has not begun."""
    return operation is not None and operation.step is OperationStep.WAITING


class Deed(enum.StrEnum):
    """Action of the guardian when an operation enters a step."""

    WRITE_REASON = "write the reason"
    HALT = "end all pods"
    SYNC = "sync"
    ACT = "reboot or power off"
    EXIT = "exit"


def begin(
    operation: BootEnd | None, request: Begin, now: int, *, must_wait: bool
) -> tuple[BootEnd | None, str]:
    """Begin an operation; returns it, and why the request is refused (empty: it is not).

    `must_wait`: the request comes from a user; it waits until `advance` finds that nothing holds it.
    """
    if operation is not None and operation.step not in {OperationStep.WAITING, OperationStep.HALTED}:
        if operation.kind is request.kind:
            return operation, ""
        return operation, f"a {operation.kind} is under way: {operation.reason}"
    if operation is not None and operation.step is OperationStep.HALTED and operation.kind is request.kind:
        return operation, ""
    if waits(operation) and must_wait and _STRENGTH[request.kind] <= _STRENGTH[operation.kind]:
        same = operation.kind is request.kind
        return operation, "" if same else f"a {operation.kind} waits already: {operation.reason}"
    return (
        BootEnd(
            kind=request.kind,
            boot_reason=request.boot_reason,
            reason=request.reason,
            step=OperationStep.WAITING if must_wait else OperationStep.ANNOUNCED,
            since=now,
            stack=request.stack,
            replaced=operation if waits(operation) else None,
        ),
        "",
    )


def withdraw_update(operation: BootEnd | None) -> BootEnd | None:
    """Return what is left without a reboot into a new image that is only announced: the operation it has replaced, or None."""
    if operation is None or operation.step is not OperationStep.ANNOUNCED:
        return operation
    return operation.replaced if operation.boot_reason is BootReason.UPDATE else operation


def advance(
    operation: BootEnd, now: int, *, is_held: bool, all_halted: bool
) -> tuple[BootEnd, tuple[Deed, ...]]:
    """Go one step on if it is due; returns what is to be done now.

    `is_held`: an image is tested, or a drain is waited for. `all_halted`: no pod and no domain runs.
    """
    elapsed = now - operation.since
    match operation.step:
        case OperationStep.WAITING if not is_held:
            return _go(operation, StepCause.VERDICT, now), ()
        case OperationStep.ANNOUNCED if elapsed >= ANNOUNCE_SECONDS:
            writes = () if operation.kind is OperationKind.SHUTDOWN else (Deed.WRITE_REASON,)
            return _go(operation, StepCause.ANNOUNCED, now), (*writes, Deed.HALT)
        case OperationStep.HALTING if all_halted or elapsed >= HALT_SECONDS:
            stops = operation.kind is OperationKind.SHUTDOWN
            operation = replace(operation, all_halted=all_halted)
            return _go(operation, StepCause.STOPS if stops else StepCause.HALTED, now), (Deed.SYNC,)
        case OperationStep.SETTLING if elapsed >= SETTLE_SECONDS:
            return _go(operation, StepCause.SETTLED, now), (Deed.SYNC, Deed.ACT)
        case OperationStep.ACTING if elapsed >= BACKSTOP_SECONDS:
            return _go(operation, StepCause.BACKSTOP, now), (Deed.EXIT,)
    return operation, ()


def resume(operation: BootEnd | None, now: int) -> tuple[BootEnd | None, tuple[Deed, ...]]:
    """Go on after the guardian was killed; returns the deeds that are stored and may not have been done.

    All of them may be done twice.
    """
    if operation is None:
        return None, ()
    reason = () if operation.kind is OperationKind.SHUTDOWN else (Deed.WRITE_REASON,)
    match operation.step:
        case OperationStep.HALTING | OperationStep.SETTLING:
            return operation, (*reason, Deed.HALT)
        case OperationStep.ACTING | OperationStep.LATE:
            # The backstop counts from the new attempt.
            again = replace(operation, step=OperationStep.ACTING, since=now)
            return again, (*reason, Deed.SYNC, Deed.ACT)
    return operation, ()


def _go(operation: BootEnd, cause: StepCause, now: int) -> BootEnd:
    return replace(operation, step=TABLE[operation.step, cause], since=now)
