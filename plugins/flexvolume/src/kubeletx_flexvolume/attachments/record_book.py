"""`RecordBook`: the `AttachmentBook` over records.

    take   own node in order? ─► read ─► decide ─► write with the version that was read
                                  ▲        │ needs a proof: search, read again
                                  └────────┴─ another writer was faster, or the result is unknown

- A node enters itself only while no proof exists against its own entry: its Node object exists, shows this boot and is
  not out of service. Otherwise another node could break the new lock at once, as the rules allow.
- Before a lock is broken, the broken entries are added to the garbage lists of their nodes.
- A volume that is attached here without an entry (its lock was broken) is not taken before it is unmounted.
- A proof counts only while its entry is unchanged: a holder that writes to its entry is not gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec
import structlog

from kubeletx.api import Clock, Conflict, Record, Unavailable

from ..agent.local import LocalVolume, LocalVolumes
from ..backends.backend import Backend
from ..backends.sharing import ChecksModes
from ..values import AccessMode, StorageVolume
from .decision import AlreadyEntered, BreakLock, BreakPolicy, Decision, Enter, NeedsProof, RefuseEntry, decide
from .editing import TRIES, RecordEditor
from .events import LOCK_BROKEN, AttachmentEvents
from .fencing import ProofSearch
from .garbage import GarbageLists, item_of, rfc3339
from .guard import VolumeGuard
from .holder import Holder, HolderStatus
from .modes import VolumeLookup
from .nodes import NodeDirectory
from .proofs import Proof, Proofs, StorageNode, proof_from_facts
from .record import (
    AttachmentEntry,
    Entries,
    EntryKey,
    entries_of,
    entry_of,
    find_entry,
    with_entry,
    without,
)

log = structlog.get_logger(__name__)

A = TypeVar("A")
B = TypeVar("B")

_NOT_SEARCHED: Final = Proof(is_gone=False, why="no proof was searched for")


class BookTools(msgspec.Struct, frozen=True, kw_only=True):
    """Parts that a `RecordBook` works with.

    `pending`: names of the volumes that the garbage list of this node has; raises Unavailable while the list is not
    known. `refuses`: returns why a volume must not be mounted; empty if it may. `lost`: set if a volume is attached
    here without an entry.
    """

    editor: RecordEditor
    garbage: GarbageLists
    nodes: NodeDirectory
    volumes: VolumeLookup
    proofs: ProofSearch
    events: AttachmentEvents
    guard: VolumeGuard
    local: Callable[[], LocalVolumes]
    pending: Callable[[], Collection[str]]
    refuses: Callable[[StorageVolume], str]
    lost: asyncio.Event
    backends: Mapping[str, Backend] = {}
    """By name. A backend that checks access modes does so before a volume is taken."""


class _Request(msgspec.Struct, frozen=True):
    """One call of `take`, or of `reenter`."""

    volume: StorageVolume
    wanted: AttachmentEntry
    modes: tuple[AccessMode, ...]


class RecordBook:
    """Takes, updates and releases entries of this node. Implements `book.AttachmentBook`."""

    def __init__(
        self, tools: BookTools, *, node: str, boot_id: str, policy: BreakPolicy, clock: Clock
    ) -> None:
        """`node`, `boot_id`: of this node; entries of others are refused."""
        self._tools = tools
        self._editor = tools.editor
        self._node = node
        self._boot_id = boot_id
        self._policy = policy
        self._clock = clock

    async def take(self, volume: StorageVolume, holder: Holder) -> Holder:
        if why := self._tools.refuses(volume):
            raise Unavailable(why)
        with self._tools.guard.taking(volume.name):
            if volume.name in self._tools.pending():
                raise Unavailable(
                    f"volume {volume.name} is still to be removed from node {self._node}: its lock was broken"
                )
            request = await self._request(volume, holder)
            backend: object = self._tools.backends.get(volume.backend)
            if isinstance(backend, ChecksModes):
                backend.check_modes(volume, request.modes)
            return await self._enter(request)

    async def reenter(self, volume: StorageVolume, holder: Holder) -> None:
        """Enter a holder that is mounted here into records that were lost as a whole.

        Raises Conflict if the volume is in use elsewhere meanwhile; no lock is broken.
        """
        request = await self._request(volume, holder)
        for attempt in range(TRIES):
            record = await self._editor.find(volume.name)
            entries = entries_of(record)
            decision = self._decide(request, entries, {one.key: _NOT_SEARCHED for one in entries})
            if isinstance(decision, AlreadyEntered):
                return
            if not isinstance(decision, Enter):
                reason = decision.reason if isinstance(decision, RefuseEntry | BreakLock) else "it is in use"
                raise Conflict(f"volume {volume.name} cannot be entered again: {reason}")
            if await self._editor.write(volume.name, record, with_entry(entries, request.wanted)):
                return
            await self._editor.pause(attempt)
        raise self._editor.too_busy(volume.name)

    async def note(self, volume: StorageVolume, holder: Holder, *, device: str, status: HolderStatus) -> None:
        def change(entries: Entries) -> Entries:
            stored = find_entry(entries, holder.key)
            if stored is None or stored.pod_uid != holder.pod_uid:
                raise Conflict(
                    f"the attachment record of volume {volume.name} has no entry for {holder} any more: its lock was "
                    "broken, or the record was deleted"
                )
            return with_entry(entries, msgspec.structs.replace(stored, device=device, status=status))

        await self._editor.change(volume.name, change)

    async def release(self, volume: StorageVolume, holder: Holder) -> None:
        await self._editor.change(volume.name, lambda entries: without(entries, {holder.key}))

    async def holds(self, volume: StorageVolume, holder: Holder) -> bool:
        stored = find_entry(await self._editor.items(volume.name), holder.key)
        return stored is not None and stored.pod_uid == holder.pod_uid

    # --- inside ---

    async def _request(self, volume: StorageVolume, holder: Holder) -> _Request:
        """Collect what a decision needs. Raises Unavailable while other nodes could break the new lock at once."""
        if (holder.node, holder.boot_id) != (self._node, self._boot_id):
            raise Conflict(
                f"entry for {holder}, boot {holder.boot_id}, is not of this node: this is node {self._node}, boot "
                f"{self._boot_id}"
            )
        facts, modes = await _both(self._tools.nodes.facts(self._node), self._tools.volumes.modes(volume))
        wanted = entry_of(volume, holder, node_uid=facts.uid)
        if why := proof_from_facts(wanted, facts) or self._boot_problem(facts):
            raise Unavailable(
                f"this node cannot attach volumes now, since other nodes would count it as gone: {why}; this boot is "
                f"{self._boot_id}. Wait until the node has reported it, or correct --node-name"
            )
        since = holder.since or rfc3339(self._clock.now())
        return _Request(volume, msgspec.structs.replace(wanted, since=since), modes)

    def _boot_problem(self, facts: StorageNode) -> str:
        return "" if facts.boot_id == self._boot_id else f"node {facts.name} has not reported a boot ID yet"

    def _decide(self, request: _Request, entries: Entries, proofs: Proofs) -> Decision:
        name, wanted = request.volume.name, request.wanted
        return decide(name, entries, wanted, modes=request.modes, policy=self._policy, proofs=proofs)

    async def _enter(self, request: _Request) -> Holder:
        """Decide and write until the entry is stored, and return it. Raises Conflict if the volume is in use."""
        name = request.volume.name
        searched: dict[EntryKey, tuple[AttachmentEntry, Proof]] = {}
        broken_for = ""
        for attempt in range(TRIES):
            record = await self._editor.find(name)
            entries = entries_of(record)
            self._check_local(name, entries, request.wanted)
            decision = self._decide(request, entries, _valid(searched, entries))
            is_last = attempt == TRIES - 1
            match decision:
                case AlreadyEntered(entry):
                    if broken_for and entry.reason == broken_for:  # written, but the answer was lost
                        await self._report(name, entry)
                    return entry.holder
                case RefuseEntry(reason):
                    raise Conflict(reason)
                case NeedsProof(unknown):
                    found = await self._tools.proofs.search(request.volume, request.wanted, unknown)
                    searched |= {one.key: (one, found[one.key]) for one in unknown}
                    continue
                case BreakLock(_, reason):
                    broken_for = reason
                    if made := await self._break(request, record, decision, is_last=is_last):
                        await self._report(name, made)
                        return made.holder
                case _:
                    after = with_entry(entries, request.wanted)
                    if await self._editor.write(name, record, after, is_last=is_last):
                        return request.wanted.holder
            await self._editor.pause(attempt)
        raise self._editor.too_busy(name)

    async def _break(
        self, request: _Request, record: Record | None, decision: BreakLock, *, is_last: bool
    ) -> AttachmentEntry | None:
        """Replace the entries of gone holders; returns the new entry, or None if the record must be read again."""
        name, now = request.volume.name, self._clock.now()
        items = [item_of(name, one, why=decision.reason, now=now) for one in decision.entries]
        await self._tools.garbage.add(one for one in items if one.node != self._node)
        entry = msgspec.structs.replace(request.wanted, reason=decision.reason)
        left = without(entries_of(record), {one.key for one in decision.entries})
        is_done = await self._editor.write(name, record, with_entry(left, entry), is_last=is_last)
        return entry if is_done else None

    async def _report(self, name: str, entry: AttachmentEntry) -> None:
        log.warning("Broke the lock of a volume", volume=name, pod=f"{entry.pod_namespace}/{entry.pod}")
        message = f"Volume {name} is attached for {entry}; {entry.reason}"
        await self._tools.events.of_volume(name, reason=LOCK_BROKEN, message=message)

    def _check_local(self, name: str, entries: Entries, wanted: AttachmentEntry) -> None:
        """Raise Unavailable if the volume is attached here for pods that have lost their entries."""
        one = self._tools.local().find(name)
        if one is not None and (lost := lost_holders(one, entries, wanted.key)):
            self._tools.lost.set()
            raise Unavailable(
                f"volume {name} is attached on this node for {lost[0]}, which has no entry in the record any more: "
                "it is unmounted first"
            )


def lost_holders(
    local: LocalVolume, entries: Sequence[AttachmentEntry], entering: EntryKey | None = None
) -> list[Holder]:
    """Return the holders of an attached volume that have no entry.

    `entering`: key of a holder that is entered now, and needs none before the volume is mounted for it.
    """
    if not local.device:
        return []
    keys = {one.key for one in entries}
    return [
        one
        for one in local.holders
        if one.key not in keys and (one.key != entering or one.status is not HolderStatus.ATTACHING)
    ]


def _valid(searched: dict[EntryKey, tuple[AttachmentEntry, Proof]], entries: Entries) -> Proofs:
    """Return the proofs against entries that have not changed since the search."""
    return {
        one.key: searched[one.key][1]
        for one in entries
        if one.key in searched and searched[one.key][0] == one
    }


async def _both(first: Coroutine[Any, Any, A], second: Coroutine[Any, Any, B]) -> tuple[A, B]:
    """Return both results; if one call fails, the other is cancelled."""
    one = asyncio.create_task(first, name="facts about this node")
    other = asyncio.create_task(second, name="access modes")
    try:
        return await asyncio.gather(one, other)
    finally:
        for task in (one, other):
            task.cancel()
        await asyncio.gather(one, other, return_exceptions=True)
