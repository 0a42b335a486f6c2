"""`PluginVolumeDriver`: a plugin's volume driver as the agent calls it, with deadlines and counters.

An error that the driver raises on purpose (Unavailable, InvalidPod, ...) is its answer about one volume and does not
degrade the registration; every other exception and a missed deadline do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec
import structlog

from kubeletx.api import KubeletxError, ReadyVolume, VolumeRequest, VolumeStats
from kubeletx.volumes.drivers import DriverEntry

from .callbacks import Callbacks
from .volume_calls import MOST_LEFT, VolumeCalls, is_answer

log = structlog.get_logger(__name__)

SECONDS: Final = {"open": 30.0, "close": 2.0, "stats": 10.0}
"""Deadlines of calls; other calls have configured deadlines."""


class Answered(msgspec.Struct, frozen=True):
    """Outcome of a call in which the driver raised `error` as its answer."""

    error: KubeletxError


class PluginVolumeDriver:
    """Calls the volume driver of one registration. Implements `kubeletx.api.VolumeDriver`."""

    def __init__(
        self,
        callbacks: Callbacks,
        seconds: float,
        *,
        most_left: int = MOST_LEFT,
    ) -> None:
        """`seconds`: deadline of calls. `most_left`: as for `Callbacks.call`."""
        self._callbacks = callbacks
        self.registration = callbacks.registration
        name, stop_seconds = self.registration.name, callbacks.stop_seconds
        self._driver = (
            VolumeCalls(name, callbacks.made, stop_seconds=stop_seconds) if callbacks.is_made else None
        )
        self._seconds = seconds
        self._most_left = most_left

    @property
    def entry(self) -> DriverEntry:
        """The driver's row in the table of volume drivers."""
        return DriverEntry(name=self.registration.name, driver=self, sources=self.registration.sources)

    async def open(self) -> None:
        await self._call("open")

    async def close(self) -> None:
        if self._driver is not None:
            await self._call("close")

    async def prepare(self, request: VolumeRequest) -> ReadyVolume:
        ready: ReadyVolume = await self._call("prepare", request)
        return ready

    async def release(self, request: VolumeRequest) -> None:
        await self._call("release", request)

    async def stats(self, request: VolumeRequest) -> VolumeStats:
        stats: VolumeStats = await self._call("stats", request)
        return stats

    async def expand(self, request: VolumeRequest, size_bytes: int) -> int:
        size: int = await self._call("expand", request, size_bytes)
        return size

    async def _call(self, method: str, *args: Any) -> Any:
        driver = self._driver or self._callbacks.made

        async def answering() -> Any:
            try:
                return await driver.call(method, args)
            except KubeletxError as error:
                if not is_answer(error):
                    raise
                return Answered(error)

        seconds = SECONDS.get(method, self._seconds)
        outcome: Any = await self._callbacks.call(
            method, answering, seconds=seconds, most_left=self._most_left
        )
        if isinstance(outcome, Answered):
            raise outcome.error
        return outcome


async def open_all(drivers: Sequence[PluginVolumeDriver]) -> None:
    """Open all drivers, each also if others fail; a driver that fails is opened again before its next call."""
    for driver in drivers:
        try:
            await driver.open()
        except KubeletxError as error:
            log.warning("Failed to open a volume driver", driver=driver.entry.name, err=str(error))


async def close_all(drivers: Sequence[PluginVolumeDriver]) -> None:
    """Close all drivers, each also if others fail."""
    for driver in drivers:
        try:
            await driver.close()
        except KubeletxError as error:
            log.warning("Failed to close a volume driver", driver=driver.entry.name, err=str(error))
