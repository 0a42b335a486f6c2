"""Rules that choose the next step of a volume from its journal. Pure.

    TAKE ─► ATTACH ─► LOOK ─► FORMAT if blank ─► MOUNT ─► BIND ─► CONFIRM       a pod wants the volume
    RELEASE ◄─ DETACH ◄─────────────────────────  UNMOUNT ◄─ UNBIND             no pod wants it any more

A block volume goes from ATTACH to BIND.

Removals come first. The device stays while a use stays. The entry of a use in the volume's record is removed only when
the device is gone, or another use of this node has an entry, which then protects the device.

A step is blocked after it has failed, until it is repeated; nothing that depends on it is planned meanwhile.
"""

from __future__ import annotations

import enum
from collections.abc import Collection

import msgspec

from ..backends.backend import SourceType
from ..values import Holder, HolderKey
from .journal import Content, Mark, Use, VolumeJournal


class StepKind(enum.Enum):
    """Kind of a step. The value is for messages: "still VALUE"."""

    TAKE = "entering it in its record"
    ATTACH = "attaching it"
    LOOK = "checking its content"
    FORMAT = "formatting it"
    MOUNT = "mounting it"
    WRITABLE = "making its mount writable"
    BIND = "mounting it for the pod"
    CONFIRM = "noting the mount in its record"
    UNBIND = "unmounting it from the pod"
    FINISH_FORMAT = "finishing an interrupted format"
    UNMOUNT = "unmounting it"
    DETACH = "detaching it"
    RELEASE = "removing its entry from its record"


class Step(msgspec.Struct, frozen=True):
    """One step. `key`: the use that it is for; None: it is for the volume."""

    kind: StepKind
    key: HolderKey | None = None


def next_step(
    journal: VolumeJournal,
    *,
    blocked: Collection[Step] = (),
    awaited: Collection[HolderKey] = (),
) -> Step | None:
    """Return the next step; None if there is nothing to do now.

    `blocked`: steps that have failed and are not due again. `awaited`: uses whose caller waits for the result; a
    volume is only mounted for the pod while its caller waits.
    """
    return _next_removal(journal, blocked) or _next_making(journal, awaited)


def _next_removal(journal: VolumeJournal, blocked: Collection[Step]) -> Step | None:
    for use in journal.leaving:
        step = Step(StepKind.UNBIND, use.key)
        if use.bound is not Mark.NO and step not in blocked:
            return step
    if not journal.staying and all(use.bound is Mark.NO for use in journal.uses):
        for is_left, step in (
            (_is_half_formatted(journal), Step(StepKind.FINISH_FORMAT)),
            (journal.mounted is not Mark.NO, Step(StepKind.UNMOUNT)),
            (journal.attached is not Mark.NO, Step(StepKind.DETACH)),
        ):
            if is_left:
                if step in blocked:
                    return None
                return step
    for use in journal.leaving:
        step = Step(StepKind.RELEASE, use.key)
        if use.bound is Mark.NO and _may_release(journal) and step not in blocked:
            return step
    return None


def _next_making(journal: VolumeJournal, awaited: Collection[HolderKey]) -> Step | None:
    for use in journal.staying:
        if use.is_mounted:
            continue
        if step := _for_use(journal, use, is_awaited=use.key in awaited):
            return step
    return None


def _for_use(journal: VolumeJournal, use: Use, *, is_awaited: bool) -> Step | None:
    """Return the next step towards a mounted use; None if it waits for its caller."""
    if use.taken is not Mark.YES:
        return Step(StepKind.TAKE, use.key)
    if journal.attached is not Mark.YES or journal.source is None:
        return Step(StepKind.ATTACH, use.key)
    if journal.volume.is_block:
        return _for_device(use, is_awaited=is_awaited)
    if journal.mounted is not Mark.YES:
        if journal.source.type is SourceType.DEVICE and journal.content is not Content.READY:
            is_blank = journal.content is Content.BLANK
            return Step(StepKind.FORMAT if is_blank else StepKind.LOOK, use.key)
        return Step(StepKind.MOUNT, use.key)
    if not use.holder.read_only and not journal.is_writable:
        return Step(StepKind.WRITABLE, use.key)
    return _for_device(use, is_awaited=is_awaited)


def _for_device(use: Use, *, is_awaited: bool) -> Step | None:
    """Return the last steps. A pod with a block volume gets the device, which is neither formatted nor mounted."""
    if use.bound is not Mark.YES:
        return Step(StepKind.BIND, use.key) if is_awaited else None
    return Step(StepKind.CONFIRM, use.key)


def _is_half_formatted(journal: VolumeJournal) -> bool:
    return (
        journal.content is Content.FORMATTING
        and journal.attached is not Mark.NO
        and journal.mounted is Mark.NO
        and not journal.is_forced
    )


def _may_release(journal: VolumeJournal) -> bool:
    """Return True if an entry of this node may be removed: no device is left, or another entry protects it."""
    return journal.attached is Mark.NO or any(use.taken is Mark.YES for use in journal.staying)


def entered_holders(journal: VolumeJournal) -> tuple[Holder, ...]:
    """Return the holders that have, or may have, an entry in the record which must stay now."""
    stands = any(use.taken is Mark.YES for use in journal.staying)
    return tuple(
        use.holder
        for use in journal.uses
        if use.taken is not Mark.NO and (use.is_wanted or use.bound is not Mark.NO or not stands)
    )


def is_covered(stored: VolumeJournal | None, step: Step) -> bool:
    """Return True if the journal on disk has all that the step may make or leave behind."""
    if stored is None:
        return False
    use = None if step.key is None else stored.find(step.key)
    match step.kind:
        case StepKind.TAKE:
            return use is not None and use.taken is not Mark.NO
        case StepKind.ATTACH:
            return stored.attached is not Mark.NO
        case StepKind.FORMAT:
            return stored.content is Content.FORMATTING
        case StepKind.MOUNT:
            # a format that is noted there would be repeated after a crash, although pods have written meanwhile
            return stored.mounted is not Mark.NO and stored.content is not Content.FORMATTING
        case StepKind.BIND:
            return use is not None and use.bound is not Mark.NO
        case StepKind.UNBIND | StepKind.RELEASE:
            return use is None or not use.is_wanted
        case _:
            return True


def announce(journal: VolumeJournal, step: Step) -> VolumeJournal:
    """Return the journal to store before the step: with everything marked that it and the steps after it may make.

    The entry is marked by itself, since an image is detached only by the volume that has entered it. All other parts of a
    mount are marked at once, so that it writes its journal twice before it is mounted. The journal in memory has exact
    marks; the one on disk may have more, whose removal finds nothing.
    """
    if step.kind is StepKind.FORMAT:
        return msgspec.structs.replace(journal, content=Content.FORMATTING)
    use = None if step.key is None else journal.find(step.key)
    if use is None or not use.is_wanted:
        return journal
    use = msgspec.structs.replace(use, taken=_at_least_may(use.taken))
    if step.kind is StepKind.TAKE:
        return journal.with_use(use)
    use = msgspec.structs.replace(use, bound=_at_least_may(use.bound))
    return msgspec.structs.replace(
        journal.with_use(use),
        attached=_at_least_may(journal.attached),
        mounted=_at_least_may(journal.mounted),
    )


def _at_least_may(mark: Mark) -> Mark:
    return Mark.MAY if mark is Mark.NO else mark
