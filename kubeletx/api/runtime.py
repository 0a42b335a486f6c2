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
    """Methods that every runtime has. All others are separate protocols, which the host requests with `capability`."""

    async def open(self) -> None:
        """Connect to the backend. Raises Unavailable if it does not answer; the host tries again later.

        The host calls this again after a lost connection, and requests the capabilities again after each
        success.
        """
        ...

    async def close(self) -> None:
        """Disconnect from the backend. Units continue to run if `Traits.units_survive_agent`."""
        ...

    def traits(self) -> Traits:
        """Return the properties of this runtime. They are valid after `open`."""
        ...

    def capability(self, protocol: type[T]) -> T | None:
        """Return the object that implements `protocol`; None if the runtime does not have that capability.

        `protocol`: one of the Supports... classes.
        """
        ...

    async def version(self) -> RuntimeVersion:
        """Return name and version of the backend."""
        ...

    async def health(self) -> RuntimeHealth:
        """Report whether the backend can start pods now."""
        ...

    async def create_sandbox(self, spec: SandboxSpec) -> SandboxId:
        """Create and start the sandbox. A second call with the same (uid, attempt) returns the first sandbox's id."""
        ...

    async def stop_sandbox(self, sandbox_id: SandboxId) -> None:
        """Stop all units in the sandbox and release its network."""
        ...

    async def remove_sandbox(self, sandbox_id: SandboxId) -> None:
        """Remove the sandbox and all units in it. Units that run are stopped first."""
        ...

    async def list_sandboxes(self, match: Mapping[str, str]) -> Sequence[SandboxSummary]:
        """List the sandboxes whose labels contain every pair of `match`; an empty `match`: all of this runtime."""
        ...

    async def sandbox_status(self, sandbox_id: SandboxId) -> SandboxStatus:
        """Return the full status of one sandbox."""
        ...

    async def create_unit(self, sandbox_id: SandboxId, spec: UnitSpec, sandbox: SandboxSpec) -> UnitId:
        """Create the unit without starting it.

        A second call with the same (sandbox, name, attempt) returns the first id. Raises InvalidPod with
        reason RuntimeUnsupported for a unit that it will never accept: a pod that has not run yet is then
        rejected. After an error with any other reason the host tries again.
        """
        ...

    async def start_unit(self, unit_id: UnitId) -> None:
        """Start a created unit. Succeeds if it runs already."""
        ...

    async def stop_unit(self, unit_id: UnitId, grace_seconds: float) -> None:
        """Ask the unit to stop, wait `grace_seconds` (0: do not ask), then kill it.

        Works in every state, paused and suspended included, and succeeds if the unit does not exist.
        """
        ...

    async def remove_unit(self, unit_id: UnitId) -> None:
        """Remove a unit that has ended, with its writable state."""
        ...

    async def list_units(self, match: Mapping[str, str]) -> Sequence[UnitSummary]:
        """List the units whose labels contain every pair of `match`; an empty `match`: all of this runtime."""
        ...

    async def unit_status(self, unit_id: UnitId) -> UnitStatus:
        """Return the full status of one unit."""
        ...


@runtime_checkable
class SupportsImages(Protocol):
    """Capability: the runtime, or a separate image endpoint, stores images."""

    async def store_info(self) -> StoreInfo:
        """Return the store's id and the usage of its file systems."""
        ...

    async def list_images(self) -> Sequence[ImageStatus]:
        """List all images of the store, also images that other programs pulled."""
        ...

    async def find_image(self, image: ImageSpec) -> ImageStatus | None:
        """Find the image in the store; None if the store does not have it."""
        ...

    async def pull_image(
        self,
        image: ImageSpec,
        auth: ImageAuth | None,
        sandbox: SandboxSpec | None,
        progress: Callable[[PullProgress], None] | None = None,
    ) -> str:
        """Pull the image and return its `ref`. The host sets no deadline; cancelling the call stops the pull.

        `sandbox`: sandbox for which the image is pulled, if there is one. `progress`: called with reports.
        """
        ...

    async def remove_image(self, image: ImageSpec) -> None:
        """Remove the image with all its tags; succeeds if it does not exist."""
        ...


@runtime_checkable
class SupportsEvents(Protocol):
    """Capability: the runtime reports changes by itself."""

    def events(self) -> AsyncIterator[RuntimeEvent]:
        """Yield changes from now on. Ends or raises when the connection is lost; the host then subscribes again."""
        ...


@runtime_checkable
class SupportsExec(Protocol):
    """Capability: commands can be run inside a unit."""

    async def exec_sync(self, unit_id: UnitId, command: Sequence[str], timeout_seconds: float) -> ExecResult:
        """Run a command to its end and return its output. Raises TimedOut after `timeout_seconds` (0: no limit).

        The runtime limits the size of the output.
        """
        ...

    async def exec(self, unit_id: UnitId, request: StreamRequest) -> StreamUrl | Session:
        """Start a command with streams for its input and output.

        Returns a session, or the URL of the runtime's own streaming server where the command starts.
        """
        ...


@runtime_checkable
class SupportsAttach(Protocol):
    """Capability: clients can join the streams of a unit's main process, or its console."""

    async def attach(self, unit_id: UnitId, request: StreamRequest) -> StreamUrl | Session:
        """Join the streams of the main process that already runs. Returns a session, or a streaming server's URL."""
        ...


@runtime_checkable
class SupportsPortForward(Protocol):
    """Capability: clients can connect to ports of a pod."""

    async def port_forward(self, sandbox_id: SandboxId, port: int) -> StreamUrl | Session:
        """Open one connection to `port` on the pod's loopback. Returns a session, or a streaming server's URL."""
        ...


@runtime_checkable
class SupportsStats(Protocol):
    """Capability: the runtime measures the usage of units."""

    async def list_unit_stats(self, match: Mapping[str, str]) -> Sequence[UnitStats]:
        """Return one entry for each running unit whose labels match and that could be measured."""
        ...


@runtime_checkable
class SupportsLogReopen(Protocol):
    """Capability: the runtime writes log files, and opens them again after a rotation (`LogMode.FILE`)."""

    async def reopen_log(self, unit_id: UnitId) -> None:
        """Close the unit's log file, which was renamed, and open its path again."""
        ...


@runtime_checkable
class SupportsLogStream(Protocol):
    """Capability: the runtime offers a unit's output as a stream, which the host logs (`LogMode.STREAM`)."""

    def log_stream(self, unit_id: UnitId) -> AsyncIterator[tuple[str, bytes]]:
        """Yield ("stdout" or "stderr", bytes): all output since the unit's start, or since the last call."""
        ...


@runtime_checkable
class SupportsResize(Protocol):
    """Capability: the limits of a running unit can change."""

    async def update_resources(self, unit_id: UnitId, resources: Resources) -> None:
        """Apply new limits. Returns when they are accepted; `unit_status` shows what was granted."""
        ...


@runtime_checkable
class SupportsStandby(Protocol):
    """Capability: a unit can be frozen, or hibernated to disk, and continued (Quark)."""

    async def freeze(self, unit_id: UnitId) -> None:
        """Freeze a RUNNING unit; it becomes PAUSED."""
        ...

    async def thaw(self, unit_id: UnitId) -> None:
        """Continue a PAUSED or SUSPENDED unit; it becomes RUNNING."""
        ...

    async def hibernate(self, unit_id: UnitId) -> None:
        """Write the memory of a RUNNING or PAUSED unit to disk and free it; the unit becomes SUSPENDED."""
        ...


@runtime_checkable
class SupportsMachine(Protocol):
    """Capability: verbs of virtual machines that CRI does not have."""

    async def reboot(self, unit_id: UnitId, delay_seconds: float) -> None:
        """Request the guest to reboot after `delay_seconds`."""
        ...

    async def pause(self, unit_id: UnitId) -> None:
        """Stop the vCPUs and keep the memory; the machine becomes PAUSED."""
        ...

    async def resume(self, unit_id: UnitId) -> None:
        """Continue a PAUSED or SUSPENDED machine; it becomes RUNNING."""
        ...

    async def suspend(self, unit_id: UnitId) -> None:
        """Save the memory of a RUNNING or PAUSED machine and end its emulator; the machine becomes SUSPENDED."""
        ...

    async def power_off(self, unit_id: UnitId, grace_seconds: float) -> None:
        """Shut the guest down, and power the machine off if it still runs after `grace_seconds`.

        The disk stays, and `start_unit` starts the same unit again. Works from PAUSED and SUSPENDED too
        (saved memory is discarded), and succeeds if the machine is off.
        """
        ...


@runtime_checkable
class SupportsSnapshots(Protocol):
    """Capability: snapshots of a machine's disks, and of its memory on request."""

    async def create_snapshot(self, unit_id: UnitId, name: str, memory: bool) -> SnapshotStatus:
        """Create a snapshot of the disks, and of the memory if `memory` is True.

        Raises AlreadyExists if the name is taken, and Unsupported, with the reason, if the machine's devices
        do not allow it. A failed call leaves nothing behind.
        """
        ...

    async def list_snapshots(self, unit_id: UnitId) -> Sequence[SnapshotStatus]:
        """List the machine's snapshots, oldest first."""
        ...

    async def restore_snapshot(self, unit_id: UnitId, name: str) -> None:
        """Restore the machine from a snapshot. Raises NotFound if there is none of this name, and changes nothing.

        From a snapshot with memory the guest continues. From one without, a machine that is running or paused
        now boots from the restored disk; any other machine is off afterwards.
        """
        ...

    async def delete_snapshot(self, unit_id: UnitId, name: str) -> None:
        """Delete a snapshot; succeeds if it does not exist. Later snapshots are kept."""
        ...


@runtime_checkable
class SupportsNics(Protocol):
    """Capability: network interfaces of a machine can be attached and detached while it runs."""

    async def attach_nic(self, unit_id: UnitId, nic: Nic) -> None:
        """Attach an interface. Succeeds, and changes nothing, if one of this name exists.

        Raises Unavailable while its port or network does not exist yet; the host then tries again.
        """
        ...

    async def detach_nic(self, unit_id: UnitId, name: str) -> None:
        """Request the guest to release an interface; succeeds if there is none of this name.

        `list_nics` shows when the interface is gone.
        """
        ...

    async def list_nics(self, unit_id: UnitId) -> Sequence[NicStatus]:
        """List all interfaces, including the pod network's. For a machine that is off: the interfaces of its next start."""
        ...


@runtime_checkable
class SupportsScreenshot(Protocol):
    """Capability: screenshots of a machine's display."""

    async def screenshot(self, unit_id: UnitId) -> bytes:
        """Return the display's present picture as a PNG file. Raises Conflict while the machine is off."""
        ...


@runtime_checkable
class SupportsDefinition(Protocol):
    """Capability: the backend has a definition of its own for a unit, which users may read."""

    async def definition(self, unit_id: UnitId) -> str:
        """Return the definition as text, such as libvirt's domain XML, without secrets."""
        ...


@runtime_checkable
class SupportsCheckpoint(Protocol):
    """Capability: the state of a unit can be written to a file."""

    async def checkpoint(self, unit_id: UnitId, path: str, timeout_seconds: float) -> None:
        """Write the unit's state to an archive at `path`; the unit continues to run."""
        ...


@runtime_checkable
class SupportsCriPassthrough(Protocol):
    """Capability: the backend speaks CRI v1, and calls of CRI clients are forwarded unchanged (DECISIONS 23)."""

    async def cri_unary(self, method: str, request: bytes, deadline_seconds: float | None) -> bytes:
        """Forward one unary call and return the encoded answer.

        An error of the backend is raised as `CriStatusError`.
        """
        ...

    def cri_stream(self, method: str, request: bytes) -> AsyncIterator[bytes]:
        """Forward one server-streaming call and yield the encoded answers."""
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
