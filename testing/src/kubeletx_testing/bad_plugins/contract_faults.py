"""Runtimes that break one sentence of the contract each; the contract suite fails on each of them.

They are fakes in memory (`SuiteFakeRuntime`), so a test of the suite takes a moment. The docstring of a class is the fault.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence

import msgspec

from kubeletx.api import (
    ExecResult,
    RuntimeEvent,
    SandboxId,
    SandboxSpec,
    SupportsCriPassthrough,
    TimedOut,
    Unavailable,
    UnitId,
    UnitSpec,
    UnitState,
    UnitStats,
    UnitStatus,
)

from ..suite_fake import SuiteFakeRuntime


class BlockingStatus(SuiteFakeRuntime):
    """Runtime whose `unit_status` blocks the event loop."""

    async def unit_status(self, unit_id: UnitId) -> UnitStatus:
        """Sleep without `await`."""
        time.sleep(1000)  # noqa: ASYNC251 (the fault)
        return await super().unit_status(unit_id)


class NoGrace(SuiteFakeRuntime):
    """Runtime whose `stop_unit` kills at once, whatever the grace period is."""

    async def stop_unit(self, unit_id: UnitId, grace_seconds: float) -> None:
        """Stop with grace 0."""
        await super().stop_unit(unit_id, 0)


class FixedSignal(SuiteFakeRuntime):
    """Runtime whose `create_unit` loses the stop signal of the spec."""

    async def create_unit(self, sandbox_id: SandboxId, spec: UnitSpec, sandbox: SandboxSpec) -> UnitId:
        """Create the unit without its stop signal."""
        return await super().create_unit(sandbox_id, changed(spec, stop_signal=""), sandbox)


class LostArguments(SuiteFakeRuntime):
    """Runtime whose `create_unit` loses the arguments and the working directory of the spec."""

    async def create_unit(self, sandbox_id: SandboxId, spec: UnitSpec, sandbox: SandboxSpec) -> UnitId:
        """Create the unit with its command alone."""
        return await super().create_unit(sandbox_id, changed(spec, args=(), working_dir=""), sandbox)


class LeftUnits(SuiteFakeRuntime):
    """Runtime whose `stop_sandbox` does not stop the units."""

    async def stop_sandbox(self, sandbox_id: SandboxId) -> None:
        """Do nothing."""


class LeakedCommand(SuiteFakeRuntime):
    """Runtime whose `exec_sync` raises TimedOut, and the command runs on."""

    async def exec_sync(self, unit_id: UnitId, command: Sequence[str], timeout_seconds: float) -> ExecResult:
        """Run the command; note after a time-out that it still runs."""
        try:
            return await super().exec_sync(unit_id, command, timeout_seconds)
        except TimedOut:
            self.commands.running.add(unit_id)
            raise


class CommandInDeadUnit(SuiteFakeRuntime):
    """Runtime whose `exec_sync` reports success for a unit that has ended."""

    async def exec_sync(self, unit_id: UnitId, command: Sequence[str], timeout_seconds: float) -> ExecResult:
        """Return exit code 0 unless the unit runs."""
        if not (await self.unit_status(unit_id)).summary.state.is_alive:
            return ExecResult(stdout=b"", stderr=b"", exit_code=0)
        return await super().exec_sync(unit_id, command, timeout_seconds)


class MissingMethod(SuiteFakeRuntime):
    """Runtime that declares a capability whose methods it does not have."""

    def __init__(self) -> None:
        """Declare `SupportsCriPassthrough`."""
        super().__init__()
        self.capabilities.add(SupportsCriPassthrough)


class DifferentStatus(SuiteFakeRuntime):
    """Runtime whose `unit_status` and `list_units` report different states."""

    async def unit_status(self, unit_id: UnitId) -> UnitStatus:
        """Report RUNNING for a unit that was not started."""
        status = await super().unit_status(unit_id)
        if status.summary.state is not UnitState.CREATED:
            return status
        summary = msgspec.structs.replace(status.summary, state=UnitState.RUNNING)
        return msgspec.structs.replace(status, summary=summary)


class SilentAfterRestart(SuiteFakeRuntime):
    """Runtime whose `events` reports only units that this object has started, so none after a restart of the agent."""

    async def start_unit(self, unit_id: UnitId) -> None:
        """Start the unit and remember it."""
        self.__dict__.setdefault("started", set()).add(unit_id)
        await super().start_unit(unit_id)

    async def events(self) -> AsyncIterator[RuntimeEvent]:
        """Yield the events of remembered units."""
        async for event in super().events():
            if event.unit_id in self.__dict__.get("started", ()):
                yield event


class ConstantStats(SuiteFakeRuntime):
    """Runtime whose `list_unit_stats` returns the same figures for ever."""

    async def list_unit_stats(self, match: Mapping[str, str]) -> Sequence[UnitStats]:
        """Return constant CPU figures."""
        stats = await super().list_unit_stats(match)
        return [msgspec.structs.replace(entry, cpu_usage_core_ns=1) for entry in stats]


class MeasuresEnded(SuiteFakeRuntime):
    """Runtime whose `list_unit_stats` reports usage 0 for units that do not run."""

    async def list_unit_stats(self, match: Mapping[str, str]) -> Sequence[UnitStats]:
        """Return figures of 0 for units that the fake leaves out."""
        stats = list(await super().list_unit_stats(match))
        seen = {entry.id for entry in stats}
        for unit in await self.list_units(match):
            if unit.id not in seen:
                zero = UnitStats(id=unit.id, uid=unit.uid, name=unit.name, at_ns=1)
                stats.append(msgspec.structs.replace(zero, cpu_usage_core_ns=0, memory_working_set_bytes=0))
        return stats


class PoliteSandbox(SuiteFakeRuntime):
    """Runtime whose `stop_sandbox` stops the units with a grace period."""

    async def stop_sandbox(self, sandbox_id: SandboxId) -> None:
        """Stop each unit with 5 s of grace first."""
        for unit in await self.list_units({}):
            if unit.sandbox_id == sandbox_id:
                await self.stop_unit(unit.id, 5)
        await super().stop_sandbox(sandbox_id)


class HangingStop(SuiteFakeRuntime):
    """Runtime whose `stop_unit` waits for the whole grace period, even if the unit has ended before."""

    async def stop_unit(self, unit_id: UnitId, grace_seconds: float) -> None:
        """Stop the unit, and wait without end."""
        await super().stop_unit(unit_id, grace_seconds)
        await asyncio.Event().wait()


class KibibyteStats(SuiteFakeRuntime):
    """Runtime whose `list_unit_stats` reports memory in KiB."""

    async def list_unit_stats(self, match: Mapping[str, str]) -> Sequence[UnitStats]:
        """Return the memory figures in another unit than the contract's."""
        return [
            msgspec.structs.replace(
                entry, memory_working_set_bytes=(entry.memory_working_set_bytes or 0) // 1024
            )
            for entry in await super().list_unit_stats(match)
        ]


class SignedExitCodes(SuiteFakeRuntime):
    """Runtime whose `unit_status` reports exit codes above 127 as signals."""

    async def unit_status(self, unit_id: UnitId) -> UnitStatus:
        """Return 137 for every exit code above 127."""
        status = await super().unit_status(unit_id)
        return msgspec.structs.replace(status, exit_code=137) if (status.exit_code or 0) > 127 else status


class FirstVariables(SuiteFakeRuntime):
    """Runtime whose `create_unit` keeps the first of two variables of one name."""

    async def create_unit(self, sandbox_id: SandboxId, spec: UnitSpec, sandbox: SandboxSpec) -> UnitId:
        """Create the unit with the first value of each variable."""
        first = {variable.name: variable for variable in reversed(spec.environment)}
        spec = msgspec.structs.replace(spec, environment=tuple(first.values()))
        return await super().create_unit(sandbox_id, spec, sandbox)


class NeverOpens(SuiteFakeRuntime):
    """Runtime whose `open` always raises."""

    async def open(self) -> None:
        """Raise Unavailable."""
        raise Unavailable("no answer from bad://")


def changed(spec: UnitSpec, **fields: object) -> UnitSpec:
    """Return `spec` with other fields of its process."""
    return msgspec.structs.replace(spec, detail=msgspec.structs.replace(spec.detail, **fields))
