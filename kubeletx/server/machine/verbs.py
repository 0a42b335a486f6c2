"""`MachineVerbs`: operations of the admin socket on virtual machines; a part of `AdminBackend`.

Every method raises Unsupported, with the reason, for a pod of containers and for a runtime without the capability.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ..views import PodTarget
from .views import MachineSize, MachineView, NicRequest, NicView, SnapshotView


class MachineVerbs(Protocol):
    """Commands on virtual machines."""

    async def find_machine(self, target: PodTarget) -> MachineView:
        """State of the machine and the pending requests for it."""
        ...

    async def machine_power(self, target: PodTarget, verb: str, timeout_seconds: float) -> MachineView:
        """Pause, resume, suspend, start or stop the machine, and wait until it has the state.

        The request overrides powerSpec until the opposite request or a change of powerSpec; after TimedOut it
        is kept.
        """
        ...

    async def reboot_machine(self, target: PodTarget, delay_seconds: float) -> MachineView:
        """Wait `delay_seconds`, then reboot the machine."""
        ...

    async def cancel_reboot(self, target: PodTarget) -> MachineView:
        """Cancel a delayed reboot. Raises NotFound if there is none."""
        ...

    async def resize_machine(self, target: PodTarget, size: MachineSize) -> MachineView:
        """Request other CPU and memory limits; the returned view shows the granted ones.

        Raises Conflict for impossible limits.
        """
        ...

    async def list_snapshots(self, target: PodTarget) -> Sequence[SnapshotView]:
        """Snapshots of the machine, oldest first."""
        ...

    async def create_snapshot(self, target: PodTarget, name: str, memory: bool) -> SnapshotView:
        """Create a snapshot. `memory`: include the guest's memory. Raises AlreadyExists for a known name."""
        ...

    async def restore_snapshot(self, target: PodTarget, name: str) -> MachineView:
        """Restore the machine from a snapshot.

        Raises NotFound for an unknown one; the machine is unchanged then.
        """
        ...

    async def delete_snapshot(self, target: PodTarget, name: str) -> MachineView:
        """Delete a snapshot. Raises NotFound for an unknown one."""
        ...

    async def list_nics(self, target: PodTarget) -> Sequence[NicView]:
        """List the interfaces of the machine, then the requested ones that it does not have yet."""
        ...

    async def attach_nic(self, target: PodTarget, wanted: NicRequest) -> Sequence[NicView]:
        """Request a further interface and wait a moment for it; returns all interfaces.

        Raises Conflict if it cannot be attached.
        """
        ...

    async def detach_nic(self, target: PodTarget, name: str) -> Sequence[NicView]:
        """Request the removal of an interface; succeeds if there is none of this name."""
        ...

    async def machine_screenshot(self, target: PodTarget) -> bytes:
        """The machine's screen as a PNG file."""
        ...

    async def machine_definition(self, target: PodTarget) -> str:
        """The machine's definition in the format of its runtime, such as domain XML."""
        ...
