"""`Guarded`: the object of one registration in the child process, as the agent calls it."""

from __future__ import annotations

import asyncio
from typing import Any

import structlog

from kubeletx.api import (
    Allow,
    CheckResult,
    KubeletxError,
    Png,
    PodSourceSink,
    ReadyVolume,
    Refuse,
    Table,
    Text,
    Unavailable,
    VolumeRequest,
    VolumeStats,
)

from ..callbacks import MOST_LEFT, Raised, outcome_of, problem_text, translated
from ..host import RegistrationHost
from ..registrations import Hook, Registration
from ..volume_calls import MOST_LEFT as MOST_VOLUMES_LEFT
from ..volume_calls import VolumeCalls

log = structlog.get_logger(__name__)


class Guarded:
    """Calls the plugin's object with the rules of `Callbacks`; implements the protocols of all hooks.

    Every exception of the plugin, even SystemExit, is raised as a KubeletxError. A call that does not end when it is
    cancelled is left running, and no further call is made until it has ended (reviews: while `MOST_LEFT` are left;
    volume drivers: for the same volume).
    """

    def __init__(self, registration: Registration, sink: PodSourceSink) -> None:
        """`sink`: for a pod source."""
        self._registration = registration
        self._sink = sink
        self._made: Any = None
        self._failed: KubeletxError | None = None
        self._left: set[asyncio.Task[Any]] = set()

    def make(self, settings: Any, host: RegistrationHost) -> None:
        """Call the plugin's factory. If it fails, every call raises the error."""
        try:
            self._made = self._registration.factory(settings, host)
            if self._registration.hook is Hook.VOLUME_DRIVER:
                self._made = VolumeCalls(self._registration.name, self._made)
        except BaseException as error:  # noqa: BLE001 - foreign code may raise anything, SystemExit too
            self._failed = self._translated("factory", error)

    async def check(self) -> CheckResult:
        """Call `HealthCheck.check`."""
        result: CheckResult = await self._call("check", (), CheckResult)
        return result

    async def review(self, pod: Any) -> Allow | Refuse:
        """Call `AdmissionCheck.review`."""
        answer: Allow | Refuse = await self._call("review", (pod,), Allow, Refuse, most_left=MOST_LEFT)
        return answer

    async def show(self) -> Table | Text | Png:
        """Call `Panel.show`."""
        content: Table | Text | Png = await self._call("show", (), Table, Text, Png)
        return content

    async def run(self) -> None:
        """Call `PodSource.run`."""
        await self._call("run", (self._sink,), object)

    async def open(self) -> None:
        """Call `VolumeDriver.open`, if it was not called in this process."""
        await self._call("open", (), object)

    async def close(self) -> None:
        """Call `VolumeDriver.close`, if `open` was called in this process."""
        await self._call("close", (), object)

    async def prepare(self, request: VolumeRequest) -> ReadyVolume:
        """Call `VolumeDriver.prepare`."""
        ready: ReadyVolume = await self._volume("prepare", (request,), ReadyVolume)
        return ready

    async def release(self, request: VolumeRequest) -> None:
        """Call `VolumeDriver.release`."""
        await self._volume("release", (request,), object)

    async def stats(self, request: VolumeRequest) -> VolumeStats:
        """Call `VolumeDriver.stats`."""
        stats: VolumeStats = await self._volume("stats", (request,), VolumeStats)
        return stats

    async def expand(self, request: VolumeRequest, size_bytes: int) -> int:
        """Call `VolumeDriver.expand`."""
        size: int = await self._volume("expand", (request, size_bytes), int)
        return size

    async def _volume(self, callback: str, args: tuple[Any, ...], type_: type) -> Any:
        return await self._call(callback, args, type_, most_left=MOST_VOLUMES_LEFT)

    async def _call(self, callback: str, args: tuple[Any, ...], *types: type, most_left: int = 1) -> Any:
        """Call the method `callback` in a task of its own; return its result, which must be of one of the `types`."""
        if self._failed is not None:
            raise self._failed
        if len(self._left) >= most_left:
            problem = "an earlier call has not ended since its deadline"
            raise Unavailable(problem_text(self._registration, callback, problem))

        async def checked() -> Any:
            result = await getattr(self._made, callback)(*args)
            if not isinstance(result, types):
                wanted = " or ".join(one.__name__ for one in types)
                raise TypeError(f"returned {type(result).__name__}, not {wanted}")
            return result

        task = asyncio.create_task(outcome_of(checked), name=f"{self._registration.label} {callback}")
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError:
            task.cancel()
            self._left.add(task)
            task.add_done_callback(self._left.discard)
            raise
        outcome = task.result()
        if isinstance(outcome, Raised):
            raise self._translated(callback, outcome.error) from outcome.error
        return outcome

    def _translated(self, callback: str, error: BaseException) -> KubeletxError:
        """Return the error as a KubeletxError. If the plugin did not translate it, its traceback is logged."""
        if not isinstance(error, KubeletxError):
            where = {"registration": self._registration.label, "callback": callback}
            log.debug("Traceback of the plugin's exception", **where, exc_info=error)
        return translated(self._registration, callback, error)


class Broken:
    """Takes the place of a `Guarded` that cannot be made: each call raises `error`."""

    def __init__(self, error: KubeletxError) -> None:
        self._error = error

    async def open(self) -> None:
        raise self._error

    async def close(self) -> None:
        raise self._error

    async def prepare(self, request: VolumeRequest) -> ReadyVolume:
        raise self._error

    async def release(self, request: VolumeRequest) -> None:
        raise self._error

    async def stats(self, request: VolumeRequest) -> VolumeStats:
        raise self._error

    async def expand(self, request: VolumeRequest, size_bytes: int) -> int:
        raise self._error

    async def check(self) -> CheckResult:
        raise self._error

    async def review(self, pod: Any) -> Allow | Refuse:
        raise self._error

    async def show(self) -> Table | Text | Png:
        raise self._error

    async def run(self) -> None:
        raise self._error
