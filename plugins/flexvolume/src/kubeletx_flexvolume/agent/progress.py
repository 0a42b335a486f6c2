"""Changes of a journal by a step that begins, succeeds or fails. Pure.

A step that has begun may have any effect, so its mark is MAY; only success makes it YES or NO. If a step towards a
mounted use fails, the use is to be removed.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ..backends.backend import AttachedSource
from ..values import Holder, HolderKey, HolderStatus
from .journal import Content, Mark, VolumeJournal
from .plan import Step, StepKind


class StepOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """Results of a step. Steps that are not named leave the defaults.

    `holder`: the stored entry (TAKE). `source`: the attached volume (ATTACH). `is_ready`: the device has a file system
    (LOOK). `is_writable`: of the new mount (MOUNT).
    """

    holder: Holder | None = None
    source: AttachedSource | None = None
    is_ready: bool = False
    is_writable: bool = False


REMOVALS = frozenset(
    (StepKind.UNBIND, StepKind.FINISH_FORMAT, StepKind.UNMOUNT, StepKind.DETACH, StepKind.RELEASE)
)
"""Steps that remove something."""


def begun(journal: VolumeJournal, step: Step) -> VolumeJournal:
    """Return the journal while the step runs."""
    match step.kind:
        case StepKind.TAKE | StepKind.RELEASE:
            return _with_use(journal, step.key, taken=Mark.MAY)
        case StepKind.ATTACH | StepKind.DETACH:
            return _replace(journal, attached=Mark.MAY)
        case StepKind.FORMAT:
            return _replace(journal, content=Content.FORMATTING)
        case StepKind.MOUNT | StepKind.UNMOUNT:
            return _replace(journal, mounted=Mark.MAY)
        case StepKind.BIND | StepKind.UNBIND:
            return _with_use(journal, step.key, bound=Mark.MAY)
        case _:
            return journal


def succeeded(journal: VolumeJournal, step: Step, outcome: StepOutcome) -> VolumeJournal:
    """Return the journal after the step has succeeded."""
    match step.kind:
        case StepKind.TAKE if outcome.holder is not None:
            return _with_use(journal, step.key, taken=Mark.YES, holder=outcome.holder)
        case StepKind.ATTACH if outcome.source is not None:
            return _replace(journal, attached=Mark.YES, source=outcome.source)
        case StepKind.LOOK:
            return _replace(journal, content=Content.READY if outcome.is_ready else Content.BLANK)
        case StepKind.FORMAT:
            return _replace(journal, content=Content.READY)
        case StepKind.MOUNT:
            return _replace(journal, mounted=Mark.YES, is_writable=outcome.is_writable)
        case StepKind.WRITABLE:
            return _replace(journal, is_writable=True)
        case StepKind.BIND:
            return _with_use(journal, step.key, bound=Mark.YES)
        case StepKind.CONFIRM:
            return _confirmed(journal, step.key)
        case StepKind.UNBIND:
            return _with_use(journal, step.key, bound=Mark.NO)
        case StepKind.FINISH_FORMAT:
            return _replace(journal, content=Content.UNKNOWN)
        case StepKind.UNMOUNT:
            return _replace(journal, mounted=Mark.NO, is_writable=False)
        case StepKind.DETACH:
            return _replace(journal, attached=Mark.NO, source=None, content=Content.UNKNOWN)
        case StepKind.RELEASE if step.key is not None:
            return journal.without(step.key)
        case _:
            raise TypeError(f"step {step.kind.name} cannot have the outcome {outcome}")


def failed(journal: VolumeJournal, step: Step, *, is_refused: bool = False) -> VolumeJournal:
    """Return the journal after the step has failed. `is_refused`: the record shows that the entry was not made."""
    if step.kind in REMOVALS:
        return journal
    if step.kind is StepKind.TAKE and step.key is not None and is_refused:
        return journal.without(step.key)
    if step.kind in (StepKind.LOOK, StepKind.FORMAT):
        journal = _replace(journal, content=Content.UNKNOWN)
    if step.kind is StepKind.BIND and journal.mounted is Mark.YES:  # its mount of the node may be gone
        journal = _replace(journal, mounted=Mark.MAY)
    return journal if step.key is None else journal.leave(step.key)


def recovered(journal: VolumeJournal, boot_id: str, mounted_on: frozenset[str]) -> VolumeJournal:
    """Return the journal of a former run of the agent, as it is to be continued.

    `boot_id`: of the running kernel. `mounted_on`: paths at which something is mounted. Completed mounts that still
    exist stay. Everything else is to be removed.
    """
    if (
        journal.boot_id != boot_id
    ):  # mounts have ended with their kernel; detaching also removes files of daemons
        uses = tuple(msgspec.structs.replace(use, bound=Mark.NO) for use in journal.uses)
        content = Content.UNKNOWN
        return _replace(
            journal,
            boot_id=boot_id,
            uses=uses,
            mounted=Mark.NO,
            is_writable=False,
            source=None,
            content=content,
        ).leave()
    gone = [
        use.key
        for use in journal.uses
        if not (use.is_mounted and use.is_wanted and use.holder.mount_dir in mounted_on)
    ]
    if not gone and journal.uses:
        return journal
    return _uncertain(journal.leave(*gone) if gone else journal, gone)


def _uncertain(journal: VolumeJournal, gone: list[HolderKey]) -> VolumeJournal:
    """Return the journal without certainty about uses that leave: steps after the last write may have undone them."""
    for key in gone:
        use = journal.find(key)
        if use is not None:
            journal = _with_use(
                journal, key, taken=_uncertain_mark(use.taken), bound=_uncertain_mark(use.bound)
            )
    if journal.staying:
        return journal
    return _replace(
        journal,
        attached=_uncertain_mark(journal.attached),
        source=None,
        mounted=_uncertain_mark(journal.mounted),
        content=journal.content if journal.content is Content.FORMATTING else Content.UNKNOWN,
    )


def _uncertain_mark(mark: Mark) -> Mark:
    return Mark.MAY if mark is Mark.YES else mark


def _confirmed(journal: VolumeJournal, key: HolderKey | None) -> VolumeJournal:
    use = None if key is None else journal.find(key)
    if use is None:
        return journal
    device = "" if journal.source is None else journal.source.source
    holder = msgspec.structs.replace(use.holder, status=HolderStatus.MOUNTED, device=device)
    return journal.with_use(msgspec.structs.replace(use, is_mounted=use.is_wanted, holder=holder))


def _with_use(journal: VolumeJournal, key: HolderKey | None, **changes: Any) -> VolumeJournal:
    use = None if key is None else journal.find(key)
    return journal if use is None else journal.with_use(msgspec.structs.replace(use, **changes))


def _replace(journal: VolumeJournal, **changes: Any) -> VolumeJournal:
    return msgspec.structs.replace(journal, **changes)
