"""Actions of a plan. Each has a key; an action whose key is in flight is not started again.

Actions that change the same sandbox or unit share a key, so that at most one changing call runs for each. `cancellable`
actions are waits, pulls, probes and hooks: a deletion cancels them. Create, start, stop and remove run to their
deadline; then a look shows their effect (docs/architecture.md, "Rules that hold everywhere", 8).
"""

from __future__ import annotations

from typing import ClassVar

import msgspec

from kubeletx.api import SandboxId, UnitId
from kubeletx.kube.types.core import ResourceRequirements

from .facts import ActionFailure, PodFacts


class Action(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all actions: one call or write that a plan asks for."""

    cancellable: ClassVar[bool] = False
    subject: ClassVar[str] = ""
    """What the action changes, such as ``sandbox``; with the container's name, if any, it forms the key."""
    doing: ClassVar[str] = ""
    """The action in words, for messages about repeats without effect (`pacing`).

    Empty: repeats are not counted.
    """

    @property
    def key(self) -> str:
        """Identifies what is changed, as ``sandbox`` or ``unit/web``: at most one action per key runs."""
        name = getattr(self, "name", None)
        return f"{self.subject}/{name}" if name else self.subject

    @property
    def target(self) -> str:
        """Distinguishes actions of one kind on one unit for `pacing`: an attempt number, an interface."""
        return ""

    @property
    def ends_in_seconds(self) -> int | None:
        """Grace period of an action that ends the unit; None: it ends no unit, or has no grace period."""
        return None

    def failure(self, facts: PodFacts) -> ActionFailure | None:
        """The last failure of this action, None without one.

        Here: the one that all stops and removals share.
        """
        return facts.stop_failure


class Bind(Action, frozen=True, kw_only=True):
    """Choose the runtime, admit the pod and write the binding: the first write for a pod."""

    subject: ClassVar[str] = "bind"


class Look(Action, frozen=True, kw_only=True):
    """Read the pod's present state from its runtime."""

    subject: ClassVar[str] = "look"


class PrepareVolumes(Action, frozen=True, kw_only=True):
    """Make directories and volumes ready on the node."""

    cancellable: ClassVar[bool] = True
    subject: ClassVar[str] = "volumes"


class EnsureImage(Action, frozen=True, kw_only=True):
    """Make sure, by the pull policy, that the container's image is in the store of the pod's runtime."""

    name: str
    cancellable: ClassVar[bool] = True
    subject: ClassVar[str] = "image"


class CreateSandbox(Action, frozen=True, kw_only=True):
    """Create and start the sandbox with this attempt number."""

    attempt: int
    subject: ClassVar[str] = "sandbox"
    doing: ClassVar[str] = "creating the pod sandbox"

    def failure(self, facts: PodFacts) -> ActionFailure | None:
        return facts.sandbox_failure


class StartUnit(Action, frozen=True, kw_only=True):
    """Create and start one unit in the sandbox. `attempt` is its restart count."""

    name: str
    attempt: int
    sandbox_id: SandboxId
    generation: int = 0
    """Generation of the unit; see `plan.restart_all`."""
    subject: ClassVar[str] = "unit"
    doing: ClassVar[str] = "starting container"

    @property
    def target(self) -> str:
        """Attempt number, as text."""
        return str(self.attempt)

    def failure(self, facts: PodFacts) -> ActionFailure | None:
        return facts.unit(self.name).failure


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
    doing: ClassVar[str] = "stopping container"

    @property
    def ends_in_seconds(self) -> int | None:
        return self.grace_seconds

    @property
    def target(self) -> str:
        """Distinguishes a stop that overtakes another from an ordinary one."""
        return str(self.overtakes)

    @property
    def key(self) -> str:
        """Identifies the unit.

        A stop with `overtakes` has a key of its own, so that it need not wait for the first.
        """
        return f"unit/{self.name}/now" if self.overtakes else f"unit/{self.name}"


class ReadOverrides(Action, frozen=True, kw_only=True):
    """Read grants and operators' requests for the pod that an earlier agent process stored."""

    subject: ClassVar[str] = "overrides"


class DropOverride(Action, frozen=True, kw_only=True):
    """Remove the power that a command such as ``vm stop`` requested: the spec's power has changed since."""

    subject: ClassVar[str] = "overrides"


class ResizeContainer(Action, frozen=True, kw_only=True):
    """Give a running container other CPU and memory. `restart`: by a restart, as its resizePolicy demands."""

    name: str
    unit_id: UnitId
    resources: ResourceRequirements
    restart: bool = False
    subject: ClassVar[str] = "unit"
    doing: ClassVar[str] = "resizing container"

    def failure(self, facts: PodFacts) -> ActionFailure | None:
        return facts.unit(self.name).resize_failure


class ResizePod(Action, frozen=True, kw_only=True):
    """Change the resources of the pod as a whole (`spec.resources`)."""

    resources: ResourceRequirements
    subject: ClassVar[str] = "pod-size"
    doing: ClassVar[str] = "resizing the pod"

    def failure(self, facts: PodFacts) -> ActionFailure | None:
        return facts.resize_failure


class RemoveUnit(Action, frozen=True, kw_only=True):
    """Remove an ended unit that is no longer needed, and its log."""

    name: str
    unit_id: UnitId
    attempt: int
    subject: ClassVar[str] = "unit"
    doing: ClassVar[str] = "removing container"


class StopSandbox(Action, frozen=True, kw_only=True):
    """Stop the sandbox and everything in it. `message`: for the Killing event; empty: none."""

    sandbox_id: SandboxId
    message: str = ""
    subject: ClassVar[str] = "sandbox"
    doing: ClassVar[str] = "stopping the pod sandbox"


class RemoveSandbox(Action, frozen=True, kw_only=True):
    """Remove a stopped sandbox."""

    sandbox_id: SandboxId
    subject: ClassVar[str] = "sandbox"
    doing: ClassVar[str] = "removing the pod sandbox"


class ReleaseVolumes(Action, frozen=True, kw_only=True):
    """Unmount and remove the pod's volumes."""

    subject: ClassVar[str] = "volumes"


class RemoveDirectories(Action, frozen=True, kw_only=True):
    """Remove the pod's cgroup, log and data directories."""

    subject: ClassVar[str] = "directories"


class Unbind(Action, frozen=True, kw_only=True):
    """Delete the binding: the last write for a pod."""

    subject: ClassVar[str] = "bind"
