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

StepResult = Holder | AttachedSource | bool | None
"""Result of a step.

The stored entry (TAKE), the attached volume (ATTACH), True if it is usable (LOOK), True if it is writable (MOUNT).
"""

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


def succeeded(journal: VolumeJournal, step: Step, result: StepResult) -> VolumeJournal:
    """Return the journal after the step has succeeded."""
    match step.kind, result:
        case StepKind.TAKE, Holder():
            return _with_use(journal, step.key, taken=Mark.YES, holder=result)
        case StepKind.ATTACH, AttachedSource():
            return _replace(journal, attached=Mark.YES, source=result)
        case StepKind.LOOK, bool():
            return _replace(journal, content=Content.READY if result else Content.BLANK)
        case StepKind.FORMAT, _:
            return _replace(journal, content=Content.READY)
        case StepKind.MOUNT, bool():
            return _replace(journal, mounted=Mark.YES, is_writable=result)
        case StepKind.WRITABLE, _:
            return _replace(journal, is_writable=True)
        case StepKind.BIND, _:
            return _with_use(journal, step.key, bound=Mark.YES)
        case StepKind.CONFIRM, _:
            return _confirmed(journal, step.key)
        case StepKind.UNBIND, _:
            return _with_use(journal, step.key, bound=Mark.NO)
        case StepKind.FINISH_FORMAT, _:
            return _replace(journal, content=Content.UNKNOWN)
        case StepKind.UNMOUNT, _:
            return _replace(journal, mounted=Mark.NO, is_writable=False)
        case StepKind.DETACH, _:
            return _replace(journal, attached=Mark.NO, source=None, content=Content.UNKNOWN)
        case StepKind.RELEASE, _ if step.key is not None:
            return journal.without(step.key)
        case _:
            raise TypeError(f"step {step.kind.name} cannot have the result {type(result).__name__}")


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
