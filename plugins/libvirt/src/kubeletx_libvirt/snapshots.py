"""Internal qcow2 snapshots of a machine (`SupportsSnapshots`; DECISIONS 33 in docs/decisions/answers.md).

A snapshot of a running guest always includes its memory, since libvirt supports no other internal snapshots
of a running guest. If a snapshot without memory is requested, the guest agent freezes the guest's file
systems while it is taken, and the snapshot is marked. When a marked snapshot is restored, the guest is reset,
so that it boots from the old disk. Without a guest agent, the machine must be off or paused for such a
snapshot. A snapshot that QEMU cannot make is refused with the reason, before libvirt is called.

The mark is the snapshot's description, which libvirt stores.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from xml.etree import ElementTree

import libvirt
import msgspec

from kubeletx.api import (
    AlreadyExists,
    Conflict,
    NotFound,
    SnapshotStatus,
    UnitId,
    UnitState,
    Unsupported,
)
from kubeletx_libvirt.domain.devices import DiskSeen, disks_seen, forbids_saved_memory
from kubeletx_libvirt.domain_reader import now_ns, read_definition
from kubeletx_libvirt.errors import code_of
from kubeletx_libvirt.images.qcow2 import read_snapshot_sizes
from kubeletx_libvirt.machinery import Machinery, Part
from kubeletx_libvirt.records import Run
from kubeletx_libvirt.units import Units, destroy_domain

_DISKS_ONLY = "disks only"


class Snapshots(Part):
    """Creates, lists, restores and deletes snapshots of one runtime's machines (`SupportsSnapshots`)."""

    def __init__(
        self, machinery: Machinery, units: Units, measure: Callable[[UnitId], Awaitable[None]]
    ) -> None:
        """`measure`: reads the machine's size and stores it. A restored snapshot may change the size."""
        super().__init__(machinery)
        self._units = units
        self._measure = measure

    async def create_snapshot(self, unit_id: UnitId, name: str, memory: bool) -> SnapshotStatus:
        """Make a snapshot; the guest does not run meanwhile.

        `memory`: the snapshot includes the memory, so that the guest continues from it at a restore. Raises
        AlreadyExists, and Conflict or Unsupported if the machine cannot have this snapshot now.
        """
        async with self._units.alone(unit_id):
            domain = await self._domains.get(unit_id)
            state = self._domains.state(unit_id, domain)
            if await self._find(unit_id, name) is not None:
                raise AlreadyExists(f"machine {domain.identity.pod} has a snapshot {name!r} already")
            text = await self._connection.use(read_definition, unit_id)
            if (why := refusal(text, state, memory)) is not None:
                kind = Conflict if state is UnitState.SUSPENDED or not state.is_alive else Unsupported
                raise kind(f"cannot make snapshot {name!r} of machine {domain.identity.pod}: {why}")
            # A paused guest writes nothing, and its agent cannot answer: the disk is as after a power cut.
            quiesce = state is UnitState.RUNNING and not memory
            wanted = snapshot_xml(name, disks_seen(text), running=state.is_alive, memory=memory)
            await self._connection.use(_create, unit_id, wanted, quiesce)
            made = await self._find(unit_id, name)
            if made is None:
                raise NotFound(
                    f"snapshot {name!r} of machine {domain.identity.pod} was removed by another program; make it again"
                )
            return made

    async def list_snapshots(self, unit_id: UnitId) -> Sequence[SnapshotStatus]:
        await self._domains.get(unit_id)
        return sorted(await self._connection.use(_list, unit_id), key=lambda snapshot: snapshot.created_at_ns)

    async def restore_snapshot(self, unit_id: UnitId, name: str) -> None:
        async with self._units.alone(unit_id):
            domain = await self._domains.get(unit_id)
            wanted = await self._find(unit_id, name)
            if wanted is None:
                raise NotFound(f"machine {domain.identity.pod} has no snapshot {name!r}")
            state = self._domains.state(unit_id, domain)
            runs_after = wanted.with_memory or state in (UnitState.RUNNING, UnitState.PAUSED)
            old = self._records.run_of(unit_id)
            # While libvirt replaces the emulator the machine is off; the unit must not be seen as ended.
            self._domains.starting.add(unit_id)
            try:
                await self._records.save_run(unit_id, Run(is_starting=True, restarts=old.restarts))
                await self._connection.use(_revert, unit_id, name, wanted.with_memory, runs_after)
            finally:
                self._domains.starting.discard(unit_id)
                await self._records.save_run(unit_id, await self._run_after(unit_id, old, wanted.with_memory))
            await self._measure(unit_id)

    async def delete_snapshot(self, unit_id: UnitId, name: str) -> None:
        async with self._units.alone(unit_id):
            if await self._domains.find(unit_id) is not None:
                await self._connection.use(_delete, unit_id, name)

    async def _find(self, unit_id: UnitId, name: str) -> SnapshotStatus | None:
        listed = await self._connection.use(_list, unit_id)
        return next((snapshot for snapshot in listed if snapshot.name == name), None)

    async def _run_after(self, unit_id: UnitId, old: Run, with_memory: bool) -> Run:
        """Return the `Run` to store after a restore.

        It is the old one if the machine continues as before, else a new one.
        """
        domain = await self._domains.get(unit_id)
        now = now_ns(self._host)
        is_on = domain.state != libvirt.VIR_DOMAIN_SHUTOFF
        if is_on == (old.started_at_ns > 0 and not old.finished_at_ns) and (with_memory or not is_on):
            return msgspec.structs.replace(old, since_ns=now)
        if is_on:
            return Run(started_at_ns=now, since_ns=now, restarts=old.restarts)
        return old  # the restore failed: the next query stores how it ended


def refusal(text: str, state: UnitState, memory: bool) -> str | None:
    """Return the reason that a snapshot of a machine cannot be made now; None if it can.

    `text`: the domain's XML. `memory`: the snapshot includes the memory.
    """
    if state is UnitState.SUSPENDED:
        return "it is suspended; resume it first"
    if memory and not state.is_alive:
        return "it is off and has no memory; leave the memory out, or start it first"
    raw = [disk.target for disk in disks_seen(text) if disk.is_written and disk.format != "qcow2"]
    if raw:
        return f"disk {', '.join(raw)} is not in qcow2 format, the only one that holds snapshots"
    if state.is_alive and (why := forbids_saved_memory(text)) is not None:
        return f"{why}; switch it off and make a snapshot without memory"
    return None


def snapshot_xml(name: str, disks: Sequence[DiskSeen], *, running: bool, memory: bool) -> str:
    """Return the ``<domainsnapshot>`` element for libvirt's snapshotCreateXML.

    `memory`: False marks the snapshot as one of disks only.
    """
    root = ElementTree.Element("domainsnapshot")
    ElementTree.SubElement(root, "name").text = name
    if not memory:
        ElementTree.SubElement(root, "description").text = _DISKS_ONLY
    ElementTree.SubElement(root, "memory", snapshot="internal" if running else "no")
    listed = ElementTree.SubElement(root, "disks")
    for disk in disks:
        kind = "internal" if disk.is_written else "no"
        ElementTree.SubElement(listed, "disk", name=disk.target, snapshot=kind)
    return ElementTree.tostring(root, encoding="unicode")


def snapshot_status(
    text: str, *, is_current: bool = False, sizes: Mapping[str, int] | None = None
) -> SnapshotStatus:
    """Convert libvirt's XML of a snapshot to a `SnapshotStatus`.

    `sizes`: bytes of saved memory by snapshot name; None: unknown.
    """
    root = ElementTree.fromstring(text)
    memory = root.find("memory")
    has_memory = memory is not None and memory.get("snapshot", "no") != "no"
    return SnapshotStatus(
        name=root.findtext("name") or "",
        created_at_ns=int(root.findtext("creationTime") or 0) * 1_000_000_000,
        with_memory=has_memory and root.findtext("description") != _DISKS_ONLY,
        is_current=is_current,
        parent=root.findtext("parent/name") or "",
        size_bytes=(sizes or {}).get(root.findtext("name") or ""),
    )


# --- on the host's threads ---


def _list(handle: libvirt.virConnect, uuid: str) -> list[SnapshotStatus]:
    domain = handle.lookupByUUIDString(uuid)
    listed = domain.listAllSnapshots(libvirt.VIR_DOMAIN_SNAPSHOT_LIST_TOPOLOGICAL)
    sizes: dict[str, int] = {}
    if listed:
        disks = [disk for disk in disks_seen(read_definition(handle, uuid)) if disk.is_written and disk.path]
        sizes = read_snapshot_sizes(disks[0].path) if disks else {}
    return [
        snapshot_status(snapshot.getXMLDesc(), is_current=bool(snapshot.isCurrent()), sizes=sizes)
        for snapshot in listed
    ]


def _create(handle: libvirt.virConnect, uuid: str, text: str, quiesce: bool) -> None:
    domain = handle.lookupByUUIDString(uuid)
    if quiesce:
        try:
            domain.fsFreeze()
        except libvirt.libvirtError as error:
            raise Unsupported(
                "a snapshot without memory of a machine that runs needs its guest agent to hold the file systems "
                f"still, and it does not ({error}); pause it or switch it off, or save the memory too"
            ) from error
    try:
        domain.snapshotCreateXML(text, 0)
    finally:
        if quiesce:
            with contextlib.suppress(libvirt.libvirtError):  # a guest agent that died has thawed by itself
                domain.fsThaw()


def _revert(handle: libvirt.virConnect, uuid: str, name: str, memory: bool, runs_after: bool) -> None:
    domain = handle.lookupByUUIDString(uuid)
    snapshot = domain.snapshotLookupByName(name)
    if domain.hasManagedSaveImage(0):
        domain.managedSaveRemove(0)  # that memory belongs to the disk before the restore
    if memory:
        domain.revertToSnapshot(snapshot, 0)
        return
    if domain.isActive():
        destroy_domain(handle, uuid)
    domain.revertToSnapshot(
        snapshot, libvirt.VIR_DOMAIN_SNAPSHOT_REVERT_PAUSED if _held_memory(snapshot) else 0
    )
    if domain.isActive():
        destroy_domain(handle, uuid)  # its memory must not be used
    if runs_after:
        domain.create()


def _held_memory(snapshot: libvirt.virDomainSnapshot) -> bool:
    memory = ElementTree.fromstring(snapshot.getXMLDesc()).find("memory")
    return memory is not None and memory.get("snapshot", "no") != "no"


def _delete(handle: libvirt.virConnect, uuid: str, name: str) -> None:
    try:
        handle.lookupByUUIDString(uuid).snapshotLookupByName(name).delete(0)
    except libvirt.libvirtError as error:
        if code_of(error) not in (libvirt.VIR_ERR_NO_DOMAIN_SNAPSHOT, libvirt.VIR_ERR_NO_DOMAIN):
            raise
