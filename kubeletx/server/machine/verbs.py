"""`MachineVerbs`: operations of the admin socket on virtual machines; a part of `AdminBackend`.

Every method raises Unsupported, with the reason, if the pod runs containers or its runtime lacks the capability.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ..views import PodTarget
from .views import MachineSize, MachineView, NicRequest, NicView, SnapshotView


class MachineVerbs(Protocol):
    """Operations on the virtual machine of a pod; `target` names the pod."""

    async def find_machine(self, target: PodTarget) -> MachineView:
        """Return the state of the machine, and what was requested for it."""
        ...

    async def machine_power(self, target: PodTarget, verb: str, timeout_seconds: float) -> MachineView:
        """Request a power state, and wait until the machine has it. `verb`: pause, resume, suspend, start or stop.

        The request overrides the pod's powerSpec until the opposite request or a change of powerSpec. Raises
        TimedOut after `timeout_seconds`; the request is kept and tried again.
        """
        ...

    async def reboot_machine(self, target: PodTarget, delay_seconds: float) -> MachineView:
        """Wait `delay_seconds`, then reboot the machine. `cancel_reboot` ends the wait; this then raises Conflict."""
        ...

    async def cancel_reboot(self, target: PodTarget) -> MachineView:
        """Cancel a delayed reboot. Raises NotFound if there is none."""
        ...

    async def resize_machine(self, target: PodTarget, size: MachineSize) -> MachineView:
        """Request other CPU and memory limits; the returned view shows those that the machine has now.

        Raises Conflict if the resize fails, such as for limits that are impossible on this node.
        """
        ...

    async def list_snapshots(self, target: PodTarget) -> Sequence[SnapshotView]:
        """Return the snapshots of the machine, oldest first."""
        ...

    async def create_snapshot(self, target: PodTarget, name: str, memory: bool) -> SnapshotView:
        """Create a snapshot of the machine's disks. `memory`: include the guest's memory.

        Raises AlreadyExists if the machine has a snapshot of this name.
        """
        ...

    async def restore_snapshot(self, target: PodTarget, name: str) -> MachineView:
        """Restore the machine from a snapshot.

        Raises NotFound if there is no such snapshot; the machine is then unchanged.
        """
        ...

    async def delete_snapshot(self, target: PodTarget, name: str) -> MachineView:
        """Delete a snapshot. Raises NotFound if there is no such snapshot."""
        ...

    async def list_nics(self, target: PodTarget) -> Sequence[NicView]:
        """Return the network interfaces of the machine, then the requested ones that it does not have yet."""
        ...

    async def attach_nic(self, target: PodTarget, wanted: NicRequest) -> Sequence[NicView]:
        """Request another network interface; if the machine runs, wait until the interface is attached.

        Returns all interfaces, or only the requested one if the machine does not run. Raises Conflict if attaching
        fails.
        """
        ...

    async def detach_nic(self, target: PodTarget, name: str) -> Sequence[NicView]:
        """Request the removal of a network interface; returns the remaining ones.

        Succeeds if there is no interface of this name.
        """
        ...

    async def machine_screenshot(self, target: PodTarget) -> bytes:
        """Return the content of the machine's screen as a PNG image."""
        ...

    async def machine_definition(self, target: PodTarget) -> str:
        """Return the machine's definition in the format of its runtime, such as libvirt's domain XML."""
        ...
