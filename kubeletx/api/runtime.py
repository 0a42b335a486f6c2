"""Protocols of a runtime: the required `Runtime`, and optional capabilities (`SupportsImages`, `SupportsExec`, ...).

A *unit* is a container, a process or a virtual machine in a pod sandbox. The kubeletx agent calls these methods. Rules
for every method (the contract suite in `kubeletx.testing` checks them):

- Every call may be repeated. Stopping or removing an object that does not exist succeeds. A failed create leaves
  nothing behind, or leaves an object that the next list shows with the same key.
- A call that cannot reach the backend raises Unavailable. A call whose deadline expired raises TimedOut. A call for an
  object that does not exist raises NotFound (except stop and remove).
- The agent cancels a call at its deadline (`asyncio.timeout`), and limits how many calls run at once.
- The agent does not interpret ids.
- No method blocks the event loop: slow work is awaited or passed to `Host.blocking`.
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
    """Methods that every runtime has. Optional ones are separate protocols, which the agent gets with `capability`."""

    async def open(self) -> None:
        """Connect to the backend. Raises Unavailable if it does not answer; the agent tries again later.

        The agent calls this again after a lost connection. After each success it calls `traits` and
        `capability` again.
        """
        ...

    async def close(self) -> None:
        """Disconnect from the backend. Units continue to run if `Traits.units_survive_agent`."""
        ...

    def traits(self) -> Traits:
        """Return the properties of this runtime. They are valid after `open`."""
        ...

    def capability(self, protocol: type[T]) -> T | None:
        """Return the object that implements the capability `protocol`; None if the runtime does not have it.

        `protocol`: one of the Supports... classes in this module.
        """
        ...

    async def version(self) -> RuntimeVersion:
        """Return name and version of the backend."""
        ...

    async def health(self) -> RuntimeHealth:
        """Return whether the backend can start pods now, with its conditions."""
        ...

    async def create_sandbox(self, spec: SandboxSpec) -> SandboxId:
        """Create and start a pod sandbox, and return its id.

        A second call with the same `uid` and `attempt` in `spec` returns the id of the first sandbox.
        """
        ...

    async def stop_sandbox(self, sandbox_id: SandboxId) -> None:
        """Kill all units in the sandbox, without a grace period, and release its network.

        Succeeds if the sandbox does not exist.
        """
        ...

    async def remove_sandbox(self, sandbox_id: SandboxId) -> None:
        """Remove the sandbox and all units in it; running units are stopped first. Succeeds if it does not exist."""
        ...

    async def list_sandboxes(self, match: Mapping[str, str]) -> Sequence[SandboxSummary]:
        """List the sandboxes whose labels contain every pair of `match`; all of this runtime if `match` is empty."""
        ...

    async def sandbox_status(self, sandbox_id: SandboxId) -> SandboxStatus:
        """Return the full status of one sandbox. Raises NotFound."""
        ...

    async def create_unit(self, sandbox_id: SandboxId, spec: UnitSpec, sandbox: SandboxSpec) -> UnitId:
        """Create a unit (container, process or virtual machine) in the sandbox without starting it; return its id.

        `sandbox`: the spec with which the sandbox was created. A second call with the same sandbox, name and
        attempt returns the id of the first unit. Raises InvalidPod with reason RuntimeUnsupported for a spec
        that needs a feature which the runtime lacks. After every error the agent tries again.
        """
        ...

    async def start_unit(self, unit_id: UnitId) -> None:
        """Start a unit that `create_unit` has created. Succeeds if it is already running."""
        ...

    async def stop_unit(self, unit_id: UnitId, grace_seconds: float) -> None:
        """Ask the unit to stop, wait up to `grace_seconds`, then kill it. With 0 it is killed at once.

        Works in every state, including paused and suspended. Succeeds if the unit does not exist.
        """
        ...

    async def remove_unit(self, unit_id: UnitId) -> None:
        """Remove a unit that has ended, with its writable layer. Succeeds if it does not exist.

        A unit that still runs is killed first, without a grace period, or the call raises an error. No process
        and no open file descriptor is left.
        The root disk of a machine is kept if `Machine.keep_disk` is True.
        """
        ...

    async def list_units(self, match: Mapping[str, str]) -> Sequence[UnitSummary]:
        """List the units whose labels contain every pair of `match`; all units of this runtime if `match` is empty."""
        ...

    async def unit_status(self, unit_id: UnitId) -> UnitStatus:
        """Return the full status of one unit (container, process or virtual machine). Raises NotFound.

        A unit whose end the backend could not note, as in a power cut, is EXITED with an exit code other than 0.
        The kernel may have given its process ids to other processes: these are not touched.
        """
        ...


@runtime_checkable
class SupportsImages(Protocol):
    """Capability: the runtime, or a separate image endpoint, stores images."""

    async def store_info(self) -> StoreInfo:
        """Return the image store's id and the usage of its file systems."""
        ...

    async def list_images(self) -> Sequence[ImageStatus]:
        """List all images of the store, including images that other programs have pulled."""
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
        """Pull the image and return the store's reference to it (`ImageStatus.ref`).

        `auth`: registry credentials; None: there are none. `sandbox`: spec of the pod's sandbox, which may not
        have been created yet; None: the image is not pulled for a pod. `progress`: called with progress
        reports; None: the caller needs none. The agent sets no deadline. Cancelling the call stops the pull.
        """
        ...

    async def remove_image(self, image: ImageSpec) -> None:
        """Remove the image with all its tags; succeeds if it does not exist."""
        ...


@runtime_checkable
class SupportsEvents(Protocol):
    """Capability: the runtime sends events when its sandboxes and units change."""

    def events(self) -> AsyncIterator[RuntimeEvent]:
        """Yield events from now on. Ends or raises when the connection is lost; the agent then calls it again."""
        ...


@runtime_checkable
class SupportsExec(Protocol):
    """Capability: commands can be run inside a unit (container or virtual machine)."""

    async def exec_sync(self, unit_id: UnitId, command: Sequence[str], timeout_seconds: float) -> ExecResult:
        """Run a command in the unit until it exits, and return its output and exit code.

        The command has the environment variables and the working directory of the unit. After `timeout_seconds`
        it is killed and TimedOut is raised; 0: no limit. Raises an error for a unit that does not run.
        The runtime limits the size of the output.
        """
        ...

    async def exec(self, unit_id: UnitId, request: StreamRequest) -> StreamUrl | Session:
        """Prepare a command with streams for its input and output.

        Returns a `Session` of the running command, or the URL of the runtime's own streaming server, which
        starts the command when a client connects.
        """
        ...


@runtime_checkable
class SupportsAttach(Protocol):
    """Capability: clients can attach to the streams of a unit's main process, or to a machine's console."""

    async def attach(self, unit_id: UnitId, request: StreamRequest) -> StreamUrl | Session:
        """Attach to the streams of the unit's running main process. Returns a session, or a streaming server's URL."""
        ...


@runtime_checkable
class SupportsPortForward(Protocol):
    """Capability: clients can connect to ports of a pod."""

    async def port_forward(self, sandbox_id: SandboxId, port: int) -> StreamUrl | Session:
        """Open one connection to `port` on the pod's loopback address.

        Returns a `Session` that carries the connection, or the URL of the runtime's own streaming server.
        """
        ...


@runtime_checkable
class SupportsStats(Protocol):
    """Capability: the runtime measures the resource usage of units (containers or virtual machines)."""

    async def list_unit_stats(self, match: Mapping[str, str]) -> Sequence[UnitStats]:
        """Return the usage of each running unit whose labels contain every pair of `match`.

        The figures of a unit are the sums over all its processes, and no others. Units that could not be measured
        are left out. A unit that does not run is left out too, or its figures of CPU and memory are None.
        """
        ...


@runtime_checkable
class SupportsLogReopen(Protocol):
    """Capability: the runtime writes log files, and reopens them after the agent has rotated them (`LogMode.FILE`)."""

    async def reopen_log(self, unit_id: UnitId) -> None:
        """Close the unit's log file, which the agent has renamed, and open a new file at its path."""
        ...


@runtime_checkable
class SupportsLogStream(Protocol):
    """Capability: the runtime offers a unit's output as a stream; the agent writes the log file (`LogMode.STREAM`)."""

    def log_stream(self, unit_id: UnitId) -> AsyncIterator[tuple[str, bytes]]:
        """Yield the unit's output as pairs of "stdout" or "stderr" and bytes.

        The first call yields all output since the unit's start; a later call continues after the earlier one.
        """
        ...


@runtime_checkable
class SupportsResize(Protocol):
    """Capability: the resource limits of a running unit (container or virtual machine) can be changed."""

    async def update_resources(self, unit_id: UnitId, resources: Resources) -> None:
        """Set new limits for a running unit. Returns when the runtime has accepted them.

        `UnitStatus.resources` then has the limits that it has granted.
        """
        ...


@runtime_checkable
class SupportsStandby(Protocol):
    """Capability: a unit can be frozen or hibernated to disk, and later continued, as Quark does."""

    async def freeze(self, unit_id: UnitId) -> None:
        """Freeze a RUNNING unit; it becomes PAUSED."""
        ...

    async def thaw(self, unit_id: UnitId) -> None:
        """Continue a PAUSED or SUSPENDED unit; it becomes RUNNING."""
        ...

    async def hibernate(self, unit_id: UnitId) -> None:
        """Write the memory of a RUNNING or PAUSED unit to disk and free it; the unit becomes SUSPENDED.

        If the pod of a container should run again, the call is cancelled: undo what it has done, so that the
        container is in the same state as before, and then pass the cancellation on.
        """
        ...


@runtime_checkable
class SupportsMachine(Protocol):
    """Capability: operations on virtual machines, such as reboot and suspend, which CRI does not have."""

    async def reboot(self, unit_id: UnitId, delay_seconds: float) -> None:
        """Ask the guest to reboot after `delay_seconds`."""
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
        """Ask the guest to shut down, and power the machine off if it still runs after `grace_seconds`.

        The disk is kept: `start_unit` starts the same unit again. Also works for PAUSED and SUSPENDED machines;
        saved memory is discarded. Succeeds if the machine is off.
        """
        ...


@runtime_checkable
class SupportsSnapshots(Protocol):
    """Capability: snapshots of a virtual machine's disks, and optionally of its memory."""

    async def create_snapshot(self, unit_id: UnitId, name: str, memory: bool) -> SnapshotStatus:
        """Create a snapshot of the disks, and also of the memory if `memory` is True.

        Raises AlreadyExists if the name is taken, and Unsupported if the machine's devices do not allow
        snapshots; its message says why. A failed call leaves nothing behind.
        """
        ...

    async def list_snapshots(self, unit_id: UnitId) -> Sequence[SnapshotStatus]:
        """List the machine's snapshots, oldest first."""
        ...

    async def restore_snapshot(self, unit_id: UnitId, name: str) -> None:
        """Restore the machine from the snapshot `name`.

        With a snapshot that has memory, the guest continues from it. With a snapshot of the disks only, a
        machine that is running or paused boots from the restored disks, and any other machine is off
        afterwards. If there is no such snapshot, raises NotFound and changes nothing.
        """
        ...

    async def delete_snapshot(self, unit_id: UnitId, name: str) -> None:
        """Delete a snapshot; succeeds if it does not exist. Snapshots that are based on it are kept."""
        ...


@runtime_checkable
class SupportsNics(Protocol):
    """Capability: network interfaces of a virtual machine can be attached and detached while it runs."""

    async def attach_nic(self, unit_id: UnitId, nic: Nic) -> None:
        """Attach an interface to the machine. Does nothing if it has an interface with this name.

        Raises Unavailable while the interface's port or network does not exist yet; the agent then tries again.
        """
        ...

    async def detach_nic(self, unit_id: UnitId, name: str) -> None:
        """Ask the guest to release the interface `name`; succeeds if there is no such interface.

        The interface is gone when `list_nics` no longer has it.
        """
        ...

    async def list_nics(self, unit_id: UnitId) -> Sequence[NicStatus]:
        """List all interfaces of the machine, including the one to the pod network.

        For a machine that is off: the interfaces that it will have at its next start.
        """
        ...


@runtime_checkable
class SupportsScreenshot(Protocol):
    """Capability: screenshots of a virtual machine's display."""

    async def screenshot(self, unit_id: UnitId) -> bytes:
        """Return the current picture of the display in PNG format. Raises Conflict while the machine is off."""
        ...


@runtime_checkable
class SupportsDefinition(Protocol):
    """Capability: users may read the backend's own definition of a unit, such as libvirt's domain XML."""

    async def definition(self, unit_id: UnitId) -> str:
        """Return the backend's definition of the unit as text, such as libvirt's domain XML. Secrets are left out."""
        ...


@runtime_checkable
class SupportsCheckpoint(Protocol):
    """Capability: the state of a unit can be written to a file."""

    async def checkpoint(self, unit_id: UnitId, path: str, timeout_seconds: float) -> None:
        """Write the unit's state to an archive file at `path`; the unit continues to run.

        `timeout_seconds`: time limit for the backend.
        """
        ...


@runtime_checkable
class SupportsNetworkConfig(Protocol):
    """Capability: the runtime takes the ranges of addresses that a cluster has given the node's pods."""

    async def set_pod_cidrs(self, cidrs: Sequence[str]) -> None:
        """Use these ranges for sandboxes that are created later, if the runtime's own configuration leaves that open.

        `cidrs`: one for each address family, such as ``10.1.2.0/24``, the primary one first. Called again with the same
        ones after the runtime was unreachable.
        """
        ...


@runtime_checkable
class SupportsCriPassthrough(Protocol):
    """Capability: the backend is a CRI v1 server, and calls of CRI clients can be forwarded to it (DECISIONS 23)."""

    async def cri_unary(self, method: str, request: bytes, deadline_seconds: float | None) -> bytes:
        """Forward one unary CRI call unchanged, and return the encoded answer.

        `method`: name such as RunPodSandbox, or a full gRPC path. `request`: the encoded message.
        `deadline_seconds` None: no deadline. An error of the backend is raised as `CriStatusError`.
        """
        ...

    def cri_stream(self, method: str, request: bytes) -> AsyncIterator[bytes]:
        """Forward one server-streaming CRI call unchanged, and yield the encoded answers.

        `method`, `request`: as for `cri_unary`.
        """
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
    SupportsNetworkConfig,
    SupportsCriPassthrough,
)
"""All capabilities, in the order in which `kubeletx runtime describe` lists them."""
