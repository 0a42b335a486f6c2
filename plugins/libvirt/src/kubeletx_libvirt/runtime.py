"""`LibvirtRuntime`: implements `kubeletx.api.Runtime` with one libvirt.

A sandbox is the pod's record and its network; a unit is a domain. Machines continue to run when the agent
ends. After a restart they are found by the plugin's element in their metadata (`domain.metadata`), and their
history in `records`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import TypeVar

import libvirt

from kubeletx.api import (
    FEATURES,
    Endpoint,
    EventKind,
    Host,
    KubeletxError,
    LogMode,
    NotFound,
    RuntimeCondition,
    RuntimeEvent,
    RuntimeHealth,
    RuntimeVersion,
    SandboxId,
    SandboxSpec,
    SandboxStatus,
    SandboxSummary,
    Traits,
    UnitId,
    UnitSpec,
    UnitStatus,
    UnitSummary,
)
from kubeletx_libvirt.addresses import Addresses
from kubeletx_libvirt.client import Connection, DomainEvent
from kubeletx_libvirt.config import Settings
from kubeletx_libvirt.console import Consoles
from kubeletx_libvirt.disks import base_paths, pod_directory, remove_disks
from kubeletx_libvirt.domain.metadata import domain_uuid
from kubeletx_libvirt.domain_reader import DomainReader, EventWaits, now_ns
from kubeletx_libvirt.emulation import Emulation
from kubeletx_libvirt.forwarding import Forwards
from kubeletx_libvirt.guest import Boots, GuestAgent, GuestCommands
from kubeletx_libvirt.guest_parts import Guests
from kubeletx_libvirt.images.service import LibvirtImages
from kubeletx_libvirt.machinery import Machinery
from kubeletx_libvirt.network.pod_links import PodLinks
from kubeletx_libvirt.nics import Nics
from kubeletx_libvirt.power import Power
from kubeletx_libvirt.records import Records
from kubeletx_libvirt.resize import Resizes
from kubeletx_libvirt.sandboxes import Sandboxes
from kubeletx_libvirt.screenshot import Pictures
from kubeletx_libvirt.snapshots import Snapshots
from kubeletx_libvirt.stats import Stats
from kubeletx_libvirt.units import Units

T = TypeVar("T")

CAN = {
    "pod-network",
    "host-ports",
    "nics",
    "key-pairs",
    "block-volumes",
    "mounts",
    "resources",
    "stdin",  # stdin and tty: the console
    "tty",
}
_EVENTS = {
    libvirt.VIR_DOMAIN_EVENT_DEFINED: EventKind.CREATED,
    libvirt.VIR_DOMAIN_EVENT_UNDEFINED: EventKind.DELETED,
    libvirt.VIR_DOMAIN_EVENT_STARTED: EventKind.STARTED,
    libvirt.VIR_DOMAIN_EVENT_STOPPED: EventKind.STOPPED,
}


_DISCONNECTED = libvirt.VIR_CONNECT_DOMAIN_EVENT_AGENT_LIFECYCLE_STATE_DISCONNECTED
_CONNECTED = libvirt.VIR_CONNECT_DOMAIN_EVENT_AGENT_LIFECYCLE_STATE_CONNECTED


class LibvirtRuntime:
    """Runtime of one libvirt URI.

    Objects in its attributes implement the optional capabilities, such as exec and snapshots.
    """

    def __init__(self, endpoint: Endpoint, settings: Settings, host: Host) -> None:
        """Make all components; does no I/O."""
        self.host = host
        self.settings = settings
        self.endpoint = endpoint
        self.connection = Connection(endpoint.url, host)
        self.records = Records(host)
        self.domains = DomainReader(self.connection, self.records, host, endpoint.name)
        self.waits = EventWaits()
        self.links = PodLinks(host)
        self.images = LibvirtImages(
            host=host,
            directory=host.state_directory / "images",
            settings=settings,
            in_use=lambda: host.blocking(base_paths, host.state_directory),
        )
        machinery = Machinery(
            name=endpoint.name,
            host=host,
            settings=settings,
            connection=self.connection,
            records=self.records,
            domains=self.domains,
            waits=self.waits,
            links=self.links,
            addresses=Addresses(settings, self.records, self.domains),
        )
        self.sandboxes = Sandboxes(machinery)
        self.emulation = Emulation(machinery, self.images)
        self.guests = Guests(machinery, self.emulation)
        self.units = Units(machinery, guests=self.guests, images=self.images, emulation=self.emulation)
        self.power = Power(machinery, self.units)
        self.resizes = Resizes(machinery, self.units)
        self.snapshots = Snapshots(machinery, self.units, self.resizes.measure)
        self.nics = Nics(machinery, self.units)
        agent = GuestAgent(self.connection, self.domains, host)
        self._boots = Boots(agent, self.records, self._on_late_boot)
        self._consoles = Consoles(self.connection, self.domains, host)
        self._stats = Stats(machinery)
        self._parts: tuple[object, ...] = (
            self,
            self.images,
            self.power,
            self.resizes,
            self.snapshots,
            self.nics,
            self._consoles,
            GuestCommands(agent),
            *((Forwards(self.records),) if host.pod_network is not None else ()),
            Pictures(machinery),
            self._stats,
        )
        self._pump: asyncio.Task[None] | None = None
        self._listeners: set[asyncio.Queue[RuntimeEvent | None]] = set()

    async def open(self) -> None:
        """Read the records, connect to libvirt, start to handle events, and find the existing machines again.

        The check of KVM runs in the background.
        """
        await self.records.load()
        await self.images.open()
        await self.connection.open()
        self.domains.reset()
        if self._pump is None or self._pump.done():
            queue = self.connection.subscribe()
            self._pump = asyncio.create_task(self._listen(queue), name=f"libvirt-events-{self.endpoint.name}")
        self.emulation.open()
        await self._adopt()
        await self.power.open()
        await self._look_at_boots()

    async def close(self) -> None:
        pump, self._pump = self._pump, None
        await self.units.close()
        await self._boots.close()
        await self.power.close()
        await self._consoles.close()
        await self._stats.close()
        await self.images.close()
        self.links.close()
        await self.connection.close()
        await self.emulation.close()
        if pump is not None:
            pump.cancel()
            with contextlib.suppress(asyncio.CancelledError, KubeletxError):
                await pump

    def traits(self) -> Traits:
        return Traits(
            details=("machine",),
            log_mode=LogMode.RAW_FILE,
            brings_pod_network=False,
            refuses=tuple(sorted(FEATURES - CAN)),
            memory_overhead_bytes=self.settings.memory_overhead_bytes,
        )

    def capability(self, protocol: type[T]) -> T | None:
        return next((part for part in self._parts if isinstance(part, protocol)), None)

    async def version(self) -> RuntimeVersion:
        library, driver = await self.connection.use(_versions)
        return RuntimeVersion(name="libvirt", version=_dotted(library), api_version=_dotted(driver))

    async def health(self) -> RuntimeHealth:
        await self.connection.probe(libvirt.virConnect.numOfDomains)
        problem = "no directory of CNI configuration is set; set kubeletx.cniConfDir or --cni-conf-dir, such as to /etc/cni/net.d"
        if self.host.pod_network is not None:
            problem = await self.host.pod_network.problem()
        condition = RuntimeCondition(
            type="NetworkReady",
            ok=not problem,
            reason="NoPodNetwork" if problem else "",
            message=problem,
        )
        return RuntimeHealth(
            runtime_ready=True,
            network_ready=not problem,
            conditions=(RuntimeCondition(type="RuntimeReady", ok=True), condition),
        )

    # --- sandboxes ---

    async def create_sandbox(self, spec: SandboxSpec) -> SandboxId:
        return await self.sandboxes.create(spec)

    async def stop_sandbox(self, sandbox_id: SandboxId) -> None:
        await self._power_off(sandbox_id)
        await self.sandboxes.release(sandbox_id)

    async def remove_sandbox(self, sandbox_id: SandboxId) -> None:
        """Remove the sandbox's machine, network and record; with the pod's last sandbox also the pod's disks."""
        await self._power_off(sandbox_id)
        uid = None
        if (record := self.records.sandboxes.get(sandbox_id)) is not None:
            uid = record.spec.uid
        for unit_id in await self._units_of(sandbox_id):
            if (identity := self.domains.identity(unit_id)) is not None:
                uid = identity.uid
            await self.units.remove(unit_id)
        for unit_id in self._recorded_units_of(sandbox_id):  # another client removed their domains
            await self.units.remove(unit_id)
        await self.sandboxes.release(sandbox_id)
        if uid is not None and not self.sandboxes.has_others(uid, sandbox_id):
            await self.host.blocking(remove_disks, pod_directory(self.host.state_directory, uid))
        await self.records.forget_sandbox(sandbox_id)

    async def list_sandboxes(self, match: Mapping[str, str]) -> Sequence[SandboxSummary]:
        self.connection.get_handle()  # Unavailable without a connection, as in the lists that ask libvirt
        return self.sandboxes.list(match)

    async def sandbox_status(self, sandbox_id: SandboxId) -> SandboxStatus:
        self.connection.get_handle()
        return await self.sandboxes.status(sandbox_id)

    # --- units ---

    async def create_unit(self, sandbox_id: SandboxId, spec: UnitSpec, sandbox: SandboxSpec) -> UnitId:
        if sandbox_id not in self.records.sandboxes:
            raise NotFound(f"sandbox {sandbox_id} does not exist")
        return await self.units.create(sandbox_id, spec, sandbox)

    async def start_unit(self, unit_id: UnitId) -> None:
        await self.units.start(unit_id)

    async def stop_unit(self, unit_id: UnitId, grace_seconds: float) -> None:
        await self.power.forget_reboot(unit_id)
        await self.units.stop(unit_id, grace_seconds)

    async def remove_unit(self, unit_id: UnitId) -> None:
        await self.power.forget_reboot(unit_id)
        await self.units.remove(unit_id)

    async def list_units(self, match: Mapping[str, str]) -> Sequence[UnitSummary]:
        domains = await self.domains.all()
        self.units.end_crashed_guests(domains)
        return self.domains.summaries(domains, match)

    async def unit_status(self, unit_id: UnitId) -> UnitStatus:
        return await self.domains.status(unit_id)

    # --- events ---

    async def events(self) -> AsyncIterator[RuntimeEvent]:
        """Yield the events of this runtime's machines.

        State that cannot be read from libvirt later, such as a reboot, is stored before the event is yielded.
        Raises Unavailable when the connection ends.
        """
        self.connection.get_handle()
        queue: asyncio.Queue[RuntimeEvent | None] = asyncio.Queue()
        self._listeners.add(queue)
        try:
            while (event := await queue.get()) is not None:
                yield event
        finally:
            self._listeners.discard(queue)
        self.connection.get_handle()  # raises Unavailable with the reason that the stream ended

    async def _listen(self, queue: asyncio.Queue[DomainEvent | None]) -> None:
        try:
            while (event := await queue.get()) is not None:
                await self._handle(event)
        finally:
            self.connection.unsubscribe(queue)
            self.waits.wake_all()
            for listener in self._listeners:
                listener.put_nowait(None)

    async def _handle(self, event: DomainEvent) -> None:
        identity = self.domains.identity(event.uuid)
        kind = EventKind.CHANGED
        if event.kind == "lifecycle":
            kind = _EVENTS.get(event.event, EventKind.CHANGED)
            if kind is EventKind.STOPPED:
                self.waits.wake(event.uuid, "stopped")
        with contextlib.suppress(KubeletxError):  # the next query stores it
            await self.domains.note(event)
            await self.resizes.note(event)
            if event.kind == "lifecycle" and event.event == libvirt.VIR_DOMAIN_EVENT_SUSPENDED:
                domain = await self.domains.find(UnitId(event.uuid))
                self.units.end_crashed_guests({UnitId(event.uuid): domain} if domain is not None else {})
        if event.kind in ("reboot", "device-removed"):  # a reboot has been counted then
            self.waits.wake(event.uuid, event.kind)
        if event.kind == "agent" and event.event == _DISCONNECTED:
            self.waits.wake(event.uuid, "agent-gone")
        if identity is not None and event.kind == "agent" and event.event == _CONNECTED:
            self._boots.look(UnitId(event.uuid))
        if identity is None:
            return
        for listener in self._listeners:
            listener.put_nowait(
                RuntimeEvent(
                    kind=kind,
                    uid=identity.uid,
                    sandbox_id=identity.sandbox_id,
                    unit_id=UnitId(event.uuid),
                    at_ns=now_ns(self.host),
                )
            )

    async def _on_late_boot(self, unit_id: UnitId) -> None:
        await self._handle(DomainEvent(unit_id, "reboot"))

    async def _look_at_boots(self) -> None:
        for unit_id, domain in (await self.domains.all()).items():
            if domain.state == libvirt.VIR_DOMAIN_RUNNING:
                self._boots.look(unit_id)
                with contextlib.suppress(KubeletxError):  # a later event or start measures it
                    await self.resizes.catch_up(unit_id)

    # --- private ---

    async def _power_off(self, sandbox_id: SandboxId) -> None:
        for unit_id in await self._units_of(sandbox_id):
            await self.power.forget_reboot(unit_id)
            await self.units.stop(unit_id, 0)

    async def _adopt(self) -> None:
        """Rebuild lost records from the domains, and remove the files of domains and pods that no longer exist."""
        all_found = await self.domains.all()
        self.units.end_crashed_guests(all_found)
        for unit_id, domain in all_found.items():
            await self.domains.confirm(unit_id, domain)
        await self.sandboxes.adopt(domain.identity for domain in all_found.values())
        for unit_id in await self.records.list_unit_directories():
            if unit_id not in all_found:  # left by a crash between two steps, or a removal by another client
                with contextlib.suppress(KubeletxError):  # the next `open` tries again
                    await self.units.sweep(unit_id)
        await self.sandboxes.repair_links()

    async def _units_of(self, sandbox_id: SandboxId) -> list[UnitId]:
        domains = await self.domains.all()
        return [unit_id for unit_id, domain in domains.items() if domain.identity.sandbox_id == sandbox_id]

    def _recorded_units_of(self, sandbox_id: SandboxId) -> list[UnitId]:
        """Return the units of the sandbox that have a record, whether their domains exist or not."""
        agent_id, runtime = self.host.agent_id, self.endpoint.name
        return [
            unit_id
            for unit_id, record in self.records.units.items()
            if unit_id == domain_uuid(agent_id, runtime, sandbox_id, record.spec.name, record.spec.attempt)
        ]


def _versions(handle: libvirt.virConnect) -> tuple[int, int]:
    return handle.getLibVersion(), handle.getVersion()


def _dotted(number: int) -> str:
    return f"{number // 1_000_000}.{number // 1000 % 1000}.{number % 1000}"
