"""`QuarkRuntime`: a runtime over containerd whose containers can be frozen, hibernated and thawed.

All else is done by `kubeletx.cri.ContainerdRuntime`. CRI has no state for a frozen container and shows it as running,
so that lists and statuses are corrected here. A container is thawed before it is stopped or removed: with the freezer of
cgroup v1, a frozen process does not act on any signal, not even SIGKILL.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar, cast

from msgspec.structs import replace

from kubeletx.api import (
    Endpoint,
    Host,
    SandboxId,
    SupportsStandby,
    Traits,
    UnitId,
    UnitState,
    UnitStatus,
    UnitSummary,
)
from kubeletx.cri import ContainerdRuntime, ContainerdTasks, server_uuid

from .config import QuarkConfig, StopName, StrategyName, read_config
from .freezer_strategy import FreezerStrategy
from .kill_stop import KillStop
from .pause_strategy import PauseStrategy
from .signal_strategy import SignalStrategy
from .standby import Standby
from .strategy import Strategy

T = TypeVar("T")


class QuarkRuntime(ContainerdRuntime):
    """Runtime over a containerd of this node, with the capability `SupportsStandby`."""

    def __init__(self, endpoint: Endpoint, settings: Any, host: Host) -> None:
        """Check the endpoint's URL without connecting. Raises InvalidConfig for an invalid one. `settings`: not used."""
        super().__init__(endpoint, settings, host)
        self.config = read_config(endpoint.name, self.client.target.parameters)
        tasks = ContainerdTasks(self.client)
        self._standby = Standby(_strategy(self.config, tasks, host), tasks, host)
        self._stop = KillStop(tasks, host.clock) if self.config.stop is StopName.KILL else None
        self._can_stand_by = False

    async def open(self) -> None:
        """Connect as `ContainerdRuntime` does, and find the containers that are frozen.

        Raises Unavailable if the server does not answer.
        """
        await super().open()
        self._can_stand_by = bool(await server_uuid(self.client))
        if self._can_stand_by:
            await self._standby.open(self._running)

    def traits(self) -> Traits:
        """Return the traits of the CRI server, and the strategies that pods may name. Raises Unavailable before `open`."""
        known = tuple(one.value for one in StrategyName) if self._can_stand_by else ()
        return replace(super().traits(), standby_strategies=known)

    def capability(self, protocol: type[T]) -> T | None:
        """Return the object that implements the capability; None if the server did not have it at the last `open`.

        `SupportsStandby` needs containerd; other CRI servers do not have its task service.
        """
        if protocol is SupportsStandby:
            return cast("T", self._standby) if self._can_stand_by else None
        return super().capability(protocol)

    async def stop_unit(self, unit_id: UnitId, grace_seconds: float) -> None:
        """Thaw the container, and stop it by CRI or by the task service, as the endpoint's URL says."""
        if self._can_stand_by:
            await self._standby.wake(unit_id)
        if self._stop is not None:
            await self._stop.stop(unit_id, grace_seconds, super().unit_status)
        else:
            await super().stop_unit(unit_id, grace_seconds)

    async def remove_unit(self, unit_id: UnitId) -> None:
        """Thaw the container if it rests, and call RemoveContainer."""
        await self._standby.wake_all(lambda one: one == unit_id)
        await super().remove_unit(unit_id)
        self._standby.forget([unit_id])

    async def stop_sandbox(self, sandbox_id: SandboxId) -> None:
        """Thaw all resting containers of the sandbox, and call StopPodSandbox."""
        await self._wake_units(sandbox_id)
        await super().stop_sandbox(sandbox_id)

    async def remove_sandbox(self, sandbox_id: SandboxId) -> None:
        """Thaw all resting containers of the sandbox, and call RemovePodSandbox."""
        await self._wake_units(sandbox_id)
        await super().remove_sandbox(sandbox_id)

    async def list_units(self, match: Mapping[str, str]) -> Sequence[UnitSummary]:
        """Call ListContainers, and return the containers with their real states."""
        return [await self._corrected(one) for one in await super().list_units(match)]

    async def unit_status(self, unit_id: UnitId) -> UnitStatus:
        """Call ContainerStatus, and return the status with the container's real state."""
        status = await super().unit_status(unit_id)
        summary = await self._corrected(status.summary)
        return status if summary is status.summary else replace(status, summary=summary)

    async def _running(self) -> Iterable[UnitId]:
        return [one.id for one in await super().list_units({}) if one.state is UnitState.RUNNING]

    async def _corrected(self, summary: UnitSummary) -> UnitSummary:
        state = await self._standby.state_of(summary)
        return summary if state is summary.state else replace(summary, state=state)

    async def _wake_units(self, sandbox_id: SandboxId) -> None:
        """Thaw the sandbox's resting containers, also those that no list has returned yet."""
        if not self._standby.has_resting:
            return
        units = {one.id for one in await super().list_units({}) if one.sandbox_id == sandbox_id}
        await self._standby.wake_all(units.__contains__)


def _strategy(config: QuarkConfig, tasks: ContainerdTasks, host: Host) -> Strategy:
    match config.strategy:
        case StrategyName.FREEZER:
            return FreezerStrategy(tasks, host)
        case StrategyName.PAUSE:
            return PauseStrategy(tasks)
        case StrategyName.SIGNAL:
            return SignalStrategy(tasks, host, config.freeze_signal, config.thaw_signal)
