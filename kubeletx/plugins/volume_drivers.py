"""`PluginVolumeDriver`: a plugin's volume driver as the agent calls it, with deadlines and counters.

An error that the driver raises on purpose (Unavailable, InvalidPod, ...) is its answer about one volume and does not
degrade the registration; every other exception and a missed deadline do.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeVar

import msgspec
import structlog

from kubeletx.api import KubeletxError, ReadyVolume, VolumeDriver, VolumeRequest, VolumeStats
from kubeletx.volumes.drivers import DriverEntry

from .callbacks import Callbacks
from .registrations import Registration
from .volume_calls import MOST_LEFT, VolumeCalls, is_answer

log = structlog.get_logger(__name__)

T = TypeVar("T")

OPEN_SECONDS: Final = 30.0
CLOSE_SECONDS: Final = 2.0
STATS_SECONDS: Final = 10.0


class Answered(msgspec.Struct, frozen=True):
    """Outcome of a call in which the driver raised `error` as its answer."""

    error: KubeletxError


class PluginVolumeDriver:
    """Calls the volume driver of one registration. Implements `kubeletx.api.VolumeDriver`."""

    def __init__(self, callbacks: Callbacks, driver: VolumeDriver | None, seconds: float) -> None:
        """`driver` None: the plugin's factory failed; every call raises its error. `seconds`: deadline of calls."""
        self._callbacks = callbacks
        self._driver = VolumeCalls(callbacks.registration.name, driver) if driver is not None else None
        self._seconds = seconds

    @property
    def registration(self) -> Registration:
        """The driver's registration."""
        return self._callbacks.registration

    @property
    def entry(self) -> DriverEntry:
        """The driver's row in the table of volume drivers."""
        registration = self.registration
        return DriverEntry(name=registration.name, driver=self, sources=registration.sources)

    async def open(self) -> None:
        driver = self._made()
        await self._call("open", driver.open, OPEN_SECONDS)

    async def close(self) -> None:
        if self._driver is not None:
            await self._call("close", self._driver.close, CLOSE_SECONDS)

    async def prepare(self, request: VolumeRequest) -> ReadyVolume:
        driver = self._made()
        return await self._call("prepare", lambda: driver.prepare(request), self._seconds)

    async def release(self, request: VolumeRequest) -> None:
        driver = self._made()
        await self._call("release", lambda: driver.release(request), self._seconds)

    async def stats(self, request: VolumeRequest) -> VolumeStats:
        driver = self._made()
        return await self._call("stats", lambda: driver.stats(request), STATS_SECONDS)

    async def expand(self, request: VolumeRequest, size_bytes: int) -> int:
        driver = self._made()
        return await self._call("expand", lambda: driver.expand(request, size_bytes), self._seconds)

    def _made(self) -> VolumeCalls:
        if self._driver is None:
            raise self._callbacks.not_made()
        return self._driver

    async def _call(self, method: str, call: Callable[[], Awaitable[T]], seconds: float) -> T:
        async def answering() -> T | Answered:
            try:
                return await call()
            except KubeletxError as error:
                if not is_answer(error):
                    raise
                return Answered(error)

        outcome: Any = await self._callbacks.call(method, answering, seconds=seconds, most_left=MOST_LEFT)
        if isinstance(outcome, Answered):
            raise outcome.error
        made: T = outcome
        return made


async def open_all(drivers: Sequence[PluginVolumeDriver]) -> None:
    """Open all drivers, each also if others fail; a driver that fails is opened again before its next call."""
    for one in drivers:
        try:
            await one.open()
        except KubeletxError as error:
            log.warning("Failed to open a volume driver", driver=one.entry.name, err=str(error))


async def close_all(drivers: Sequence[PluginVolumeDriver]) -> None:
    """Close all drivers, each also if others fail."""
    for one in drivers:
        try:
            await one.close()
        except KubeletxError as error:
            log.warning("Failed to close a volume driver", driver=one.entry.name, err=str(error))
