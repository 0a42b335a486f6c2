"""`QuarkRuntime`: a runtime over containerd whose containers can be frozen, hibernated and thawed.

All else is done by `kubeletx.cri.ContainerdRuntime`. CRI has no state for a frozen container and shows it as running,
so that lists and statuses are corrected here. A container is thawed before it is stopped or removed: with the freezer of
cgroup v1, a frozen process does not act on any signal, not even SIGKILL. For the same reason a list thaws containers
whose processes were killed.

With ``stop=kill``, containers are stopped by Kill of containerd's task service instead of CRI's StopContainer: runtimes
such as Quark give signals to a task their own meaning, and are stopped without CRI's own sequence.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any, TypeVar, cast

import structlog
from msgspec.structs import replace

from kubeletx.api import (
    Endpoint,
    EventKind,
    Host,
    InvalidPod,
    NotFound,
    RuntimeEvent,
    SandboxId,
    SandboxSpec,
    SandboxSummary,
    SupportsEvents,
    SupportsStandby,
    TimedOut,
    Traits,
    UnitId,
    UnitState,
    UnitStatus,
    UnitSummary,
    Unsupported,
    names,
)
from kubeletx.cri import ContainerdRuntime, ContainerdTasks, server_uuid

from .cgroups import PROC
from .choice import Choices
from .config import StopName, StrategyName, read_config
from .freezers import Freezers
from .pause_strategy import PauseStrategy
from .resting import Resting
from .signal_strategy import SignalStrategy
from .standby import Standby

log = structlog.get_logger(__name__)

T = TypeVar("T")

ENDED_SECONDS = 2.0
"""Longest time from the end of a container's first process until CRI shows the end of the container."""
KILL_SECONDS = 10.0
"""Time in which a container must end after SIGKILL."""
_LOOK_SECONDS = 0.02


class QuarkRuntime(ContainerdRuntime):
    """Runtime over a containerd of this node, with the capability `SupportsStandby`."""

    def __init__(self, endpoint: Endpoint, settings: Any, host: Host, *, proc: Path = PROC) -> None:
        """Check the endpoint's URL without connecting. Raises InvalidConfig for an invalid one. `settings`: not used."""
        super().__init__(endpoint, settings, host)
        self.config = config = read_config(endpoint.name, self.client.target.parameters)
        self._tasks = tasks = ContainerdTasks(self.client)
        self._choices = Choices(config.strategy, self.handler)
        self._freezers = Freezers(tasks, host, proc)
        pause = PauseStrategy(tasks)
        by_signal = SignalStrategy(tasks, host, config.freeze_signal, config.thaw_signal, proc)
        self._resting = Resting(
            freezers=self._freezers,
            pause=pause,
            by_signal=by_signal,
            tasks=tasks,
            host=host,
            labels={names.AGENT_ID: host.agent_id, names.RUNTIME_NAME: endpoint.name},
        )
        self._standby = Standby(
            {
                StrategyName.FREEZER: self._freezers,
                StrategyName.PAUSE: pause,
                StrategyName.SIGNAL: by_signal,
            },
            self._strategy_of,
            resting=self._resting,
            tasks=tasks,
            host=host,
            proc=proc,
        )
        self._can_stand_by = False
        self._logged: StrategyName | None = None

    async def open(self) -> None:
        """Connect as `ContainerdRuntime` does, choose the strategy, and find the containers that are frozen.

        Raises Unavailable if the server does not answer.
        """
        await super().open()
        self._can_stand_by = bool(await server_uuid(self.client))
        if not self._can_stand_by:
            return
        self._freezers.open()
        self._choices.learn(self.backend.handler_types, has_freezer=self._freezers.is_mounted)
        strategy, because = self._choices.default()
        if strategy is not self._logged:
            log.info(
                "Chose the standby strategy",
                runtime=self.endpoint.name,
                strategy=strategy.value,
                because=because,
            )
            self._logged = strategy
        await self.list_sandboxes({})
        listed = await super().list_units({})
        await self._standby.restore_limits()
        await self._resting.open(listed)

    def traits(self) -> Traits:
        """Return the traits of the CRI server, and the strategies that pods may name; the default comes first.

        Raises Unavailable before `open`.
        """
        known = tuple(strategy.value for strategy in self._choices.known()) if self._can_stand_by else ()
        return replace(super().traits(), standby_strategies=known)

    def capability(self, protocol: type[T]) -> T | None:
        """Return the object that implements the capability; None if the server did not have it at the last `open`.

        `SupportsStandby` needs containerd: other CRI servers do not have its task service.
        """
        if protocol is SupportsStandby:
            return cast("T", self._standby) if self._can_stand_by else None
        return super().capability(protocol)

    async def find_events(self) -> SupportsEvents | None:
        """Return the events of `ContainerdRuntime`; containers that other programs pause or resume are recorded."""
        events = await super().find_events()
        return _PauseEvents(events, self._resting.suspect) if events is not None else None

    async def create_sandbox(self, spec: SandboxSpec) -> SandboxId:
        """Call RunPodSandbox, and store the strategy of the sandbox's containers.

        Raises InvalidPod if the sandbox has an annotation with an unknown strategy.
        """
        named = spec.annotations.get(names.STANDBY_STRATEGY)
        known = [strategy.value for strategy in StrategyName]
        if named is not None and named not in known:
            raise InvalidPod(
                field=f"metadata.annotations[{names.STANDBY_STRATEGY}]",
                problem=f"{named!r} is not known",
                fix=f"use one of: {', '.join(known)}",
            )
        sandbox_id = await super().create_sandbox(spec)
        self._choices.add(sandbox_id, spec.handler, spec.annotations)
        return sandbox_id

    async def list_sandboxes(self, match: Mapping[str, str]) -> Sequence[SandboxSummary]:
        listed = await super().list_sandboxes(match)
        if names.POD_UID in match:
            self._choices.extend(listed)
        else:
            self._choices.replace(listed)
        return listed

    async def stop_unit(self, unit_id: UnitId, grace_seconds: float) -> None:
        """Thaw the container, and stop it by CRI or by the task service, as the endpoint's URL says."""
        if self._can_stand_by:
            await self._standby.wake(unit_id)
        if self.config.stop is StopName.KILL:
            await self._kill(unit_id, grace_seconds)
        else:
            await super().stop_unit(unit_id, grace_seconds)

    async def remove_unit(self, unit_id: UnitId) -> None:
        await self._standby.wake_all(lambda other: other == unit_id)
        await super().remove_unit(unit_id)
        self._resting.forget(unit_id)

    async def stop_sandbox(self, sandbox_id: SandboxId) -> None:
        await self._wake_units(sandbox_id)
        await super().stop_sandbox(sandbox_id)

    async def remove_sandbox(self, sandbox_id: SandboxId) -> None:
        await self._wake_units(sandbox_id)
        await super().remove_sandbox(sandbox_id)
        self._choices.remove(sandbox_id)

    async def list_units(self, match: Mapping[str, str]) -> Sequence[UnitSummary]:
        listed = await super().list_units(match)
        if not self._can_stand_by:
            return listed
        ended = await self._standby.look(listed, is_whole=names.POD_UID not in match)
        if ended:
            changed = await asyncio.gather(*(self._ended(unit) for unit in listed if unit.id in ended))
            by_id = {unit.id: unit for unit in changed}
            listed = [by_id.get(unit.id, unit) for unit in listed]
        return [self._corrected(unit) for unit in listed]

    async def unit_status(self, unit_id: UnitId) -> UnitStatus:
        status = await super().unit_status(unit_id)
        await self._resting.refresh(status.summary)
        summary = self._corrected(status.summary)
        return status if summary is status.summary else replace(status, summary=summary)

    async def _kill(self, unit_id: UnitId, grace_seconds: float) -> None:
        """Send SIGTERM to the first process, wait `grace_seconds` (0: not at all), then send SIGKILL to all.

        Succeeds if the container is gone. Raises TimedOut if it still runs after the kill.
        """
        if grace_seconds > 0:
            await self._tasks.kill(unit_id, signal.SIGTERM)
            if await self._ends(unit_id, grace_seconds):
                return
        await self._tasks.kill(unit_id, signal.SIGKILL, all_processes=True)
        if not await self._ends(unit_id, KILL_SECONDS):
            raise TimedOut(f"container {unit_id} still runs {KILL_SECONDS:g} s after SIGKILL")

    async def _ends(self, unit_id: UnitId, seconds: float) -> bool:
        clock = self.host.clock
        deadline = clock.monotonic() + seconds
        while True:
            try:
                state = (await super().unit_status(unit_id)).summary.state
            except NotFound:
                return True
            if state in (UnitState.EXITED, UnitState.CREATED):
                return True
            if clock.monotonic() >= deadline:
                return False
            await clock.sleep(_LOOK_SECONDS)

    def _corrected(self, summary: UnitSummary) -> UnitSummary:
        state = self._resting.state_of(summary)
        return summary if state is summary.state else replace(summary, state=state)

    async def _ended(self, summary: UnitSummary) -> UnitSummary:
        """Return the summary of a container whose first process has ended, once CRI shows it."""
        clock = self.host.clock
        deadline = clock.monotonic() + ENDED_SECONDS
        while summary.state is UnitState.RUNNING and clock.monotonic() < deadline:
            await clock.sleep(_LOOK_SECONDS)
            try:
                state = (await super().unit_status(summary.id)).summary.state
            except NotFound:
                break
            summary = replace(summary, state=state)
        return summary

    async def _strategy_of(self, unit_id: UnitId) -> StrategyName:
        """Return the strategy of a container, which is that of its sandbox. Raises NotFound.

        Raises Conflict if the choice depends on the container's cgroup, and its process is in a foreign one.
        """
        owner = self.known.find(unit_id)
        if owner is not None:
            sandbox_id = owner.sandbox_id
        else:
            sandbox_id = (await super().unit_status(unit_id)).summary.sandbox_id
        strategy = self._choices.find(sandbox_id)
        if strategy is None:
            await self.list_sandboxes({})
            strategy = self._choices.find(sandbox_id)
        if strategy is None:
            raise NotFound(f"sandbox {sandbox_id} of container {unit_id} is gone")
        is_seen = self._freezers.get(unit_id) is not None
        if strategy is StrategyName.FREEZER and not (is_seen or self._choices.is_requested(sandbox_id)):
            try:
                await self._freezers.find(unit_id)
            except Unsupported:
                return StrategyName.PAUSE
        return strategy

    async def _wake_units(self, sandbox_id: SandboxId) -> None:
        """Thaw the sandbox's resting containers, also those that no list has returned yet."""
        if not self._resting:
            return
        units = {unit.id for unit in await super().list_units({}) if unit.sandbox_id == sandbox_id}
        await self._standby.wake_all(units.__contains__)


class _PauseEvents:
    """Passes on the events of a stream, and notes the containers that another program may have paused or resumed."""

    def __init__(self, stream: SupportsEvents, note: Callable[[UnitId], None]) -> None:
        self._stream = stream
        self._note = note

    async def events(self) -> AsyncIterator[RuntimeEvent]:
        """Yield the events of the stream. Raises Unavailable on disconnect."""
        async with aclosing(self._stream.events()) as events:  # type: ignore[type-var]
            async for event in events:
                if event.kind is EventKind.CHANGED and event.unit_id is not None:
                    self._note(event.unit_id)
                yield event
