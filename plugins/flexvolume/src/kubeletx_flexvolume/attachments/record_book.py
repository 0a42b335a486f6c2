"""`RecordBook`: takes, updates and releases the entries of this node in attachment records.

    take   own node in order? ─► read ─► decide ─► write with the versions that were read
                                  ▲        │ needs a proof: search, read again
                                  └────────┴─ another writer was faster, or the result is unknown

- An entry is in the record of its volume and in the records of its image. A holder has the volume when all have its
  entry. Of two volumes with one image, taken at the same moment, the one that writes second to the image's record finds
  the other.
- A node enters itself only while no proof exists against its own entry: its Node object exists, shows this boot and is
  not out of service. Otherwise another node could break the new lock at once, as the rules allow.
- Before a lock is broken, the broken entries are added to the garbage lists of their nodes.
- A volume that is attached here without an entry (its lock was broken) is not taken before it is unmounted.
- A proof counts only while its entry is unchanged: a holder that writes to its entry is not gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec
import structlog

from kubeletx.api import Conflict, Record, Unavailable

from ..values import AccessMode, Holder, HolderKey, HolderStatus, StorageVolume
from .decision import (
    AlreadyEntered,
    BreakLock,
    Decision,
    Enter,
    NeedsProof,
    RefuseEntry,
    decide,
    is_of_same_use,
)
from .editing import TRIES, remove_entries, strike
from .events import LOCK_BROKEN
from .fencing import ProofSearch
from .garbage import item_of, rfc3339
from .node import LocalVolume, NodeContext
from .proofs import Proof, Proofs, StorageNode, proof_from_facts
from .record import (
    AttachmentEntry,
    Entries,
    entries_of,
    entry_of,
    find_entry,
    image_record,
    with_entry,
    without,
)

log = structlog.get_logger(__name__)

A = TypeVar("A")
B = TypeVar("B")

_NOT_SEARCHED: Final = Proof(is_gone=False, why="no proof was searched for")


class _Request(msgspec.Struct, frozen=True):
    """One call of `take`, or of `reenter`."""

    volume: StorageVolume
    wanted: AttachmentEntry
    modes: tuple[AccessMode, ...]


class _Found(msgspec.Struct, frozen=True):
    """Records of a volume and its image, as they were read.

    `records`: by name, the volume's first. `entries`: of all of them, without the wanted entry if a record lacks it.
    """

    records: Mapping[str, Record | None]
    of_volume: Entries
    entries: Entries


class RecordBook:
    """Takes, updates and releases entries of this node.

    All methods raise Unavailable or TimedOut if the records do not answer; after TimedOut of a write it is unknown
    whether it was done, and the call is repeated with the same holder.
    """

    def __init__(self, context: NodeContext) -> None:
        self._context = context
        self._stores = context.stores
        self._editor = context.stores.editor
        self._proofs = ProofSearch(context)
        self._looks: dict[tuple[str, ...], asyncio.Task[tuple[str, ...]]] = {}
        """Looks at images that have not ended, such as of a pool that hangs: each has a thread."""

    async def take(self, volume: StorageVolume, holder: Holder) -> Holder:
        """Enter `holder` in the volume's record and return the entry as it is stored; succeeds if it is there already.

        Raises Conflict, which names the present holder, if the access mode does not allow both. Breaks the lock of a
        holder that has gone, following the agent's policy.
        """
        if why := self._context.refuses(volume):
            raise Unavailable(why)
        guard = self._context.guard
        with guard.taking(volume.name):
            guard.is_pending(())  # raises while that is not known, before the records are asked
            request = await self._request(volume, holder, make=True)
            if guard.is_pending((volume.name, *request.wanted.images)):
                raise Unavailable(
                    f"volume {volume.name} is still to be removed from node {holder.node}: its lock was broken"
                )
            return await self._enter(request)

    async def reenter(self, volume: StorageVolume, holder: Holder) -> None:
        """Enter a holder that is mounted here into records that were lost as a whole.

        Raises Conflict if the volume is in use elsewhere meanwhile; no lock is broken.
        """
        request = await self._request(volume, holder)
        for attempt in range(TRIES):
            found = await self._found(request)
            decision = self._decide(
                request, found.entries, {entry.key: _NOT_SEARCHED for entry in found.entries}
            )
            if not isinstance(decision, AlreadyEntered | Enter):
                reason = decision.reason if isinstance(decision, RefuseEntry | BreakLock) else "it is in use"
                raise Conflict(f"volume {volume.name} cannot be entered again: {reason}")
            if await self._written(found, request.wanted):
                return
            await self._editor.pause(attempt)
        raise self._editor.too_busy(volume.name)

    async def note(self, volume: StorageVolume, holder: Holder, *, device: str, status: HolderStatus) -> None:
        """Write device and status to the entry. Raises Conflict if the entry is gone: the lock was broken."""

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
        """Remove the entry, and the record if it was the last one; succeeds if it is not there.

        Call it only when no device of the volume is left on this node for this holder.
        """
        images = holder.images
        if not images:  # the answer to `take` was lost, or the journal
            stored = find_entry(await self._editor.items(volume.name), holder.key)
            images = stored.images if stored is not None else ()
        entry = entry_of(volume, msgspec.structs.replace(holder, images=images))
        await strike(self._editor, volume.name, [entry])

    async def holds(self, volume: StorageVolume, holder: Holder) -> bool:
        """Return True if the record has the entry."""
        stored = find_entry(await self._editor.items(volume.name), holder.key)
        return stored is not None and stored.pod_uid == holder.pod_uid

    async def _request(self, volume: StorageVolume, holder: Holder, *, make: bool = False) -> _Request:
        """Collect what a decision needs. Raises Unavailable while other nodes could break the new lock at once.

        `make`: see `Backend.images`.
        """
        if (holder.node, holder.boot_id) != (self._context.node, self._context.boot_id):
            raise Conflict(
                f"entry for {holder}, boot {holder.boot_id}, is not of this node: this is node {self._context.node}, boot "
                f"{self._context.boot_id}"
            )
        facts, modes = await _both(
            self._stores.nodes.facts(self._context.node), self._stores.volumes.modes(volume)
        )
        wanted = entry_of(volume, holder, node_uid=facts.uid)
        if why := proof_from_facts(wanted, facts) or self._boot_problem(facts):
            raise Unavailable(
                f"this node cannot attach volumes now, since other nodes would count it as gone: {why}; this boot is "
                f"{self._context.boot_id}. Wait until the node has reported it, or correct --node-name"
            )
        backend = self._context.backends.get(volume.backend)
        if make and backend is not None:
            backend.check_modes(volume, modes)
        images = await self._identities(volume, make=make)
        since = holder.since or rfc3339(self._stores.clock.now())
        records = tuple(sorted(map(image_record, images)))
        return _Request(
            volume, msgspec.structs.replace(wanted, since=since, images=records, modes=modes), modes
        )

    def _boot_problem(self, facts: StorageNode) -> str:
        return (
            ""
            if facts.boot_id == self._context.boot_id
            else f"node {facts.name} has not reported a boot ID yet"
        )

    def _decide(self, request: _Request, entries: Entries, proofs: Proofs) -> Decision:
        name, wanted = request.volume.name, request.wanted
        return decide(name, entries, wanted, modes=request.modes, policy=self._context.policy, proofs=proofs)

    async def _enter(self, request: _Request) -> Holder:
        """Decide and write until the entry is in all records, and return it. Raises Conflict if the volume is in use."""
        name = request.volume.name
        searched: dict[HolderKey, tuple[AttachmentEntry, Proof]] = {}
        broken_for = ""
        for attempt in range(TRIES):
            found = await self._found(request)
            self._check_local(found, request.wanted)
            decision = self._decide(request, found.entries, _valid(searched, found.entries))
            is_last = attempt == TRIES - 1
            match decision:
                case AlreadyEntered(entry):
                    if broken_for and entry.reason == broken_for:
                        await self._report(name, entry)
                    return entry.holder
                case RefuseEntry(reason):
                    if find_entry(found.of_volume, request.wanted.key) is not None:
                        await self._withdraw(request.wanted)  # another was faster in a record of the image
                    raise Conflict(reason)
                case NeedsProof(unknown):
                    proofs = await self._proofs.search(request.volume, request.wanted, unknown)
                    searched |= {one.key: (one, proofs[one.key]) for one in unknown}
                    continue
                case BreakLock(entries, reason):
                    broken_for = reason
                    await self._give_up(entries, reason, found)
                    entry = msgspec.structs.replace(request.wanted, reason=reason)
                    is_done = await self._written(found, entry, gone=entries, is_last=is_last)
                    if is_done:
                        await self._report(name, entry)
                case _:
                    entry = msgspec.structs.replace(request.wanted, reason=broken_for)
                    is_done = await self._written(found, entry, is_last=is_last)
                    if is_done and broken_for:
                        await self._report(name, entry)
            if is_done:
                return entry.holder
            await self._editor.pause(attempt)
        await self._withdraw(request.wanted)
        raise self._editor.too_busy(name)

    async def _found(self, request: _Request) -> _Found:
        """Read the records of a volume and its image."""
        wanted, name = request.wanted, request.volume.name
        names = (name, *wanted.images)
        records = dict(zip(names, await asyncio.gather(*map(self._editor.find, names)), strict=True))
        found = {one: entries_of(record) for one, record in records.items()}
        merged = {(name, one.key): msgspec.structs.replace(one, volume_name=name) for one in found[name]}
        for image in wanted.images:
            for one in found[image]:
                merged.setdefault((one.volume_name, one.key), one)
        is_missing = not all(
            any(is_of_same_use(entry, wanted) for entry in entries) for entries in found.values()
        )
        return _Found(
            records=records,
            of_volume=found[name],
            entries=tuple(one for one in merged.values() if not (is_missing and is_of_same_use(one, wanted))),
        )

    async def _written(
        self, found: _Found, entry: AttachmentEntry, *, gone: Entries = (), is_last: bool = False
    ) -> bool:
        """Replace the entries that are gone by `entry` in all records; returns False if they must be read again."""
        keys = {one.key for one in gone}
        for name, record in found.records.items():
            entries = entries_of(record)
            after = with_entry(without(entries, keys), entry)
            if after != entries and not await self._editor.write(name, record, after, is_last=is_last):
                return False
        return True

    async def _give_up(self, gone: Entries, reason: str, found: _Found) -> None:
        """Add entries that are gone to the garbage lists of their nodes, and remove them from records of other volumes."""
        now = self._stores.clock.now()
        await self._stores.lists.add(
            item_of(one.volume_name, one, why=reason, now=now)
            for one in gone
            if one.node != self._context.node
        )
        for one in gone:
            for other in {*one.images, one.volume_name} - found.records.keys():
                await remove_entries(self._editor, other, {one.key})

    async def _withdraw(self, entry: AttachmentEntry) -> None:
        """Remove what a refused take has written. Raises Unavailable if it may still be there, never Conflict."""
        try:
            await strike(self._editor, entry.volume_name, [entry])
        except Conflict as error:
            raise Unavailable(error.message) from error

    async def _identities(self, volume: StorageVolume, *, make: bool = False) -> tuple[str, ...]:
        """Return the identities of the volume's image. A look that hangs is not repeated beside itself."""
        backend = self._context.backends.get(volume.backend)
        if backend is None:
            return ()
        key = (volume.name, volume.backend, volume.pool, volume.image, str(make))
        look = self._looks.get(key)
        if look is None:
            look = asyncio.create_task(backend.images(volume, make=make), name=f"identities of {volume.name}")
            self._looks[key] = look
            look.add_done_callback(lambda ended: self._looked(key, ended))
        return await asyncio.shield(look)

    def _looked(self, key: tuple[str, ...], look: asyncio.Task[tuple[str, ...]]) -> None:
        del self._looks[key]
        if not look.cancelled():
            look.exception()  # its callers have raised it, or have given up

    async def _report(self, name: str, entry: AttachmentEntry) -> None:
        log.warning("Broke the lock of a volume", volume=name, pod=f"{entry.pod_namespace}/{entry.pod}")
        message = f"Volume {name} is attached for {entry}; {entry.reason}"
        await self._stores.events.of_volume(name, reason=LOCK_BROKEN, message=message)

    def _check_local(self, found: _Found, wanted: AttachmentEntry) -> None:
        """Raise Unavailable if the image is attached here for pods that have lost their entries."""
        for local in self._context.local().volumes():
            name = local.volume.name
            if name == wanted.volume_name:
                lost = lost_holders(local, found.of_volume, wanted.key)
            elif any(not set(holder.images).isdisjoint(wanted.images) for holder in local.holders):
                lost = lost_holders(local, [e for e in found.entries if e.volume_name == name])
            else:
                continue
            if lost:
                self._context.guard.lost.set()
                raise Unavailable(
                    f"volume {name} is attached on this node for {lost[0]}, which has no entry in the record any "
                    "more: it is unmounted first"
                )


def lost_holders(
    local: LocalVolume, entries: Sequence[AttachmentEntry], entering: HolderKey | None = None
) -> list[Holder]:
    """Return the holders of an attached volume that have no entry.

    `entering`: key of a holder that is entered now, and needs none before the volume is mounted for it.
    """
    if not local.device:
        return []
    keys = {entry.key for entry in entries}
    return [
        holder
        for holder in local.holders
        if holder.key not in keys and (holder.key != entering or holder.status is not HolderStatus.ATTACHING)
    ]


def _valid(searched: dict[HolderKey, tuple[AttachmentEntry, Proof]], entries: Entries) -> Proofs:
    """Return the proofs against entries that have not changed since the search."""
    return {
        entry.key: searched[entry.key][1]
        for entry in entries
        if entry.key in searched and searched[entry.key][0] == entry
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
