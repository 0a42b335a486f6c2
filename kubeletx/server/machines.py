"""`MachineVerbs`: what the admin socket asks of virtual machines; a part of `AdminBackend`.

Every method raises Unsupported, in words, for a pod of containers and for a runtime without the capability.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from .views import MachineSize, MachineView, NicRequest, NicView, PodTarget, SnapshotView


class MachineVerbs(Protocol):
    """Verbs of virtual machines."""

    async def find_machine(self, target: PodTarget) -> MachineView:
        """State of the machine, and the requests for it."""
        ...

    async def machine_power(self, target: PodTarget, verb: str, timeout_seconds: float) -> MachineView:
        """pause, resume, suspend, start or stop; stands above powerSpec until the opposite verb or a change
        of powerSpec. Waits until it is so; TimedOut leaves the order standing."""
        ...

    async def reboot_machine(self, target: PodTarget, delay_seconds: float) -> MachineView:
        """Once the delay is over."""
        ...

    async def cancel_reboot(self, target: PodTarget) -> MachineView:
        """Cancel one that is still to come. NotFound."""
        ...

    async def resize_machine(self, target: PodTarget, size: MachineSize) -> MachineView:
        """Ask for other limits; what was granted shows in the machine. Conflict for what it cannot have."""
        ...

    async def list_snapshots(self, target: PodTarget) -> Sequence[SnapshotView]:
        """All of them, oldest first."""
        ...

    async def create_snapshot(self, target: PodTarget, name: str, memory: bool) -> SnapshotView:
        """Make one. AlreadyExists."""
        ...

    async def restore_snapshot(self, target: PodTarget, name: str) -> MachineView:
        """Bring the machine back to it. NotFound changes nothing."""
        ...

    async def delete_snapshot(self, target: PodTarget, name: str) -> MachineView:
        """Forget it. NotFound."""
        ...

    async def list_nics(self, target: PodTarget) -> Sequence[NicView]:
        """Interfaces that are there, and wanted ones that are not."""
        ...

    async def attach_nic(self, target: PodTarget, wanted: NicRequest) -> Sequence[NicView]:
        """Want one more; returns all of them after a moment. Conflict when it cannot be attached."""
        ...

    async def detach_nic(self, target: PodTarget, name: str) -> Sequence[NicView]:
        """Want it no more; succeeds if there is none."""
        ...

    async def machine_screenshot(self, target: PodTarget) -> bytes:
        """A PNG file."""
        ...

    async def machine_definition(self, target: PodTarget) -> str:
        """The backend's own definition of the machine."""
        ...
