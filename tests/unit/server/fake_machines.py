"""`FakeMachines`: implements the agent's operations on virtual machines in memory, for `FakeAdminBackend`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from kubeletx.api import NotFound, Unsupported
from kubeletx.server.views import MachineSize, MachineView, NicRequest, NicView, PodTarget, SnapshotView
from kubeletx.testing.fake_machine_calls import one_pixel_png

_POWER = {
    "pause": ("paused", "paused"),
    "suspend": ("suspended", "suspended"),
    "stop": ("off", "shutdown"),
    "start": ("running", "running"),
    "resume": ("running", "running"),
}


class FakeMachines:
    """Implements `kubeletx.server.backend.MachineVerbs` in memory.

    A test puts the views of its machines into `machines`; the keys are namespace and name of the pod.
    """

    def __init__(self, calls: list[tuple[Any, ...]]) -> None:
        """`calls`: list to which each call that changes something is added."""
        self.machines: dict[tuple[str, str], MachineView] = {}
        self.snapshots: dict[str, SnapshotView] = {}
        self.nics: dict[str, NicView] = {}
        self.calls = calls

    async def find_machine(self, target: PodTarget) -> MachineView:
        """Return the machine's view from `machines`. Raises Unsupported if the pod has none."""
        found = self.machines.get((target.namespace, target.name))
        if found is None:
            raise Unsupported(
                f"pod {target.ref} is a pod of containers; 'kubeletx vm' is for virtual machines"
            )
        return found

    async def machine_power(self, target: PodTarget, verb: str, timeout_seconds: float) -> MachineView:
        """Set the machine's power state at once; returns the machine's view.

        `verb`: pause, suspend, stop, start or resume. `timeout_seconds` is only recorded.
        """
        found = await self.find_machine(target)
        self.calls.append(("machine_power", target.ref, verb, timeout_seconds))
        power, state = _POWER[verb]
        overrides = "" if power == "running" else "Running"
        return self._put(target, replace(found, power=power, power_state=state, overrides=overrides))

    async def reboot_machine(self, target: PodTarget, delay_seconds: float) -> MachineView:
        """Record the call and return the machine, unchanged."""
        self.calls.append(("reboot_machine", target.ref, delay_seconds))
        return await self.find_machine(target)

    async def cancel_reboot(self, target: PodTarget) -> MachineView:
        """Record the call and return the machine, unchanged."""
        self.calls.append(("cancel_reboot", target.ref))
        return await self.find_machine(target)

    async def resize_machine(self, target: PodTarget, size: MachineSize) -> MachineView:
        """Change only the machine's limits, as if the runtime had not resized it yet; returns the machine's view."""
        found = await self.find_machine(target)
        self.calls.append(("resize_machine", target.ref, size))
        asked = {k: v for k, v in (("cpu", size.cpu), ("memory", size.memory)) if v is not None}
        return self._put(target, replace(found, limits={**found.limits, **asked}))

    async def list_snapshots(self, target: PodTarget) -> Sequence[SnapshotView]:
        """Return the snapshots in `snapshots`. Raises Unsupported as `find_machine` does."""
        await self.find_machine(target)
        return list(self.snapshots.values())

    async def create_snapshot(self, target: PodTarget, name: str, memory: bool) -> SnapshotView:
        """Add a snapshot to `snapshots`, unless one of this name exists; returns the snapshot's view."""
        await self.find_machine(target)
        self.calls.append(("create_snapshot", target.ref, name, memory))
        return self.snapshots.setdefault(name, SnapshotView(name=name, with_memory=memory))

    async def restore_snapshot(self, target: PodTarget, name: str) -> MachineView:
        """Record the call and return the machine, unchanged. Raises NotFound if the snapshot does not exist."""
        found = await self.find_machine(target)
        if name not in self.snapshots:
            raise NotFound(f"machine {target.ref} has no snapshot {name!r}")
        self.calls.append(("restore_snapshot", target.ref, name))
        return found

    async def delete_snapshot(self, target: PodTarget, name: str) -> MachineView:
        """Remove the snapshot from `snapshots`; returns the machine's view. Raises NotFound."""
        self.calls.append(("delete_snapshot", target.ref, name))
        if self.snapshots.pop(name, None) is None:
            raise NotFound(f"machine {target.ref} has no snapshot {name!r}")
        return await self.find_machine(target)

    async def list_nics(self, target: PodTarget) -> Sequence[NicView]:
        """Return the network interfaces in `nics`. Raises Unsupported as `find_machine` does."""
        await self.find_machine(target)
        return list(self.nics.values())

    async def attach_nic(self, target: PodTarget, wanted: NicRequest) -> Sequence[NicView]:
        """Add a network interface to `nics`; returns all interfaces."""
        self.calls.append(("attach_nic", target.ref, wanted))
        self.nics[wanted.name] = NicView(name=wanted.name, state="attached", network=wanted.subnet_name or "")
        return await self.list_nics(target)

    async def detach_nic(self, target: PodTarget, name: str) -> Sequence[NicView]:
        """Remove the network interface from `nics`; returns the remaining interfaces."""
        self.calls.append(("detach_nic", target.ref, name))
        self.nics.pop(name, None)
        return await self.list_nics(target)

    async def machine_screenshot(self, target: PodTarget) -> bytes:
        """Return a PNG of one black pixel. Raises Unsupported as `find_machine` does."""
        await self.find_machine(target)
        return one_pixel_png()

    async def machine_definition(self, target: PodTarget) -> str:
        """Return a line of XML with the machine's name. Raises Unsupported as `find_machine` does."""
        return f"<domain><name>{(await self.find_machine(target)).machine}</name></domain>\n"

    def _put(self, target: PodTarget, view: MachineView) -> MachineView:
        self.machines[(target.namespace, target.name)] = view
        return view
