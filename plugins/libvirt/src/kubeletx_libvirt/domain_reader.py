"""Reads the domains of this runtime and their states, with one libvirt call for all of them.

A domain's identity is read from its metadata once and cached, since only this agent writes it. A domain that
has no such metadata, or belongs to another agent or another runtime, is treated as absent by every call.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

import libvirt
import msgspec

from kubeletx.api import Conflict, Host, KubeletxError, NotFound, UnitId, UnitState, UnitStatus, UnitSummary
from kubeletx.api.names import START_CUT_OFF
from kubeletx_libvirt.client import Connection, DomainEvent
from kubeletx_libvirt.domain.metadata import NAMESPACE, Identity, read_metadata
from kubeletx_libvirt.domain.states import (
    CRASHED,
    DISK_ERROR,
    PANICKED,
    UNKNOWN_END,
    WATCHDOG,
    disk_hold,
    end_of,
    held_reason,
    unit_state,
)
from kubeletx_libvirt.errors import code_of
from kubeletx_libvirt.records import Records, Run

_SAME_REBOOT_SECONDS = 2.0
_SAME_REBOOT_BUSY_SECONDS = 60.0
_SAME_REBOOT_CPU_SECONDS = 0.5


class UnitDomain(NamedTuple):
    """One domain of this runtime. `state` and `reason`: libvirt's numbers for its state."""

    identity: Identity
    state: int
    reason: int


class DomainReader:
    """Queries the domains of one runtime and reports them as units: lists, statuses, and how each run ended."""

    def __init__(self, connection: Connection, records: Records, host: Host, runtime: str) -> None:
        """`runtime`: name of the runtime, as in the metadata of its domains."""
        self._connection = connection
        self._records = records
        self._host = host
        self._runtime = runtime
        self._known: dict[str, Identity | None] = {}
        self._reboots: dict[UnitId, tuple[float, float]] = {}
        """Monotonic time, and CPU seconds of the emulator, at the last counted reboot of a machine."""
        self.starting: set[UnitId] = set()
        """Units that this process is starting now."""

    def learn(self, unit_id: UnitId, identity: Identity) -> None:
        self._known[unit_id] = identity

    def forget(self, unit_id: UnitId) -> None:
        self._known.pop(unit_id, None)
        self._reboots.pop(unit_id, None)

    def reset(self) -> None:
        """Clear the cache of identities. Called after a reconnection."""
        self._known.clear()

    def is_ours(self, identity: Identity | None) -> bool:
        return (
            identity is not None
            and identity.agent_id == self._host.agent_id
            and identity.runtime == self._runtime
        )

    async def all(self) -> dict[UnitId, UnitDomain]:
        """Return all domains of this runtime.

        Identities that a concurrent call has cached are kept, so that two calls do not hide a new domain from
        each other.
        """
        known = frozenset(self._known)
        states, read = await self._connection.use(_read_all, known)
        self._known.update(read)
        for gone in known - states.keys():
            self._known.pop(gone, None)
        domains: dict[UnitId, UnitDomain] = {}
        for uuid, (state, reason) in states.items():
            identity = self._known.get(uuid)
            if identity is not None and self.is_ours(identity):
                domains[UnitId(uuid)] = UnitDomain(identity, state, reason)
        return domains

    async def find(self, unit_id: UnitId) -> UnitDomain | None:
        """Return one domain; None if it does not exist, or belongs to another agent or runtime."""
        is_known = unit_id in self._known
        answer = await self._connection.use(_read_one, unit_id, is_known)
        if answer is None:
            if is_known:
                self._known.pop(unit_id, None)
            return None
        state, reason, read = answer
        if not is_known:
            self._known[unit_id] = read
        identity = self._known.get(unit_id)
        return (
            UnitDomain(identity, state, reason) if identity is not None and self.is_ours(identity) else None
        )

    async def get(self, unit_id: UnitId) -> UnitDomain:
        domain = await self.find(unit_id)
        if domain is None:
            raise NotFound(f"machine {unit_id} does not exist")
        return domain

    def identity(self, unit_id: str) -> Identity | None:
        """Return the cached identity of a domain; None if it has not been read, or is of another agent or runtime."""
        identity = self._known.get(unit_id)
        return identity if self.is_ours(identity) else None

    def has_seen(self, uuid: str) -> bool:
        """Return True if the domain's identity has been read, even if it belongs to another agent or runtime."""
        return uuid in self._known

    def state(self, unit_id: UnitId, domain: UnitDomain) -> UnitState:
        """Return the unit's state, computed from libvirt's state and the record of the unit's start."""
        run = self._records.run_of(unit_id)
        has_run = run.started_at_ns > 0
        was_started = has_run or (run.is_starting and unit_id not in self.starting)
        return unit_state(domain.state, domain.reason, was_started=was_started, has_run=has_run)

    def summary(self, unit_id: UnitId, domain: UnitDomain) -> UnitSummary:
        """Convert a domain to an entry of the unit list.

        Reads only memory: the cached identity and the stored records.
        """
        identity = domain.identity
        return UnitSummary(
            id=unit_id,
            sandbox_id=identity.sandbox_id,
            uid=identity.uid,
            name=identity.unit,
            attempt=identity.attempt,
            state=self.state(unit_id, domain),
            created_at_ns=identity.created_at_ns,
            image=identity.image,
            image_id=identity.image_ref,
            labels=identity.labels,
            annotations=identity.annotations,
        )

    def summaries(self, domains: Mapping[UnitId, UnitDomain], match: Mapping[str, str]) -> list[UnitSummary]:
        """Return the summaries of the units whose labels contain every pair of `match`."""
        return [
            self.summary(unit_id, domain)
            for unit_id, domain in domains.items()
            if match.items() <= domain.identity.labels.items()
        ]

    async def status(self, unit_id: UnitId) -> UnitStatus:
        """Return the status of a unit. Raises NotFound.

        The first call after the machine's end stores how it ended.
        """
        domain = await self.get(unit_id)
        summary = self.summary(unit_id, domain)
        run = await self.confirm(unit_id, domain)
        if summary.state is UnitState.EXITED:
            run = await self.settle(unit_id, domain)
        info = {"libvirtState": f"{domain.state}/{domain.reason}"}
        reason = run.reason
        message = "" if summary.state.is_alive else run.message
        if summary.state is UnitState.PAUSED:
            reason = held_reason(domain.state, domain.reason)
            if reason == DISK_ERROR:
                reason, message = disk_hold(await self._disk_errors(unit_id))
        record = self._records.units.get(unit_id)
        is_alive = summary.state.is_alive
        return UnitStatus(
            summary=summary,
            started_at_ns=run.started_at_ns or (summary.created_at_ns if is_alive else 0),
            finished_at_ns=0 if is_alive else run.finished_at_ns,
            since_ns=run.since_ns,
            exit_code=None if is_alive else run.exit_code,
            reason=reason if summary.state in (UnitState.EXITED, UnitState.PAUSED) else "",
            message=message,
            log_path=domain.identity.log_path,
            image_ref=domain.identity.image_ref,
            restarts=run.restarts,
            resources=record.resources if record is not None else {},
            info=info,
        )

    async def _disk_errors(self, unit_id: UnitId) -> dict[str, int]:
        with contextlib.suppress(KubeletxError):  # the machine may have continued just now
            return await self._connection.use(_read_disk_errors, unit_id)
        return {}

    async def confirm(self, unit_id: UnitId, domain: UnitDomain) -> Run:
        """Return the stored `Run` of the unit.

        If the machine is on and its start is not confirmed yet, the start is stored as confirmed. If it is on without a
        stored start, or after a stored end, the answer to its start was lost, and a start at this time is stored.
        """
        run = self._records.run_of(unit_id)
        if not self._is_on(unit_id, domain):
            return run
        if run.is_starting:
            run = msgspec.structs.replace(
                run, is_starting=False, started_at_ns=run.since_ns or now_ns(self._host)
            )
            await self._records.save_run(unit_id, run)
        elif not run.started_at_ns or run.finished_at_ns:
            again = await self.find(unit_id)  # `domain` may have been read before the end was stored
            if again is not None and self._is_on(unit_id, again) and run == self._records.run_of(unit_id):
                now = now_ns(self._host)
                run = Run(started_at_ns=now, since_ns=now, restarts=run.restarts)
                await self._records.save_run(unit_id, run)
        return self._records.run_of(unit_id)

    def _is_on(self, unit_id: UnitId, domain: UnitDomain) -> bool:
        """Return True if the machine is on, and this process is not starting it now."""
        is_on = self.state(unit_id, domain) in (UnitState.RUNNING, UnitState.PAUSED)
        return is_on and unit_id not in self.starting

    async def settle(self, unit_id: UnitId, domain: UnitDomain) -> Run:
        """Return the stored `Run` of a machine that is off; the first call stores when and how it ended.

        A later call that knows how it ended corrects an unknown end: the event of a suspension may come only when the
        saved memory is discarded already.
        """
        run = self._records.run_of(unit_id)
        cut_off = run.is_starting and run.started_at_ns == 0
        end = end_of(domain.reason, cut_off=cut_off, hint=run.hint)
        if run.finished_at_ns and (run.exit_code != UNKNOWN_END or end.exit_code == UNKNOWN_END):
            return run
        now = now_ns(self._host)
        never_ran = end.reason == START_CUT_OFF
        started_at_ns = 0 if never_ran else run.started_at_ns or run.since_ns
        run = msgspec.structs.replace(
            run,
            is_starting=False,
            started_at_ns=started_at_ns,
            finished_at_ns=max(now, started_at_ns),
            since_ns=now,
            exit_code=None if never_ran else end.exit_code,
            reason=end.reason,
            message=end.message,
        )
        await self._records.save_run(unit_id, run)
        return run

    async def hint(self, unit_id: UnitId, hint: str) -> None:
        """Store an event of the guest that explains its end, such as GuestPanicked.

        If the end was stored before the event arrived, its reason is corrected.
        """
        run = msgspec.structs.replace(self._records.run_of(unit_id), hint=hint)
        if run.finished_at_ns and run.reason == CRASHED:
            end = end_of(libvirt.VIR_DOMAIN_SHUTOFF_CRASHED, hint=hint)
            run = msgspec.structs.replace(run, reason=end.reason, message=end.message)
        await self._records.save_run(unit_id, run)

    async def note(self, event: DomainEvent) -> None:
        """Store what only this event shows and cannot be read from libvirt later.

        That is a reboot, a panic, a watchdog, or the time of a change or of the machine's end.
        """
        unit_id = UnitId(event.uuid)
        if self.identity(unit_id) is None:
            return
        if event.kind == "reboot":
            is_new = await self._is_new_reboot(unit_id)
            run = self._records.run_of(unit_id)
            if is_new:
                run = msgspec.structs.replace(run, restarts=run.restarts + 1, boot_id="")
                await self._records.save_run(unit_id, run)
            return
        run = self._records.run_of(unit_id)
        if event.kind == "watchdog":
            await self.hint(unit_id, WATCHDOG)
        elif event.kind == "lifecycle" and event.event == libvirt.VIR_DOMAIN_EVENT_CRASHED:
            panicked = event.detail == libvirt.VIR_DOMAIN_EVENT_CRASHED_PANICKED
            await self.hint(unit_id, PANICKED if panicked else CRASHED)
        elif event.kind == "lifecycle" and event.event in (
            libvirt.VIR_DOMAIN_EVENT_SUSPENDED,
            libvirt.VIR_DOMAIN_EVENT_RESUMED,
            libvirt.VIR_DOMAIN_EVENT_PMSUSPENDED,
        ):
            await self._records.save_run(unit_id, msgspec.structs.replace(run, since_ns=now_ns(self._host)))
        elif event.kind == "lifecycle" and event.event == libvirt.VIR_DOMAIN_EVENT_STOPPED:
            with contextlib.suppress(NotFound):
                domain = await self.get(unit_id)
                if self.state(unit_id, domain) is UnitState.EXITED:
                    await self.settle(unit_id, domain)

    async def _is_new_reboot(self, unit_id: UnitId) -> bool:
        """Return False for a reset that belongs to the reboot before it.

        One reboot resets a machine up to three times: libvirt for the power button, the guest, and its firmware (SeaBIOS,
        after 40 ms of CPU). On a busy node that takes seconds, so the CPU time of the emulator tells, too.
        """
        try:
            cpu = await self._connection.use(_read_cpu_seconds, unit_id)
        except KubeletxError:
            cpu = float("inf")
        now = self._host.clock.monotonic()
        last_at, last_cpu = self._reboots.get(unit_id, (float("-inf"), 0.0))
        since, busy = now - last_at, cpu - last_cpu
        if since < _SAME_REBOOT_SECONDS or (
            since < _SAME_REBOOT_BUSY_SECONDS and 0 <= busy < _SAME_REBOOT_CPU_SECONDS
        ):
            return False
        self._reboots[unit_id] = now, cpu
        return True


class EventWaits:
    """Lets calls wait for the next event of a kind about a machine: stopped, reboot, agent-gone or device-removed."""

    def __init__(self) -> None:
        self._waiting: dict[tuple[str, str], set[asyncio.Event]] = {}

    @contextlib.contextmanager
    def expect(self, unit_id: UnitId, kind: str) -> Iterator[asyncio.Event]:
        """Context manager: yields an `asyncio.Event` that `wake` for this machine and kind, and `wake_all`, set."""
        event = asyncio.Event()
        waiting = self._waiting.setdefault((unit_id, kind), set())
        waiting.add(event)
        try:
            yield event
        finally:
            waiting.discard(event)
            if not waiting:
                self._waiting.pop((unit_id, kind), None)

    def wake(self, unit_id: str, kind: str) -> None:
        """Set the events of all calls that wait for this."""
        for event in self._waiting.get((unit_id, kind), ()):
            event.set()

    def wake_all(self) -> None:
        """Set the events of all waiting calls. Called when the connection ends and no events will follow.

        The calls then read the state themselves.
        """
        for waiting in self._waiting.values():
            for event in waiting:
                event.set()


async def get_on(
    domains: DomainReader,
    unit_id: UnitId,
    without: str,
    states: Collection[UnitState] = (UnitState.RUNNING, UnitState.PAUSED),
) -> UnitDomain:
    """Return a domain that is on. Raises NotFound, and Conflict if its state is none of `states`.

    `without`: what a machine lacks that is off, as the end of the message.
    """
    domain = await domains.get(unit_id)
    state = domains.state(unit_id, domain)
    if state not in states:
        name = f"{domain.identity.namespace}/{domain.identity.pod}"
        raise Conflict(f"machine {name} is {state.value}, not running: {without}")
    return domain


def now_ns(host: Host) -> int:
    """Return the wall-clock time in nanoseconds since the epoch."""
    return int(host.clock.now().timestamp() * 1_000_000_000)


def read_definition(handle: libvirt.virConnect, uuid: str, inactive: bool = False) -> str:
    """Return the domain's XML: of the running machine, or with `inactive` that for the next start."""
    flags = libvirt.VIR_DOMAIN_XML_INACTIVE if inactive else 0
    return str(handle.lookupByUUIDString(uuid).XMLDesc(flags))


def _read_all(
    handle: libvirt.virConnect, known: frozenset[str]
) -> tuple[dict[str, tuple[int, int]], dict[str, Identity | None]]:
    states: dict[str, tuple[int, int]] = {}
    read: dict[str, Identity | None] = {}
    for domain, figures in handle.getAllDomainStats(libvirt.VIR_DOMAIN_STATS_STATE, 0):
        uuid = domain.UUIDString()
        state, reason = figures.get("state.state", 0), figures.get("state.reason", 0)
        states[uuid] = (state, _true_reason(domain, state, reason))
        if uuid not in known:
            read[uuid] = _read_identity(domain)
    return states, read


def _read_one(
    handle: libvirt.virConnect, uuid: str, is_known: bool
) -> tuple[int, int, Identity | None] | None:
    try:
        domain = handle.lookupByUUIDString(uuid)
        state, reason = domain.state()
    except libvirt.libvirtError as error:
        if code_of(error) in (libvirt.VIR_ERR_NO_DOMAIN, libvirt.VIR_ERR_INVALID_ARG):
            return None
        raise
    reason = _true_reason(domain, state, reason)
    return state, reason, None if is_known else _read_identity(domain)


def _read_cpu_seconds(handle: libvirt.virConnect, uuid: str) -> float:
    return float(handle.lookupByUUIDString(uuid).info()[4]) / 1e9


def _read_disk_errors(handle: libvirt.virConnect, uuid: str) -> dict[str, int]:
    errors: dict[str, int] = handle.lookupByUUIDString(uuid).diskErrors(0)
    return errors


def _true_reason(domain: libvirt.virDomain, state: int, reason: int) -> int:
    """Return libvirt's reason for a state, corrected for domains that are off.

    For these it is SAVED only if the domain has saved memory: libvirt forgets the reason when it restarts,
    and keeps "saved" after the saved memory is removed.
    """
    saved, unknown = libvirt.VIR_DOMAIN_SHUTOFF_SAVED, libvirt.VIR_DOMAIN_SHUTOFF_UNKNOWN
    if state != libvirt.VIR_DOMAIN_SHUTOFF or reason not in (saved, unknown):
        return reason
    try:
        return int(saved if domain.hasManagedSaveImage(0) else unknown)
    except libvirt.libvirtError:  # an old test driver, or the domain was just removed
        return reason


def _read_identity(domain: libvirt.virDomain) -> Identity | None:
    try:
        text = domain.metadata(
            libvirt.VIR_DOMAIN_METADATA_ELEMENT, NAMESPACE, libvirt.VIR_DOMAIN_AFFECT_CONFIG
        )
    except libvirt.libvirtError as error:
        if code_of(error) in (
            libvirt.VIR_ERR_NO_DOMAIN_METADATA,
            libvirt.VIR_ERR_NO_DOMAIN,
            libvirt.VIR_ERR_OPERATION_INVALID,  # a transient domain: not ours
        ):
            return None
        raise
    return read_metadata(text)
