"""Operations that change a machine's power state (`SupportsMachine`), and standby (`SupportsStandby`).

| verb | from | to |
|---|---|---|
| pause, freeze | running | paused: the vCPUs stop, the emulator keeps the memory |
| suspend, hibernate | running, paused | suspended: libvirt saves the memory, the emulator ends |
| resume, thaw | paused, suspended | running |
| power_off | every state | exited (created remains created); the disk is kept |
| reboot | running | running, in the same domain, counted by libvirt's reboot event |

Every operation may be repeated. libvirt knows which machines are suspended, so they are found again after a
restart of the agent or of libvirt. The time of a delayed reboot is stored. After a restart of the agent the
reboot is done at that time, or at once if the time has passed, unless the machine was switched off meanwhile.
"""

from __future__ import annotations

import asyncio
import math
from typing import NoReturn

import libvirt
import msgspec
import structlog

from kubeletx.api import (
    Clock,
    Conflict,
    KubeletxError,
    SystemClock,
    UnitId,
    UnitState,
    Unsupported,
    sleep_or,
)
from kubeletx_libvirt.domain.devices import forbids_saved_memory
from kubeletx_libvirt.domain_reader import UnitDomain, now_ns, read_definition
from kubeletx_libvirt.machinery import Machinery, Part
from kubeletx_libvirt.units import Units, ask_again_seconds, call_guest_agent, pause_domain, resume_domain

log = structlog.get_logger(__name__)

REBOOT_SECONDS = 15.0
"""Seconds from the first request until a guest that has not rebooted (it is booting, hangs or ignores it) is reset."""
ORDERLY_SECONDS = 90.0
"""The same for a guest whose agent has disconnected, since it shuts down. The host's deadline of the call is 120 s."""
RESET_SECONDS = 10.0
_AGENT_REBOOT = '{"execute":"guest-shutdown","arguments":{"mode":"reboot"}}'


class Power(Part):
    """Pauses, resumes, suspends, reboots and powers off the machines of one runtime.

    Implements `SupportsMachine` and `SupportsStandby`, whose calls change a machine in the same way.
    """

    def __init__(self, machinery: Machinery, units: Units, *, clock: Clock | None = None) -> None:
        """`clock`: for waits for guests, which run in real time also if the host's clock does not; None: the system's."""
        super().__init__(machinery)
        self._clock = clock or SystemClock()
        self._units = units
        self._delayed: dict[UnitId, asyncio.Task[None]] = {}

    async def open(self) -> None:
        """Schedule the delayed reboots that were pending when the last agent process ended."""
        for unit_id, run in list(self._records.runs.items()):
            if run.reboot_at_ns and unit_id not in self._delayed:
                self._plan_reboot(unit_id, run.reboot_at_ns)

    async def close(self) -> None:
        """Cancel the tasks of delayed reboots. Their times remain stored for the next `open`."""
        delayed, self._delayed = self._delayed, {}
        for task in delayed.values():
            task.cancel()
        await asyncio.gather(*delayed.values(), return_exceptions=True)

    async def pause(self, unit_id: UnitId) -> None:
        async with self._units.alone(unit_id):
            state, domain = await self._look(unit_id)
            if state is UnitState.PAUSED:
                return
            if state is not UnitState.RUNNING:
                _refuse(domain, state)
            await self._connection.use(pause_domain, unit_id)
            await self._since_now(unit_id)

    async def resume(self, unit_id: UnitId) -> None:
        state, domain = await self._look(unit_id)
        if state is UnitState.SUSPENDED:
            await self._units.start(unit_id)
        async with self._units.alone(unit_id):
            state, domain = await self._look(unit_id)
            if state is UnitState.RUNNING:
                return
            if state is not UnitState.PAUSED:
                _refuse(domain, state)
            await self._connection.use(resume_domain, unit_id)
            await self._since_now(unit_id)

    async def suspend(self, unit_id: UnitId) -> None:
        """Save the machine's memory and end the emulator; succeeds if the machine is suspended already.

        Raises Unsupported for a machine with shared directories, Conflict for a machine that is off.
        """
        async with self._units.alone(unit_id):
            state, domain = await self._look(unit_id)
            if state is UnitState.SUSPENDED:
                return
            if state not in (UnitState.RUNNING, UnitState.PAUSED):
                _refuse(domain, state)
            await self._refuse_shares(unit_id, domain)
            await self._connection.use(_save, unit_id)
            await self._since_now(unit_id)

    freeze, thaw, hibernate = pause, resume, suspend

    async def power_off(self, unit_id: UnitId, grace_seconds: float) -> None:
        """Request a shutdown, wait at most `grace_seconds`, then switch the machine off.

        A suspended machine is restored before the request. A delayed reboot is cancelled. Raises NotFound.
        """
        await self._domains.get(unit_id)
        await self.forget_reboot(unit_id)
        await self._units.stop(unit_id, grace_seconds)

    async def reboot(self, unit_id: UnitId, delay_seconds: float) -> None:
        """Reboot the guest, now or after a delay.

        Without a delay, returns once the guest has rebooted or was reset. With a delay, returns once the
        request is stored. Raises Conflict for a machine that does not run.
        """
        if delay_seconds <= 0:
            await self._reboot(unit_id)
            return
        state, domain = await self._look(unit_id)
        if state is not UnitState.RUNNING:
            _refuse(domain, state)
        at_ns = now_ns(self._host) + int(delay_seconds * 1e9)
        run = self._records.run_of(unit_id)
        await self._records.save_run(unit_id, msgspec.structs.replace(run, reboot_at_ns=at_ns))
        self._plan_reboot(unit_id, at_ns)

    async def forget_reboot(self, unit_id: UnitId) -> None:
        """Cancel the machine's delayed reboot, if there is one.

        Called before the machine is switched off or removed.
        """
        if (task := self._delayed.pop(unit_id, None)) is not None:
            task.cancel()
        run = self._records.run_of(unit_id)
        if run.reboot_at_ns:
            await self._records.save_run(unit_id, msgspec.structs.replace(run, reboot_at_ns=0))

    # --- private ---

    async def _look(self, unit_id: UnitId) -> tuple[UnitState, UnitDomain]:
        domain = await self._domains.get(unit_id)
        return self._domains.state(unit_id, domain), domain

    async def _since_now(self, unit_id: UnitId) -> None:
        run = self._records.run_of(unit_id)
        await self._records.save_run(unit_id, msgspec.structs.replace(run, since_ns=now_ns(self._host)))

    async def _refuse_shares(self, unit_id: UnitId, domain: UnitDomain) -> None:
        why = forbids_saved_memory(await self._connection.use(read_definition, unit_id))
        if why is not None:
            who = f"machine {domain.identity.namespace}/{domain.identity.pod}"
            raise Unsupported(f"{who} cannot be saved: {why}; pause it or switch it off")

    def _plan_reboot(self, unit_id: UnitId, at_ns: int) -> None:
        if (old := self._delayed.pop(unit_id, None)) is not None:
            old.cancel()
        self._delayed[unit_id] = asyncio.create_task(
            self._reboot_at(unit_id, at_ns), name=f"libvirt-reboot-{unit_id}"
        )

    async def _reboot_at(self, unit_id: UnitId, at_ns: int) -> None:
        await self._host.clock.sleep(max(0.0, (at_ns - now_ns(self._host)) / 1e9))
        self._delayed.pop(unit_id, None)
        if self._records.run_of(unit_id).reboot_at_ns != at_ns:
            return  # it was switched off meanwhile
        await self.forget_reboot(unit_id)
        try:
            await self._reboot(unit_id)
        except KubeletxError as error:  # no caller waits for the error
            log.warning("Failed to reboot", unit=unit_id, err=str(error))

    async def _reboot(self, unit_id: UnitId) -> None:
        async with self._units.alone(unit_id):
            state, domain = await self._look(unit_id)
            if state is not UnitState.RUNNING:
                _refuse(domain, state)
            with (
                self._waits.expect(unit_id, "reboot") as heard,
                self._waits.expect(unit_id, "agent-gone") as obeys,
            ):
                if not await self._ask_until(unit_id, heard, obeys):
                    await self._connection.use(_reset, unit_id)
                    await sleep_or(self._clock, RESET_SECONDS, heard)  # it is reset; only the event is late

    async def _ask_until(self, unit_id: UnitId, heard: asyncio.Event, obeys: asyncio.Event) -> bool:
        """Request the reboot repeatedly. Returns False if the guest has not rebooted in its time."""
        through_agent = True
        first_at = math.inf
        for pause in ask_again_seconds():
            await self._connection.use(_ask_to_reboot, unit_id, through_agent)
            through_agent = not through_agent
            first_at = min(first_at, self._clock.monotonic())
            if await sleep_or(self._clock, pause, heard):
                break
            limit = ORDERLY_SECONDS if obeys.is_set() else REBOOT_SECONDS
            if self._clock.monotonic() - first_at >= limit:
                break
        return heard.is_set()


def _refuse(domain: UnitDomain, state: UnitState) -> NoReturn:
    who = f"machine {domain.identity.namespace}/{domain.identity.pod}"
    is_, fix = {
        UnitState.PAUSED: ("paused", "resume it first"),
        UnitState.SUSPENDED: ("suspended", "resume it first"),
        UnitState.CREATED: ("not started yet", "start it first"),
        UnitState.EXITED: ("off", "start it first"),
    }.get(state, (state.value, "look again"))
    raise Conflict(f"{who} is {is_}; {fix}")


# --- on the host's threads ---


def _save(handle: libvirt.virConnect, uuid: str) -> None:
    handle.lookupByUUIDString(uuid).managedSave(0)


def _reset(handle: libvirt.virConnect, uuid: str) -> None:
    handle.lookupByUUIDString(uuid).reset(0)


def _ask_to_reboot(handle: libvirt.virConnect, uuid: str, through_agent: bool) -> None:
    domain = handle.lookupByUUIDString(uuid)
    if through_agent and call_guest_agent(domain, _AGENT_REBOOT):
        return
    domain.reboot(libvirt.VIR_DOMAIN_REBOOT_ACPI_POWER_BTN)
