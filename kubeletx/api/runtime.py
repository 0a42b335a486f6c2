"""The runtime contract: one small required protocol and capabilities that a runtime answers for.

Rules for every method (the contract suite in `kubeletx.testing` checks them):

- Every call may come twice. Stopping or removing what is gone succeeds. A failed create leaves nothing
  behind, or leaves something that the next list shows under the same key.
- A call that cannot reach the backend raises Unavailable; one whose deadline expired raises TimedOut; an
  object that does not exist raises NotFound (except in stop and remove).
- The host sets deadlines from outside (`asyncio.timeout`) and limits how many calls run at once.
- Ids are opaque to the host.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Protocol, TypeVar, runtime_checkable

from .identity import SandboxId, UnitId
from .observed import (
    ExecResult,
    ImageAuth,
    ImageStatus,
    NicStatus,
    PullProgress,
    RuntimeEvent,
    RuntimeHealth,
    RuntimeVersion,
    SandboxStatus,
    SandboxSummary,
    SnapshotStatus,
    StoreInfo,
    Traits,
    UnitStats,
    UnitStatus,
    UnitSummary,
)
from .specs import ImageSpec, Nic, Resources, SandboxSpec, UnitSpec
from .streams import Session, StreamRequest, StreamUrl

T = TypeVar("T")


class Runtime(Protocol):
    """Methods of every runtime. All others are separate protocols, requested with `capability`."""

    async def open(self) -> None:
        """Connect. Raises Unavailable when the backend does not answer; the host tries again later.

        Called again after a lost connection; the host requests capabilities again after each success.
        """
        ...

    async def close(self) -> None:
        """Disconnect. Units run on if `Traits.units_survive_agent`."""
        ...

    def traits(self) -> Traits:
        """Declarations of this runtime; valid after `open`."""
        ...

    def capability(self, protocol: type[T]) -> T | None:
        """The object that implements `protocol` (one of the Supports... classes); None if there is none."""
        ...

    async def version(self) -> RuntimeVersion:
        """Name and version of the backend."""
        ...

    async def health(self) -> RuntimeHealth:
        """Report whether pods may be started now, from the backend's own view."""
        ...

    async def create_sandbox(self, spec: SandboxSpec) -> SandboxId:
        """Create and start the sandbox. The same (uid, attempt) again returns the first id."""
        ...

    async def stop_sandbox(self, sandbox_id: SandboxId) -> None:
        """Stop everything in the sandbox and release its network."""
        ...

    async def remove_sandbox(self, sandbox_id: SandboxId) -> None:
        """Remove the sandbox and all units in it; stops them first if necessary."""
        ...

    async def list_sandboxes(self, match: Mapping[str, str]) -> Sequence[SandboxSummary]:
        """Sandboxes whose labels contain every pair of `match`; all of this runtime's for an empty one."""
        ...

    async def sandbox_status(self, sandbox_id: SandboxId) -> SandboxStatus:
        """Everything about one sandbox."""
        ...

    async def create_unit(self, sandbox_id: SandboxId, spec: UnitSpec, sandbox: SandboxSpec) -> UnitId:
        """Create the unit without starting it. The same (sandbox, name, attempt) returns the first id.

        Raises InvalidPod with reason RuntimeUnsupported for what it will never accept: a pod that never ran is then
        rejected. After any other reason the host tries again.
        """
        ...

    async def start_unit(self, unit_id: UnitId) -> None:
        """Start a created unit. Starting a running one succeeds."""
        ...

    async def stop_unit(self, unit_id: UnitId, grace_seconds: float) -> None:
        """Ask the unit to stop, wait `grace_seconds` (0: do not ask), then kill it.

        Works from every state, paused and suspended included, and succeeds if the unit is gone.
        """
        ...

    async def remove_unit(self, unit_id: UnitId) -> None:
        """Remove an ended unit and its writable state."""
        ...

    async def list_units(self, match: Mapping[str, str]) -> Sequence[UnitSummary]:
        """Units whose labels contain every pair of `match`."""
        ...

    async def unit_status(self, unit_id: UnitId) -> UnitStatus:
        """Everything about one unit."""
        ...


@runtime_checkable
class SupportsImages(Protocol):
    """The runtime, or a separate image endpoint, keeps images."""

    async def store_info(self) -> StoreInfo:
        """Identity of the store and usage of its filesystems."""
        ...

    async def list_images(self) -> Sequence[ImageStatus]:
        """All images of the store, other agents' included."""
        ...

    async def find_image(self, image: ImageSpec) -> ImageStatus | None:
        """The image in the store; None if it is not there."""
        ...

    async def pull_image(
        self,
        image: ImageSpec,
        auth: ImageAuth | None,
        sandbox: SandboxSpec | None,
        progress: Callable[[PullProgress], None] | None = None,
    ) -> str:
        """Fetch the image and return its `ref`. Has no deadline; cancelling stops it."""
        ...

    async def remove_image(self, image: ImageSpec) -> None:
        """Remove the image with all its tags; succeeds if it does not exist."""
        ...


@runtime_checkable
class SupportsEvents(Protocol):
    """The runtime pushes changes."""

    def events(self) -> AsyncIterator[RuntimeEvent]:
        """Yield changes from now on. Ends or raises when the connection is lost; the host subscribes again."""
        ...


@runtime_checkable
class SupportsExec(Protocol):
    """Commands inside a unit."""

    async def exec_sync(self, unit_id: UnitId, command: Sequence[str], timeout_seconds: float) -> ExecResult:
        """Run to the end. Raises TimedOut after `timeout_seconds` (0: no limit); output is capped."""
        ...

    async def exec(self, unit_id: UnitId, request: StreamRequest) -> StreamUrl | Session:
        """Run with live streams."""
        ...


@runtime_checkable
class SupportsAttach(Protocol):
    """Streams of the unit's own main process or console."""

    async def attach(self, unit_id: UnitId, request: StreamRequest) -> StreamUrl | Session:
        """Join the streams of the running main process."""
        ...


@runtime_checkable
class SupportsPortForward(Protocol):
    """Connections into the pod's network."""

    async def port_forward(self, sandbox_id: SandboxId, port: int) -> StreamUrl | Session:
        """Open one connection to `port` on the pod's loopback."""
        ...


@runtime_checkable
class SupportsStats(Protocol):
    """Usage figures."""

    async def list_unit_stats(self, match: Mapping[str, str]) -> Sequence[UnitStats]:
        """One entry per running unit that could be measured."""
        ...


@runtime_checkable
class SupportsLogReopen(Protocol):
    """Log rotation by rename and reopen (`LogMode.FILE`)."""

    async def reopen_log(self, unit_id: UnitId) -> None:
        """Close the log file and open its path again."""
        ...


@runtime_checkable
class SupportsLogStream(Protocol):
    """Log bytes as a stream (`LogMode.STREAM`)."""

    def log_stream(self, unit_id: UnitId) -> AsyncIterator[tuple[str, bytes]]:
        """Yield ("stdout" or "stderr", bytes) from the unit's start or since the last call."""
        ...


@runtime_checkable
class SupportsResize(Protocol):
    """Resources of a running unit can change."""

    async def update_resources(self, unit_id: UnitId, resources: Resources) -> None:
        """Apply new limits. Returns when accepted; `unit_status` shows what was granted."""
        ...


@runtime_checkable
class SupportsStandby(Protocol):
    """A unit can be frozen or hibernated and brought back (Quark)."""

    async def freeze(self, unit_id: UnitId) -> None:
        """RUNNING to PAUSED."""
        ...

    async def thaw(self, unit_id: UnitId) -> None:
        """PAUSED or SUSPENDED to RUNNING."""
        ...

    async def hibernate(self, unit_id: UnitId) -> None:
        """RUNNING or PAUSED to SUSPENDED: memory goes to disk."""
        ...


@runtime_checkable
class SupportsMachine(Protocol):
    """Verbs of virtual machines, apart from CRI."""

    async def reboot(self, unit_id: UnitId, delay_seconds: float) -> None:
        """Request a reboot of the guest after `delay_seconds`."""
        ...

    async def pause(self, unit_id: UnitId) -> None:
        """vCPUs stop, memory stays: PAUSED."""
        ...

    async def resume(self, unit_id: UnitId) -> None:
        """PAUSED or SUSPENDED to RUNNING."""
        ...

    async def suspend(self, unit_id: UnitId) -> None:
        """From RUNNING or PAUSED: memory is saved, the emulator ends: SUSPENDED."""
        ...

    async def power_off(self, unit_id: UnitId, grace_seconds: float) -> None:
        """Shut the guest down, then power off; the disk stays and `start_unit` starts the same unit again.

        Works from PAUSED and SUSPENDED too (saved memory is discarded) and succeeds when the machine is off.
        """
        ...


@runtime_checkable
class SupportsSnapshots(Protocol):
    """Snapshots of a machine's disks, with its memory if asked."""

    async def create_snapshot(self, unit_id: UnitId, name: str, memory: bool) -> SnapshotStatus:
        """Create a snapshot.

        Raises AlreadyExists for an existing name, and Unsupported, with the reason, where the machine's devices do not
        allow it. A failed one leaves nothing behind.
        """
        ...

    async def list_snapshots(self, unit_id: UnitId) -> Sequence[SnapshotStatus]:
        """Snapshots of the machine, oldest first."""
        ...

    async def restore_snapshot(self, unit_id: UnitId, name: str) -> None:
        """Restore the machine from a snapshot. Raises NotFound, which changes nothing.

        With memory the guest continues; without, the machine is off afterwards if it was off then, and boots from the
        old disk if it runs now.
        """
        ...

    async def delete_snapshot(self, unit_id: UnitId, name: str) -> None:
        """Delete a snapshot; succeeds if it does not exist. Later ones stay."""
        ...


@runtime_checkable
class SupportsNics(Protocol):
    """Network interfaces of a machine can be attached and detached while it runs."""

    async def attach_nic(self, unit_id: UnitId, nic: Nic) -> None:
        """Attach an interface. An existing name succeeds and changes nothing.

        Raises Unavailable while its port or network does not exist yet: the host tries again.
        """
        ...

    async def detach_nic(self, unit_id: UnitId, name: str) -> None:
        """Request the guest to release an interface; succeeds if there is none. `list_nics` shows when it is gone."""
        ...

    async def list_nics(self, unit_id: UnitId) -> Sequence[NicStatus]:
        """Every interface, including the pod network's; of a machine that is off, those it will have."""
        ...


@runtime_checkable
class SupportsScreenshot(Protocol):
    """Screenshots of a machine's display."""

    async def screenshot(self, unit_id: UnitId) -> bytes:
        """A PNG file. Raises Conflict while the machine is off."""
        ...


@runtime_checkable
class SupportsDefinition(Protocol):
    """The backend's own definition of a unit, for users."""

    async def definition(self, unit_id: UnitId) -> str:
        """The text, such as libvirt's domain XML, without secrets."""
        ...


@runtime_checkable
class SupportsCheckpoint(Protocol):
    """A unit's state can be written to a file."""

    async def checkpoint(self, unit_id: UnitId, path: str, timeout_seconds: float) -> None:
        """Write an archive to `path`; the unit runs on."""
        ...


@runtime_checkable
class SupportsCriPassthrough(Protocol):
    """The backend speaks CRI v1; the CRI front forwards bytes unchanged (DECISIONS 23)."""

    async def cri_unary(self, method: str, request: bytes, deadline_seconds: float | None) -> bytes:
        """Forward one call; the backend's code and details are raised unchanged as `CriStatusError`."""
        ...

    def cri_stream(self, method: str, request: bytes) -> AsyncIterator[bytes]:
        """Forward one server-streaming call."""
        ...


CAPABILITIES: tuple[type, ...] = (
    SupportsImages,
    SupportsEvents,
    SupportsExec,
    SupportsAttach,
    SupportsPortForward,
    SupportsStats,
    SupportsLogReopen,
    SupportsLogStream,
    SupportsResize,
    SupportsStandby,
    SupportsMachine,
    SupportsSnapshots,
    SupportsNics,
    SupportsScreenshot,
    SupportsDefinition,
    SupportsCheckpoint,
    SupportsCriPassthrough,
)
"""Every capability that the host uses, in the order of `kubeletx runtime describe`."""
