"""`MachineVerbs`: operations of the admin socket on virtual machines; a part of `AdminBackend`.

Every method raises Unsupported, with the reason, for a pod of containers and for a runtime without the capability.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ..views import PodTarget
from .views import MachineSize, MachineView, NicRequest, NicView, SnapshotView


class MachineVerbs(Protocol):
    """Operations on virtual machines."""

    async def find_machine(self, target: PodTarget) -> MachineView:
        """State of the machine and the pending requests for it."""
        ...

    async def machine_power(self, target: PodTarget, verb: str, timeout_seconds: float) -> MachineView:
        """pause, resume, suspend, start or stop the machine.

        The request overrides powerSpec until the opposite one or a change of powerSpec. Waits until the machine has the
        state; after TimedOut the request is kept.
        """
        ...

    async def reboot_machine(self, target: PodTarget, delay_seconds: float) -> MachineView:
        """Reboot the machine after the delay."""
        ...

    async def cancel_reboot(self, target: PodTarget) -> MachineView:
        """Cancel a delayed reboot. Raises NotFound if there is none."""
        ...

    async def resize_machine(self, target: PodTarget, size: MachineSize) -> MachineView:
        """Request other limits; the machine shows what was granted. Raises Conflict for impossible ones."""
        ...

    async def list_snapshots(self, target: PodTarget) -> Sequence[SnapshotView]:
        """Snapshots of the machine, oldest first."""
        ...

    async def create_snapshot(self, target: PodTarget, name: str, memory: bool) -> SnapshotView:
        """Create a snapshot. `memory`: with the guest's memory. Raises AlreadyExists."""
        ...

    async def restore_snapshot(self, target: PodTarget, name: str) -> MachineView:
        """Restore the machine from a snapshot. Raises NotFound, which changes nothing."""
        ...

    async def delete_snapshot(self, target: PodTarget, name: str) -> MachineView:
        """Delete a snapshot. Raises NotFound."""
        ...

    async def list_nics(self, target: PodTarget) -> Sequence[NicView]:
        """Present interfaces, and wanted ones that are missing."""
        ...

    async def attach_nic(self, target: PodTarget, wanted: NicRequest) -> Sequence[NicView]:
        """Request one more interface; returns all after a moment. Raises Conflict if it cannot be attached."""
        ...

    async def detach_nic(self, target: PodTarget, name: str) -> Sequence[NicView]:
        """Request the removal of an interface; succeeds if there is none of this name."""
        ...

    async def machine_screenshot(self, target: PodTarget) -> bytes:
        """A PNG file."""
        ...

    async def machine_definition(self, target: PodTarget) -> str:
        """The machine's definition in the format of its runtime, such as domain XML."""
        ...
