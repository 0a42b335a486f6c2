"""Actions of a plan. Each has a key; an action whose key is in flight is not started again.

Actions that change the same sandbox or unit share a key, so that at most one changing call runs for each. `cancellable`
actions are waits, pulls, probes and hooks: a deletion cancels them. Create, start, stop and remove run to their
deadline; then a look shows their effect (docs/architecture.md, "Rules that hold everywhere", 8).
"""

from __future__ import annotations

from typing import ClassVar

import msgspec

from kubeletx.api import SandboxId, UnitId
from kubeletx.kube.types.core import Nic, ResourceRequirements


class Action(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all actions."""

    cancellable: ClassVar[bool] = False
    subject: ClassVar[str] = ""
    """What the action changes, such as ``sandbox``; with the container's name, if any, it forms the key."""

    @property
    def key(self) -> str:
        """Key of what the action changes: ``sandbox``, ``unit/web``."""
        name = getattr(self, "name", None)
        return f"{self.subject}/{name}" if name else self.subject


class Bind(Action, frozen=True, kw_only=True):
    """Choose the runtime, admit the pod and write the binding: the first write for a pod."""

    subject: ClassVar[str] = "bind"


class Look(Action, frozen=True, kw_only=True):
    """Ask the runtime about this pod."""

    subject: ClassVar[str] = "look"


class PrepareVolumes(Action, frozen=True, kw_only=True):
    """Make directories and volumes ready on the node."""

    cancellable: ClassVar[bool] = True
    subject: ClassVar[str] = "volumes"


class EnsureImage(Action, frozen=True, kw_only=True):
    """Make sure that the container's image is in the bound store, by its pull policy."""

    name: str
    cancellable: ClassVar[bool] = True
    subject: ClassVar[str] = "image"


class CreateSandbox(Action, frozen=True, kw_only=True):
    """Create and start the sandbox with this attempt number."""

    attempt: int
    subject: ClassVar[str] = "sandbox"


class StartUnit(Action, frozen=True, kw_only=True):
    """Create and start one unit in the sandbox. `attempt` is its restart count."""

    name: str
    attempt: int
    sandbox_id: SandboxId
    generation: int = 0
    """Generation of the unit; see `restart_all`."""
    subject: ClassVar[str] = "unit"


class RunPostStart(Action, frozen=True, kw_only=True):
    """Run the container's postStart hook."""

    name: str
    unit_id: UnitId
    cancellable: ClassVar[bool] = True
    subject: ClassVar[str] = "hook"


class ReadMessage(Action, frozen=True, kw_only=True):
    """Read what an ended unit left as its termination message (ST9)."""

    name: str
    unit_id: UnitId
    attempt: int
    cancellable: ClassVar[bool] = True
    subject: ClassVar[str] = "message"


class StopUnit(Action, frozen=True, kw_only=True):
    """Run preStop within the grace period, then stop the unit. `reason` and `message`: for the Killing event."""

    name: str
    unit_id: UnitId
    grace_seconds: int
    reason: str = ""
    message: str = ""
    run_pre_stop: bool = True
    overtakes: bool = False
    """True for a second, shorter stop while one with a longer grace is in flight."""
    subject: ClassVar[str] = "unit"

    @property
    def key(self) -> str:
        """Key of the action; an overtaking stop has a key of its own."""
        return f"unit/{self.name}/now" if self.overtakes else f"unit/{self.name}"


class ReadOrders(Action, frozen=True, kw_only=True):
    """Read operators' requests for the pod's machine that an earlier agent process stored."""

    subject: ClassVar[str] = "orders"


class DropOverride(Action, frozen=True, kw_only=True):
    """Drop the power override of a verb: the spec's power changed."""

    subject: ClassVar[str] = "orders"


class SetPower(Action, frozen=True, kw_only=True):
    """Pause, resume, suspend, switch off or on one machine. `step`: a value of `power.PowerStep`."""

    name: str
    unit_id: UnitId
    step: str
    grace_seconds: int = 0
    subject: ClassVar[str] = "unit"


class ListNics(Action, frozen=True, kw_only=True):
    """Ask which network interfaces the machine has."""

    name: str
    unit_id: UnitId
    cancellable: ClassVar[bool] = True
    subject: ClassVar[str] = "nics"


class AttachNic(Action, frozen=True, kw_only=True):
    """Plug a network interface into the machine."""

    name: str
    unit_id: UnitId
    nic: Nic
    subject: ClassVar[str] = "unit"


class DetachNic(Action, frozen=True, kw_only=True):
    """Take a network interface out of the machine."""

    name: str
    unit_id: UnitId
    nic_name: str
    subject: ClassVar[str] = "unit"


class ResizeUnit(Action, frozen=True, kw_only=True):
    """Request another number of CPUs and another memory size for a machine. `size`: text of `devices.size_key`."""

    name: str
    unit_id: UnitId
    size: str
    subject: ClassVar[str] = "unit"


class ResizeContainer(Action, frozen=True, kw_only=True):
    """Give a running container other resources. `restart`: by a restart, as its resizePolicy demands."""

    name: str
    unit_id: UnitId
    resources: ResourceRequirements
    restart: bool = False
    subject: ClassVar[str] = "unit"


class ResizePod(Action, frozen=True, kw_only=True):
    """Change the resources of the pod as a whole (`spec.resources`)."""

    resources: ResourceRequirements
    subject: ClassVar[str] = "pod-size"


class RemoveUnit(Action, frozen=True, kw_only=True):
    """Remove an ended unit that is no longer needed, and its log."""

    name: str
    unit_id: UnitId
    attempt: int
    subject: ClassVar[str] = "unit"


class StopSandbox(Action, frozen=True, kw_only=True):
    """Stop the sandbox and everything in it. `message`: for the Killing event; empty: none."""

    sandbox_id: SandboxId
    message: str = ""
    subject: ClassVar[str] = "sandbox"


class RemoveSandbox(Action, frozen=True, kw_only=True):
    """Remove a stopped sandbox."""

    sandbox_id: SandboxId
    subject: ClassVar[str] = "sandbox"


class ReleaseVolumes(Action, frozen=True, kw_only=True):
    """Unmount and remove the pod's volumes."""

    subject: ClassVar[str] = "volumes"


class RemoveDirectories(Action, frozen=True, kw_only=True):
    """Remove the pod's cgroup, log and data directories."""

    subject: ClassVar[str] = "directories"


class Unbind(Action, frozen=True, kw_only=True):
    """Delete the binding: the last write for a pod."""

    subject: ClassVar[str] = "bind"
