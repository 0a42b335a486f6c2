"""`VolumeCalls`: the rules for calls to a plugin's volume driver that hold in the agent's process and in a child.

The driver is opened before its first call. Calls for one volume follow each other: an abandoned call that still runs
blocks only its own volume.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import PurePosixPath
from typing import Any, Final, TypeVar

import msgspec

from kubeletx.api import (
    Internal,
    KubeletxError,
    ReadyVolume,
    Unavailable,
    VolumeDriver,
    VolumeRequest,
    VolumeStats,
)
from kubeletx.api.names import PLUGIN_ERROR, Event

from .callbacks import STOP_SECONDS, expect

T = TypeVar("T")

PATH_MAX: Final = 4096
"""Most characters of a path, as in Linux."""
MOST_LEFT: Final = 64
"""While this many calls of one method still run after they were cancelled, it is not called again."""
_RESULTS: Final[dict[str, type]] = {"prepare": ReadyVolume, "expand": int}


class VolumeCalls:
    """Calls a plugin's volume driver and checks its results."""

    def __init__(self, name: str, driver: VolumeDriver, *, stop_seconds: float = STOP_SECONDS) -> None:
        """`name`: of the registration, for messages. `stop_seconds`: as for `Callbacks`."""
        self._name = name
        self._stop_seconds = stop_seconds
        self._driver = driver
        self._is_open = False
        self._opening = asyncio.Lock()
        self._busy: dict[str, asyncio.Event] = {}

    async def call(self, method: str, args: tuple[Any, ...]) -> Any:
        """Call a method of `kubeletx.api.VolumeDriver` and return its result.

        `open` is called once, and `close` if it was opened. Raises TypeError or ValueError for a wrong result.
        """
        if method == "open":
            return await self._open()
        if method == "close":
            return await self._driver.close() if self._is_open else None
        called = getattr(self._driver, method)
        if method == "stats":  # does not wait for a call that changes the volume
            await self._open()
            return _checked(await called(*args), VolumeStats)
        async with self._turn(args[0]):
            result: Any = await called(*args)
        if (wanted := _RESULTS.get(method)) is not None:
            result = _checked(result, wanted)
        if isinstance(result, ReadyVolume):
            _check_paths(result)
        return result

    async def _open(self) -> None:
        async with self._opening:
            if not self._is_open:
                await self._driver.open()
                self._is_open = True

    @asynccontextmanager
    async def _turn(self, request: VolumeRequest) -> AsyncIterator[None]:
        """Wait until an abandoned call for the volume has ended. Raises Unavailable if it still runs."""
        target = request.target
        if (earlier := self._busy.get(target)) is not None:
            try:
                async with asyncio.timeout(self._stop_seconds):
                    await earlier.wait()
            except TimeoutError:
                raise Unavailable(
                    f"volume driver {self._name}: an earlier call for volume {request.volume_name} has not ended "
                    "since it was cancelled; it is tried again",
                    reason=Event.FAILED_MOUNT,
                ) from None
        await self._open()
        ended = self._busy[target] = asyncio.Event()
        try:
            yield
        finally:
            if self._busy.get(target) is ended:
                del self._busy[target]
            ended.set()


def _check_paths(ready: ReadyVolume) -> None:
    if len(ready.path) > PATH_MAX or len(ready.device) > PATH_MAX:
        raise ValueError(f"returned a path or device of more than {PATH_MAX} characters")
    path = PurePosixPath(ready.path or "/")
    if not path.is_absolute() or ".." in path.parts or "\0" in ready.path:
        raise ValueError(f"returned the path {ready.path!r}, which is not absolute and plain")


def is_answer(error: KubeletxError) -> bool:
    """Return True if the error is the driver's answer about one volume, not a fault of the driver."""
    return not isinstance(error, Internal) and error.reason != PLUGIN_ERROR


def _checked(result: object, wanted: type[T]) -> T:
    """Return the result of a call. Raises TypeError or ValidationError if it or one of its fields has a wrong type."""
    answer = expect(result, wanted)
    return msgspec.convert(msgspec.to_builtins(answer), wanted)
