"""Defines, starts, stops and removes machines.

Every call may be repeated after an interruption: the domain's UUID is computed from the unit's key, files are
made only if they are missing, and a missing machine is treated as stopped and removed. Calls for one unit run
one at a time.

The emulator of a crashed guest (see `domain.states.fatal_hold`) still exists, but its guest does not run. Lists and
events of domains show it. Each gets one task that ends it, since that waits for the unit's lock and for libvirt. If the
task fails, the next list shows the machine again.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from weakref import WeakValueDictionary

import libvirt
import structlog

from kubeletx.api import (
    Conflict,
    Internal,
    InvalidPod,
    KubeletxError,
    Machine,
    SandboxId,
    SandboxSpec,
    TimedOut,
    UnitId,
    UnitSpec,
    UnitState,
    names,
)
from kubeletx_libvirt.config import GIB
from kubeletx_libvirt.disks import disk_serial, make_overlay, overlay_path, pod_directory, volume_disks
from kubeletx_libvirt.domain.metadata import (
    Identity,
    domain_name,
    domain_uuid,
    identity_of,
    metadata_element,
    sandbox_of,
)
from kubeletx_libvirt.domain.sizing import Size, check_maximums
from kubeletx_libvirt.domain.states import fatal_hold, is_half_made
from kubeletx_libvirt.domain.xml import Disk, Plan, domain_xml
from kubeletx_libvirt.domain_reader import UnitDomain, now_ns
from kubeletx_libvirt.emulation import Emulation
from kubeletx_libvirt.errors import code_of
from kubeletx_libvirt.guest_parts import Guests
from kubeletx_libvirt.images.problems import free_bytes
from kubeletx_libvirt.images.service import LibvirtImages
from kubeletx_libvirt.machinery import Machinery, Part
from kubeletx_libvirt.records import Run, UnitRecord

log = structlog.get_logger(__name__)

DISK_LARGER_THAN_FREE = "DiskLargerThanFree"
"""Event reason: the requested root disk is larger than the free space of its file system."""
MEMORY_DISCARDED = "MemoryDiscarded"
"""Event reason: a suspended machine was switched off and its saved memory discarded."""
_AGENT_SHUTDOWN = '{"execute":"guest-shutdown"}'


class Units(Part):
    """Defines, starts, stops and removes the machines of one runtime."""

    def __init__(
        self, machinery: Machinery, *, guests: Guests, images: LibvirtImages, emulation: Emulation
    ) -> None:
        super().__init__(machinery)
        self._guests = guests
        self._images = images
        self._emulation = emulation
        self._locks: WeakValueDictionary[UnitId, asyncio.Lock] = WeakValueDictionary()
        self._ending: dict[UnitId, asyncio.Task[None]] = {}

    async def close(self) -> None:
        """Cancel the tasks that end emulators; the next agent process finds these crashed guests again."""
        ending = list(self._ending.values())
        for task in ending:
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)

    @contextlib.asynccontextmanager
    async def alone(self, unit_id: UnitId) -> AsyncIterator[None]:
        """Hold the unit's lock during the block, so that calls that change a unit run one at a time."""
        async with self._locks.setdefault(unit_id, asyncio.Lock()):
            yield

    async def create(self, sandbox_id: SandboxId, spec: UnitSpec, sandbox: SandboxSpec) -> UnitId:
        """Create the machine's disks and other parts, then define its domain. Returns the unit's id.

        If the unit exists already, only its id is returned. Raises InvalidPod for a machine that this node
        cannot run.
        """
        machine = spec.detail
        if not isinstance(machine, Machine):
            raise InvalidPod(
                field=f"container {spec.name}",
                problem="is not a virtual machine",
                fix="give the pod spec.virtualMachine, or a runtime of type container",
            )
        unit_id = domain_uuid(self._host.agent_id, self._runtime, sandbox_id, spec.name, spec.attempt)
        async with self.alone(unit_id):
            if await self._domains.find(unit_id) is not None and unit_id in self._records.units:
                return unit_id
            size = self._size_of(spec.resources, machine)
            if spec.attempt == 0:  # a later attempt may have been resized beyond them
                check_maximums(size, machine, max_vcpus=self._settings.max_vcpus)
            identity = identity_of(
                sandbox,
                spec,
                agent_id=self._host.agent_id,
                runtime=self._runtime,
                sandbox_id=sandbox_id,
                now_ns=now_ns(self._host),
            )
            # Before anything is made, so that after an interruption the sandbox's removal knows what to remove.
            await self._records.save_unit(
                unit_id, UnitRecord(spec=spec, resources=granted(size)), is_new=True
            )
            disks = await self._make_disks(spec, machine, sandbox)
            parts = await self._guests.prepare(unit_id, spec, machine, sandbox)
            plan = Plan(
                uuid=unit_id,
                name=domain_name(unit_id),
                title=f"{sandbox.namespace}/{sandbox.name}",
                metadata=metadata_element(identity),
                accelerator=await self._emulation.accelerator(),
                size=size,
                disks=(*disks, parts.seed),
                devices=parts.devices,
                elements=parts.elements,
                log_path=identity.log_path,
                firmware=machine.firmware,
                watchdog=self._settings.watchdog,
            )
            await self._connection.use(libvirt.virConnect.defineXMLFlags, domain_xml(plan), 0)
            self._domains.learn(unit_id, identity)
        if size.memory_is_default:
            text = f"The machine has no memory limit and got the default of {size.memory_bytes / GIB:g} GiB"
            self._record_event(sandbox, "DefaultMemory", text, type="Normal")
        return unit_id

    async def start(self, unit_id: UnitId) -> None:
        """Boot the machine, or restore it from saved memory; does nothing if it is on.

        A machine that has ended boots again from its disk.
        """
        async with self.alone(unit_id):
            domain = await self._domains.get(unit_id)
            state = self._domains.state(unit_id, domain)
            if state not in (UnitState.RUNNING, UnitState.PAUSED):
                await self._boot(unit_id, domain, state)

    async def _boot(self, unit_id: UnitId, domain: UnitDomain, state: UnitState) -> None:
        old = self._records.run_of(unit_id)
        record = self._records.units.get(unit_id)
        machine = record.machine if record is not None else None
        paused = machine is not None and machine.power == "paused"
        self._domains.starting.add(unit_id)
        try:
            await self._host.blocking(_make_log_directory, domain.identity.log_path)
            if record is not None:
                sandbox = self._records.sandboxes.get(domain.identity.sandbox_id)
                network = None if sandbox is None or state is UnitState.SUSPENDED else sandbox.spec
                await self._guests.renew(unit_id, record, network)
            if state is not UnitState.SUSPENDED:
                await self._records.save_run(
                    unit_id, Run(is_starting=True, since_ns=now_ns(self._host), restarts=old.restarts)
                )
            await self._connection.use(_create, unit_id, paused)
            if state is UnitState.SUSPENDED:
                # A machine that was saved while paused is restored as paused, with the reason of a start in progress.
                await self._connection.use(resume_domain, unit_id)
                if paused:
                    await self._connection.use(pause_domain, unit_id)
            now = now_ns(self._host)
            await self._records.save_run(
                unit_id,
                Run(
                    started_at_ns=old.started_at_ns if state is UnitState.SUSPENDED else now,
                    since_ns=now,
                    restarts=old.restarts,
                ),
            )
        except KubeletxError as error:
            if not isinstance(error, TimedOut):
                await self._records.save_run(unit_id, old)
            if record is not None and (reported := await self._guests.explain(unit_id, record.spec, error)):
                raise reported from error
            raise
        finally:
            self._domains.starting.discard(unit_id)

    async def stop(self, unit_id: UnitId, grace_seconds: float) -> None:
        """Request a shutdown, wait at most `grace_seconds` for it, then power off.

        It works in every state, and succeeds if there is no machine. A suspended machine is restored before
        the request, so that its guest can write its data; with `grace_seconds` 0 its saved memory is
        discarded instead.
        """
        async with self.alone(unit_id):
            domain = await self._domains.find(unit_id)
            if domain is not None and is_half_made(domain.state, domain.reason):  # left by a cancelled start
                await self._connection.use(destroy_domain, unit_id)
                domain = await self._domains.find(unit_id)
            if domain is None:
                return
            state = self._domains.state(unit_id, domain)
            if state in (UnitState.CREATED, UnitState.EXITED):
                return
            if state is UnitState.SUSPENDED and grace_seconds > 0 and await self._wake(unit_id, domain):
                domain = await self._domains.get(unit_id)
                state = self._domains.state(unit_id, domain)
            if state is UnitState.SUSPENDED:
                await self._connection.use(_discard_saved, unit_id)
                text = "The machine's saved memory was discarded"
                self._record_event(sandbox_of(domain.identity), MEMORY_DISCARDED, text)
            elif what := fatal_hold(domain.state, domain.reason):
                await self._end_fatal_hold(unit_id, what)
            elif grace_seconds <= 0 or not await self._ask(unit_id, state, grace_seconds):
                await self._connection.use(destroy_domain, unit_id)
            domain = await self._domains.find(unit_id)
            if domain is not None and self._domains.state(unit_id, domain) is UnitState.EXITED:
                if state is UnitState.SUSPENDED:
                    domain = domain._replace(reason=libvirt.VIR_DOMAIN_SHUTOFF_DESTROYED)
                await self._domains.settle(unit_id, domain)

    async def _wake(self, unit_id: UnitId, domain: UnitDomain) -> bool:
        """Restore a suspended machine, so that its guest can shut down.

        Returns False if the machine cannot be restored. Raises TimedOut.
        """
        try:
            await self._boot(unit_id, domain, UnitState.SUSPENDED)
        except TimedOut:
            raise
        except KubeletxError as error:
            text = f"The machine cannot be restored from its saved memory for its shutdown: {error}"
            self._record_event(sandbox_of(domain.identity), MEMORY_DISCARDED, text)
            return False
        return True

    async def sweep(self, unit_id: UnitId) -> None:
        """Remove the unit's files if it has no domain.

        It waits for a `create` of the same unit to finish, so files of a new machine are kept.
        """
        async with self.alone(unit_id):
            if await self._domains.find(unit_id) is None:
                await self._guests.release(unit_id)
                await self._records.forget_unit(unit_id)

    def end_crashed_guests(self, domains: Mapping[UnitId, UnitDomain]) -> None:
        """Start a task for each crashed guest among `found` that ends its emulator, so that its unit ends."""
        for unit_id, domain in domains.items():
            if fatal_hold(domain.state, domain.reason) and unit_id not in self._ending:
                task = asyncio.create_task(self._end_crashed(unit_id), name=f"libvirt-dead-guest-{unit_id}")
                self._ending[unit_id] = task

    async def _end_crashed(self, unit_id: UnitId) -> None:
        try:
            await self._end_if_crashed(unit_id)
        except KubeletxError as error:
            log.warning("Failed to end the emulator of a crashed guest", unit=unit_id, err=str(error))
        finally:
            self._ending.pop(unit_id, None)

    async def _end_if_crashed(self, unit_id: UnitId) -> None:
        async with self.alone(unit_id):
            domain = await self._domains.find(unit_id)
            if domain is None or not (what := fatal_hold(domain.state, domain.reason)):
                return
            await self._end_fatal_hold(unit_id, what)
            domain = await self._domains.find(unit_id)
            if domain is not None and self._domains.state(unit_id, domain) is UnitState.EXITED:
                await self._domains.settle(unit_id, domain)

    async def _end_fatal_hold(self, unit_id: UnitId, what: str) -> None:
        """Store the reason for the crash (`what`), then end the emulator; only its state showed the reason."""
        await self._domains.hint(unit_id, what)
        await self._connection.use(destroy_domain, unit_id)

    async def remove(self, unit_id: UnitId) -> None:
        """Power off the machine and remove its domain, seed, shared directories and records.

        The root disk is kept for the pod's next attempt, unless the machine's `keep_disk` is False.
        """
        async with self.alone(unit_id):
            domain = await self._domains.find(unit_id)
            if domain is None and unit_id not in self._records.units:
                return
            if domain is not None:
                await self._connection.use(_undefine, unit_id)
                self._domains.forget(unit_id)
            record = self._records.units.get(unit_id)
            if domain is not None and record is not None:
                await self._remove_own_disk(domain.identity, record.spec)
            await self._guests.release(unit_id)
            await self._records.forget_unit(unit_id)

    async def _remove_own_disk(self, identity: Identity, spec: UnitSpec) -> None:
        """Remove the root disk of a machine whose `keep_disk` is False."""
        machine = spec.detail
        if isinstance(machine, Machine) and not machine.keep_disk:
            path = overlay_path(pod_directory(self._records.directory, identity.uid), spec, machine)
            await self._host.blocking(path.unlink, missing_ok=True)

    async def _make_disks(self, spec: UnitSpec, machine: Machine, sandbox: SandboxSpec) -> tuple[Disk, ...]:
        volumes = volume_disks(spec, machine)
        if machine.boot_volume is not None:
            if not any(disk.boot for disk in volumes):
                raise InvalidPod(
                    field="spec.virtualMachine.bootVolume",
                    problem=f"{machine.boot_volume} is not one of the machine's volumeDevices",
                    fix="name one of them",
                    reason=names.RUNTIME_UNSUPPORTED,
                )
            return tuple(sorted(volumes, key=lambda disk: not disk.boot))
        self._check_root_size(machine)
        path = overlay_path(pod_directory(self._records.directory, sandbox.uid), spec, machine)
        gid = await self._emulation.gid()
        await self._images.check_allowed(spec.image.requested, sandbox)
        async with self._images.hold(spec.image.ref or spec.image.requested) as base:
            await self._host.blocking(make_overlay, path, base, machine.root_size_bytes, gid)
            await self._warn_of_room(path.parent, machine, sandbox)
        root = Disk(
            path=str(path),
            format="qcow2",
            serial=disk_serial("root"),
            boot=True,
            backing_path=str(base.path),
            backing_format=base.format,
            backing_stays_roots=gid is not None,
        )
        return (root, *volumes)

    def _check_root_size(self, machine: Machine) -> None:
        most, wanted = self._settings.max_virtual_bytes, machine.root_size_bytes or 0
        if wanted > most:
            raise InvalidPod(
                field=f"metadata.annotations[{names.VM_DISK_SIZE}] or the ephemeral-storage limit",
                problem=f"a root disk of {wanted} bytes is more than the {most} that a disk may have here",
                fix="ask for less, or raise maxVirtualBytes of the libvirt plugin",
                reason=names.RUNTIME_UNSUPPORTED,
            )

    async def _warn_of_room(self, directory: Path, machine: Machine, sandbox: SandboxSpec) -> None:
        """Record a Warning event if the root disk may grow beyond the free space of `directory`."""
        wanted = machine.root_size_bytes or 0
        free = await self._host.blocking(free_bytes, directory)
        if wanted > free:
            text = (
                f"The machine's root disk may grow to {wanted} bytes, and {free} are free on the disk of {directory}: "
                "the machine pauses when that is full"
            )
            self._record_event(sandbox, DISK_LARGER_THAN_FREE, text)

    async def _ask(self, unit_id: UnitId, state: UnitState, grace_seconds: float) -> bool:
        """Request the shutdown repeatedly until the machine ends or the grace period is over.

        Returns True if the machine has ended. A paused machine is resumed first.
        """
        with self._waits.expect(unit_id, "stopped") as ended:
            if state is UnitState.PAUSED:
                with contextlib.suppress(KubeletxError):  # a broken emulator; it is destroyed later
                    await self._connection.use(resume_domain, unit_id)
            try:
                async with asyncio.timeout(grace_seconds):
                    await self._press_until(unit_id, ended)
            except (TimeoutError, Conflict, Internal):  # too late, or the state does not allow it
                return False
        return True

    async def _press_until(self, unit_id: UnitId, ended: asyncio.Event) -> None:
        through_agent = True
        for pause in ask_again_seconds():
            if await self._connection.use(_ask_to_shut_down, unit_id, through_agent):
                return
            through_agent = False
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await ended.wait()
                    domain = await self._domains.find(unit_id)
                    if domain is None or not self._domains.state(unit_id, domain).is_alive:
                        return
                    ended.clear()


def ask_again_seconds() -> Iterator[float]:
    """Yield the seconds between presses of the power button, without end. A booting guest ignores presses."""
    yield from (1.0, 2.0)
    while True:
        yield 4.0


def granted(size: Size) -> dict[str, int]:
    """Convert a size to a dict in the form of `UnitStatus.resources`."""
    limit = size.vcpus * 1000
    if size.quota_us is not None:
        limit = limit * size.quota_us // size.period_us
    return {
        "vcpus": size.vcpus,
        "cpu_limit_millicores": limit,
        "memory_bytes": size.memory_bytes,
        "memory_limit_bytes": size.memory_bytes,
        "max_vcpus": size.max_vcpus,
        "max_memory_bytes": size.max_memory_bytes,
    }


# --- on the host's threads ---


def _make_log_directory(log_path: str) -> None:
    if log_path:
        Path(log_path).parent.mkdir(parents=True, exist_ok=True)


def _create(handle: libvirt.virConnect, uuid: str, paused: bool) -> None:
    domain = handle.lookupByUUIDString(uuid)
    flags = libvirt.VIR_DOMAIN_START_PAUSED if paused else 0
    try:
        domain.createWithFlags(flags)
    except libvirt.libvirtError as error:
        if code_of(error) != libvirt.VIR_ERR_OPERATION_INVALID or not domain.isActive():
            raise


def pause_domain(handle: libvirt.virConnect, uuid: str) -> None:
    """Pause the guest's vCPUs; succeeds if they are paused already."""
    domain = handle.lookupByUUIDString(uuid)
    if domain.state()[0] != libvirt.VIR_DOMAIN_PAUSED:
        domain.suspend()


def resume_domain(handle: libvirt.virConnect, uuid: str) -> None:
    """Resume a paused guest, or wake a sleeping one (ACPI S3); does nothing in other states."""
    domain = handle.lookupByUUIDString(uuid)
    state, _ = domain.state()
    if state == libvirt.VIR_DOMAIN_PAUSED:
        domain.resume()
    elif state == libvirt.VIR_DOMAIN_PMSUSPENDED:
        domain.pMWakeup()


def _ask_to_shut_down(handle: libvirt.virConnect, uuid: str, through_agent: bool) -> bool:
    """Request a shutdown by guest agent or power button; returns True if the machine is off already.

    `through_agent`: try the guest agent first.
    """
    domain = _find(handle, uuid)
    if domain is None or not domain.isActive():
        return True
    if through_agent and call_guest_agent(domain, _AGENT_SHUTDOWN):
        return False
    try:
        domain.shutdownFlags(libvirt.VIR_DOMAIN_SHUTDOWN_ACPI_POWER_BTN)
    except libvirt.libvirtError:
        if domain.isActive():
            raise
        return True
    return False


def call_guest_agent(domain: libvirt.virDomain, command: str) -> bool:
    """Send a shutdown or reboot to the guest agent; returns True if it was sent.

    The guest agent never answers these commands, so there is no wait.
    """
    import libvirt_qemu

    try:
        libvirt_qemu.qemuAgentCommand(domain, command, libvirt_qemu.VIR_DOMAIN_QEMU_AGENT_COMMAND_NOWAIT, 0)
    except libvirt.libvirtError:
        return False
    return True


def destroy_domain(handle: libvirt.virConnect, uuid: str) -> None:
    """Switch the machine off at once; succeeds if it is off or does not exist."""
    domain = _find(handle, uuid)
    if domain is None:
        return
    try:
        domain.destroyFlags(0)
    except libvirt.libvirtError:
        if domain.isActive():
            raise


def _discard_saved(handle: libvirt.virConnect, uuid: str) -> None:
    domain = _find(handle, uuid)
    if domain is not None and domain.hasManagedSaveImage(0):
        domain.managedSaveRemove(0)


_EVERYTHING = (
    libvirt.VIR_DOMAIN_UNDEFINE_MANAGED_SAVE
    | libvirt.VIR_DOMAIN_UNDEFINE_SNAPSHOTS_METADATA
    | libvirt.VIR_DOMAIN_UNDEFINE_CHECKPOINTS_METADATA
    | libvirt.VIR_DOMAIN_UNDEFINE_NVRAM
)


def _undefine(handle: libvirt.virConnect, uuid: str) -> None:
    destroy_domain(handle, uuid)
    domain = _find(handle, uuid)
    if domain is None:
        return
    try:
        domain.undefineFlags(_EVERYTHING)
    except libvirt.libvirtError as error:
        if code_of(error) != libvirt.VIR_ERR_NO_DOMAIN:
            raise


def _find(handle: libvirt.virConnect, uuid: str) -> libvirt.virDomain | None:
    try:
        return handle.lookupByUUIDString(uuid)
    except libvirt.libvirtError as error:
        if code_of(error) in (libvirt.VIR_ERR_NO_DOMAIN, libvirt.VIR_ERR_INVALID_ARG):
            return None
        raise
