"""Objects of the agent that call health checks, pod sources, admission checks, panels and volume drivers in a child."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, cast

from kubeletx.api import (
    Allow,
    CheckResult,
    Png,
    PodOutcome,
    PodSourceSink,
    ReadyVolume,
    Refuse,
    Table,
    Text,
    VolumeRequest,
    VolumeStats,
)

from ..pod_sources import Sink
from ..registrations import Hook
from .control import SINK, WireSink
from .process import PluginProcess


class Proxy:
    """Base of the proxies. `name`: that of the registration."""

    def __init__(self, process: PluginProcess, name: str) -> None:
        self._process = process
        self._name = name


class IsolatedCheck(Proxy):
    """A `HealthCheck` in a child process."""

    async def check(self) -> CheckResult:
        return cast("CheckResult", await self._process.call(self._name, "check", (), CheckResult))


class IsolatedReview(Proxy):
    """An `AdmissionCheck` in a child process."""

    async def review(self, pod: Mapping[str, Any]) -> Allow | Refuse:
        answer = await self._process.call(self._name, "review", (pod,), Allow | Refuse)
        return cast("Allow | Refuse", answer)


class IsolatedPanel(Proxy):
    """A `Panel` in a child process."""

    async def show(self) -> Table | Text | Png:
        content = await self._process.call(self._name, "show", (), Table | Text | Png)
        return cast("Table | Text | Png", content)


class IsolatedSource(Proxy):
    """A `PodSource` in a child process."""

    async def run(self, sink: PodSourceSink) -> None:
        target = SINK + self._name
        self._process.sinks.put(target, SinkFacade(cast("Sink", sink)), WireSink)
        try:
            await self._process.call(self._name, "run", (), None)
        finally:
            self._process.sinks.drop(target)


class IsolatedVolumeDriver(Proxy):
    """A `VolumeDriver` in a child process."""

    async def open(self) -> None:
        await self._process.call(self._name, "open", (), None)

    async def close(self) -> None:
        await self._process.call(self._name, "close", (), None)

    async def prepare(self, request: VolumeRequest) -> ReadyVolume:
        return cast("ReadyVolume", await self._process.call(self._name, "prepare", (request,), ReadyVolume))

    async def release(self, request: VolumeRequest) -> None:
        await self._process.call(self._name, "release", (request,), None)

    async def stats(self, request: VolumeRequest) -> VolumeStats:
        return cast("VolumeStats", await self._process.call(self._name, "stats", (request,), VolumeStats))

    async def expand(self, request: VolumeRequest, size_bytes: int) -> int:
        return cast("int", await self._process.call(self._name, "expand", (request, size_bytes), int))


class SinkFacade:
    """Implements `WireSink` with the agent's sink of the source."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    async def set(self, pod: dict[str, Any]) -> PodOutcome:
        return self._sink.set(pod)

    async def refuse(self, namespace: str, name: str, problem: str) -> PodOutcome:
        return self._sink.refuse(namespace, name, problem)

    async def remove(self, namespace: str, name: str, grace_seconds: int | None) -> bool:
        return self._sink.remove(namespace, name, grace_seconds=grace_seconds)

    async def synced(self) -> None:
        self._sink.synced()


PROXIES: Final[Mapping[Hook, Callable[[PluginProcess, str], Any]]] = {
    Hook.HEALTH_CHECK: IsolatedCheck,
    Hook.ADMISSION_CHECK: IsolatedReview,
    Hook.PANEL: IsolatedPanel,
    Hook.POD_SOURCE: IsolatedSource,
    Hook.VOLUME_DRIVER: IsolatedVolumeDriver,
}
