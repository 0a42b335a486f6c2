"""Values of decisions about one flow: the facts that they depend on, and what is to be done."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from .model import (
    FenceMethod,
    FenceProof,
    FlowStep,
    KernelDump,
    NodeFence,
    NodeView,
    RemedyCourse,
    RemedySettings,
)


class FlowFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Facts that a decision about one node depends on. Times in seconds.

    `reasons`: thresholds that match now; empty: the node is well. `is_due`: one of them has matched for its period. `waited`:
    time in the present step and status; `quiet`: time for which the node has been well. `holds`: reasons of the policy for which
    no step may begin now; `pauses`: reasons for which nothing at all may be done. `is_confirmed`: a person has confirmed that the
    node is well. `dump`: of the node's kernel.
    """

    node: NodeView
    courses: tuple[RemedyCourse, ...] = ()
    settings: RemedySettings = RemedySettings()
    reasons: tuple[str, ...] = ()
    is_due: bool = False
    waited: float = 0.0
    quiet: float = 0.0
    holds: tuple[str, ...] = ()
    pauses: tuple[str, ...] = ()
    dump: KernelDump = KernelDump()
    is_confirmed: bool = False


class Stay(msgspec.Struct, frozen=True):
    """The flow waits. `reasons`: for each of these, with times; `next`: the step after the wait."""

    reasons: tuple[str, ...] = ()
    next: str = ""


class Change(msgspec.Struct, frozen=True):
    """Write this record. `message`: what happened, for an event and the history. `is_warning`: of the event."""

    fence: NodeFence
    message: str
    is_warning: bool = False


class Act(msgspec.Struct, frozen=True):
    """Carry out the method: write its operation into the record first, unless it is there."""

    method: FenceMethod
    place: int
    step: FlowStep


class Release(msgspec.Struct, frozen=True):
    """Release the node's pods as far as the proofs reach."""

    proofs: tuple[FenceProof, ...]


Decision: TypeAlias = Stay | Change | Act | Release
