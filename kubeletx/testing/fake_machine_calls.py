"""The methods of the fake runtime that concern machines: power, snapshots, interfaces, screen and definition."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

from msgspec.structs import replace

from kubeletx.api import AlreadyExists, Nic, NicStatus, NotFound, SnapshotStatus, UnitId, UnitState

from .fake_calls import FakeCalls


class FakeMachineCalls(FakeCalls):
    """Base class of `FakeRuntime` that implements the capabilities of machines.

    These are `SupportsMachine`, `SupportsSnapshots`, `SupportsNics`, `SupportsScreenshot` and
    `SupportsDefinition`.
    """

    async def pause(self, unit_id: UnitId) -> None:
        """Change the unit's state from RUNNING to PAUSED; does nothing if it is PAUSED.

        Raises Conflict in other states.
        """
        await self._move("pause", unit_id, {UnitState.RUNNING}, UnitState.PAUSED)

    async def resume(self, unit_id: UnitId) -> None:
        """Change the unit's state from PAUSED or SUSPENDED to RUNNING; does nothing if it is RUNNING.

        Raises Conflict in other states.
        """
        await self._move("resume", unit_id, {UnitState.PAUSED, UnitState.SUSPENDED}, UnitState.RUNNING)

    async def suspend(self, unit_id: UnitId) -> None:
        """Change the unit's state from RUNNING or PAUSED to SUSPENDED; does nothing if it is SUSPENDED.

        Raises Conflict in other states.
        """
        await self._move("suspend", unit_id, {UnitState.RUNNING, UnitState.PAUSED}, UnitState.SUSPENDED)

    async def reboot(self, unit_id: UnitId, delay_seconds: float) -> None:
        """Increase the unit's restart count by one, at once; `delay_seconds` has no effect."""
        await self._call("reboot", unit_id, lambda: self._reboot(unit_id))

    def _reboot(self, unit_id: UnitId) -> None:
        self._alive(unit_id).restarts += 1
        self.backend.set_state(unit_id, UnitState.RUNNING)

    async def power_off(self, unit_id: UnitId, grace_seconds: float) -> None:
        """End the machine at once, with exit code 0; `start_unit` can start it again. `grace_seconds` has no effect."""
        await self._call("power_off", unit_id, lambda: self.backend.exit_unit(unit_id, 0))

    async def create_snapshot(self, unit_id: UnitId, name: str, memory: bool) -> SnapshotStatus:
        """Add a snapshot of the unit and make it the current one; returns its status. Raises AlreadyExists.

        `memory`: the snapshot includes the memory, so restoring it restores the unit's state, such as paused.
        """
        return await self._call(
            "create_snapshot", unit_id, lambda: self._create_snapshot(unit_id, name, memory)
        )

    def _create_snapshot(self, unit_id: UnitId, name: str, memory: bool) -> SnapshotStatus:
        unit = self.backend.unit(unit_id)
        if name in unit.snapshots:
            raise AlreadyExists(f"unit {unit_id} has a snapshot {name!r} already")
        made = SnapshotStatus(
            name=name,
            created_at_ns=self.backend.now_ns(),
            with_memory=memory,
            is_current=True,
            parent=unit.current_snapshot,
        )
        unit.snapshots[name] = made
        unit.snapshot_states[name] = unit.summary.state
        unit.current_snapshot = name
        return made

    async def list_snapshots(self, unit_id: UnitId) -> Sequence[SnapshotStatus]:
        """Return the snapshots of the machine, oldest first."""
        return await self._call("list_snapshots", unit_id, lambda: self._list_snapshots(unit_id))

    def _list_snapshots(self, unit_id: UnitId) -> Sequence[SnapshotStatus]:
        unit = self.backend.unit(unit_id)
        current = unit.current_snapshot
        return [
            replace(snapshot, is_current=snapshot.name == current) for snapshot in unit.snapshots.values()
        ]

    async def restore_snapshot(self, unit_id: UnitId, name: str) -> None:
        """Make the snapshot `name` the unit's current one. Raises NotFound.

        If the snapshot includes memory, the unit also gets the state (such as running or paused) that it had when
        the snapshot was made.
        """
        await self._call("restore_snapshot", unit_id, lambda: self._restore_snapshot(unit_id, name))

    def _restore_snapshot(self, unit_id: UnitId, name: str) -> None:
        unit = self.backend.unit(unit_id)
        snapshot = unit.snapshots.get(name)
        if snapshot is None:
            raise NotFound(f"unit {unit_id} has no snapshot {name!r}")
        unit.current_snapshot = name
        if snapshot.with_memory:
            self.backend.set_state(unit_id, unit.snapshot_states[name])

    async def delete_snapshot(self, unit_id: UnitId, name: str) -> None:
        """Delete the snapshot; succeeds if it does not exist."""
        await self._call("delete_snapshot", unit_id, lambda: self._delete_snapshot(unit_id, name))

    def _delete_snapshot(self, unit_id: UnitId, name: str) -> None:
        unit = self.backend.unit(unit_id)
        gone = unit.snapshots.pop(name, None)
        if gone is not None and unit.current_snapshot == name:
            unit.current_snapshot = gone.parent if gone.parent in unit.snapshots else ""

    async def attach_nic(self, unit_id: UnitId, nic: Nic) -> None:
        """Add a network interface to the unit; does nothing if the unit has one of this name."""
        await self._call("attach_nic", nic.name, lambda: self._attach_nic(unit_id, nic))

    def _attach_nic(self, unit_id: UnitId, nic: Nic) -> None:
        self._alive(unit_id).nics.setdefault(nic.name, self.backend.nic_status(nic))

    async def detach_nic(self, unit_id: UnitId, name: str) -> None:
        """Remove the network interface from the unit, at once; succeeds if it does not exist."""
        await self._call("detach_nic", name, lambda: self._detach_nic(unit_id, name))

    def _detach_nic(self, unit_id: UnitId, name: str) -> None:
        self.backend.unit(unit_id).nics.pop(name, None)

    async def list_nics(self, unit_id: UnitId) -> Sequence[NicStatus]:
        """Return the unit's network interfaces. The first is ``eth0``, the one in the pod network."""
        return await self._call("list_nics", unit_id, lambda: list(self.backend.unit(unit_id).nics.values()))

    async def screenshot(self, unit_id: UnitId) -> bytes:
        """Return a PNG of one black pixel. Raises Conflict if the unit does not run."""
        return await self._call("screenshot", unit_id, lambda: self._screenshot(unit_id))

    def _screenshot(self, unit_id: UnitId) -> bytes:
        self._alive(unit_id)
        return one_pixel_png()

    async def definition(self, unit_id: UnitId) -> str:
        """Return a line of XML with the unit's name."""
        return await self._call("definition", unit_id, lambda: self._definition(unit_id))

    def _definition(self, unit_id: UnitId) -> str:
        return f"<domain type='fake'><name>{self.backend.unit(unit_id).summary.name}</name></domain>\n"


def one_pixel_png() -> bytes:
    """Return a small valid PNG: one black pixel."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return len(data).to_bytes(4, "big") + kind + data + zlib.crc32(kind + data).to_bytes(4, "big")

    header = (1).to_bytes(4, "big") * 2 + bytes([8, 0, 0, 0, 0])
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(b"\0\0"))
        + chunk(b"IEND", b"")
    )
