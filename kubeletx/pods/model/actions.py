"""Actions that a plan can request for a pod, such as `CreateSandbox` or `StopUnit`.

A unit is a container or a virtual machine. Each action has a key; while one with the same key runs, it is not
started again. Actions that change the same sandbox or unit share a key, so that at most one changing call runs
for each. The deletion of a pod cancels its `cancellable` actions, such as image pulls and hooks. A plan cancels
`revocable` ones, which are hibernations of containers. Create, start, stop and remove run to their deadline; a query of
the runtime then shows their effect (docs/architecture.md, "Rules that hold everywhere", 8).
"""

from __future__ import annotations

from typing import ClassVar

import msgspec

from kubeletx.api import SandboxId, UnitId
from kubeletx.kube.types.core import ResourceRequirements

from .facts import ActionFailure, PodFacts


class Action(msgspec.Struct, frozen=True, kw_only=True):
    """Base class of all actions: one operation on a pod that a plan requests, such as a call to its runtime."""

    cancellable: ClassVar[bool] = False
    subject: ClassVar[str] = ""
    """Object that the action changes, such as ``sandbox``. `key` adds the container's name, if there is one."""
    doing: ClassVar[str] = ""
    """The action in words, for an event that reports repeats without effect (see `repeats`).

    Empty: `repeats` does not count repeats of this action.
    """

    @property
    def key(self) -> str:
        """Identifier of the changed object, such as ``sandbox`` or ``unit/web``; at most one action per key runs."""
        name = getattr(self, "name", None)
        return f"{self.subject}/{name}" if name else self.subject

    @property
    def target(self) -> str:
        """Text that distinguishes actions of one kind on one unit, such as an attempt number; used by `repeats`."""
        return ""

    @property
    def ends_in_seconds(self) -> int | None:
        """Grace period in seconds if the action stops a container or machine; None for other actions or without one."""
        return None

    @property
    def holds_probes(self) -> bool:
        """True if the action may pause its container, so that probes of it wait until the action has ended."""
        return False

    @property
    def revocable(self) -> bool:
        """True if a plan may cancel the action (`Plan.cancels`), because the runtime then undoes what it has done."""
        return False

    def failure(self, facts: PodFacts) -> ActionFailure | None:
        """Return the last recorded failure of this action; None if there is none.

        The base class returns `facts.stop_failure`, which all stops and removals share.
        """
        return facts.stop_failure


class Bind(Action, frozen=True, kw_only=True):
    """Choose a runtime, admit the pod and store the choice (the binding). This is the first write for a pod."""

    subject: ClassVar[str] = "bind"


class Look(Action, frozen=True, kw_only=True):
    """Read the pod's present state from its runtime."""

    subject: ClassVar[str] = "look"


class PrepareVolumes(Action, frozen=True, kw_only=True):
    """Create the pod's directories and prepare its volumes on the node."""

    cancellable: ClassVar[bool] = True
    subject: ClassVar[str] = "volumes"


class EnsureImage(Action, frozen=True, kw_only=True):
    """Make sure that the pod's runtime has the container's image; the pull policy decides whether to pull it."""

    name: str
    cancellable: ClassVar[bool] = True
    subject: ClassVar[str] = "image"


class CreateSandbox(Action, frozen=True, kw_only=True):
    """Create and start the pod's sandbox. `attempt`: CRI attempt number of the new sandbox."""

    attempt: int
    subject: ClassVar[str] = "sandbox"
    doing: ClassVar[str] = "creating the pod sandbox"

    def failure(self, facts: PodFacts) -> ActionFailure | None:
        return facts.sandbox_failure


class StartUnit(Action, frozen=True, kw_only=True):
    """Create and start one unit (container or machine) in the sandbox. `attempt`: its restart count."""

    name: str
    attempt: int
    sandbox_id: SandboxId
    generation: int = 0
    """Number of earlier restarts of all containers in this sandbox; see `plan.restart_all`."""
    subject: ClassVar[str] = "unit"
    doing: ClassVar[str] = "starting container"

    @property
    def target(self) -> str:
        return str(self.attempt)

    def failure(self, facts: PodFacts) -> ActionFailure | None:
        return facts.unit(self.name).failure


class RunPostStart(Action, frozen=True, kw_only=True):
    """Run the container's postStart hook."""

    name: str
    unit_id: UnitId
    cancellable: ClassVar[bool] = True
    subject: ClassVar[str] = "hook"


class Evacuate(Action, frozen=True, kw_only=True):
    """Let other rooms end what clients use in a pod that is ending, such as sessions, before its containers are stopped.

    `deadline`: monotonic time. If the pod must end earlier, the plan cancels the action and stops the containers.
    """

    deadline: float
    cancellable: ClassVar[bool] = True
    subject: ClassVar[str] = "evacuation"

    @property
    def revocable(self) -> bool:
        return True


class ReadMessage(Action, frozen=True, kw_only=True):
    """Read the termination message of an ended container (docs/kubelet-parity.md, row ST9)."""

    name: str
    unit_id: UnitId
    attempt: int
    cancellable: ClassVar[bool] = True
    subject: ClassVar[str] = "message"


class StopUnit(Action, frozen=True, kw_only=True):
    """Run the container's preStop hook, then stop the unit. The grace period begins with the hook.

    `message`: text of the Killing event. `reason`: why the unit is stopped; unless it is ``Killing`` or empty, it
    is kept as the reason of a restart. `run_pre_stop` False: skip the hook.
    """

    name: str
    unit_id: UnitId
    grace_seconds: int
    reason: str = ""
    message: str = ""
    run_pre_stop: bool = True
    overtakes: bool = False
    """True for a second stop with a shorter grace period, sent while the first stop still runs."""
    subject: ClassVar[str] = "unit"
    doing: ClassVar[str] = "stopping container"

    @property
    def ends_in_seconds(self) -> int | None:
        return self.grace_seconds

    @property
    def target(self) -> str:
        """``True`` for a stop that overtakes another, ``False`` for an ordinary one."""
        return str(self.overtakes)

    @property
    def key(self) -> str:
        """Identifier of the unit.

        A stop with `overtakes` has a separate key, so that it can run while the first stop runs.
        """
        return f"unit/{self.name}/now" if self.overtakes else f"unit/{self.name}"


class ReadOverrides(Action, frozen=True, kw_only=True):
    """Load the pod's overrides file: granted resources and requests of operators. See `workloads.overrides`."""

    subject: ClassVar[str] = "overrides"

    def failure(self, facts: PodFacts) -> ActionFailure | None:
        return facts.overrides_failure


class DropOverride(Action, frozen=True, kw_only=True):
    """Remove the power state that a command such as ``kubeletx vm stop`` requested.

    Planned when the spec's own power state has changed since that command.
    """

    subject: ClassVar[str] = "overrides"

    def failure(self, facts: PodFacts) -> ActionFailure | None:
        return facts.overrides_failure


class ResizeContainer(Action, frozen=True, kw_only=True):
    """Change CPU and memory of a running container to `resources`.

    `restart`: the container's resizePolicy demands a restart, so only store the grant; the restart applies it.
    """

    name: str
    unit_id: UnitId
    resources: ResourceRequirements
    restart: bool = False
    subject: ClassVar[str] = "unit"
    doing: ClassVar[str] = "resizing container"

    def failure(self, facts: PodFacts) -> ActionFailure | None:
        return facts.unit(self.name).resize_failure


class ResizePod(Action, frozen=True, kw_only=True):
    """Change the pod-level CPU and memory (`spec.resources`) of a running pod to `resources`."""

    resources: ResourceRequirements
    subject: ClassVar[str] = "pod-size"
    doing: ClassVar[str] = "resizing the pod"

    def failure(self, facts: PodFacts) -> ActionFailure | None:
        return facts.resize_failure


class RemoveUnit(Action, frozen=True, kw_only=True):
    """Remove an ended unit (container or machine) from its runtime, and its log file."""

    name: str
    unit_id: UnitId
    attempt: int
    subject: ClassVar[str] = "unit"
    doing: ClassVar[str] = "removing container"


class StopSandbox(Action, frozen=True, kw_only=True):
    """Stop the sandbox and everything in it. `message`: text of a Killing event; empty: record no event."""

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
    """Delete the binding (the stored choice of the runtime). This is the last write for a pod."""

    subject: ClassVar[str] = "bind"
