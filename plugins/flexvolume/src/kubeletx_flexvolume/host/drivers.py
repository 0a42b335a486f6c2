"""`FlexDrivers`: all drivers of the node: found, initialised, and looked up by name.

    found ─► init ─► ready
              │ ▲
              ▼ │ back-off of 1 to 30 s
             failed

Each driver has a task of its own for its ``init``, so that one that hangs or fails delays no other. A changed
executable is initialised again, and a removed one is dropped.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import suppress
from typing import Any, Final

import structlog

from kubeletx.api import Blocking, KubeletxError, Unavailable, VolumeHost
from kubeletx.api.backoff import Backoff
from kubeletx.api.names import Event

from ..config import FlexSettings
from ..errors import DriverMissing
from .discovery import Discovery, FoundDriver
from .driver import CallSlots, Command, DriverState, FlexDriver
from .processes import Processes

log = structlog.get_logger(__name__)

FIRST_RETRY_SECONDS: Final = 1.0
LAST_RETRY_SECONDS: Final = 30.0
PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def base_environment() -> dict[str, str]:
    """Return the environment variables that every program of this plugin gets."""
    return {"PATH": PATH, "HOME": os.environ.get("HOME", "/root"), "LANG": "C.UTF-8"}


class FlexDrivers:
    """The drivers below the plugin directory."""

    def __init__(
        self,
        host: VolumeHost,
        settings: FlexSettings,
        *,
        blocking: Blocking,
        processes: Processes,
        on_change: Callable[[], None],
    ) -> None:
        self._host = host
        self._settings = settings
        self._processes = processes
        self._on_change = on_change
        self._slots = CallSlots()
        self._drivers: dict[str, FlexDriver] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        """All tasks that have not ended, including tasks of removed drivers."""
        self._discovery = Discovery(host, blocking, self._take)
        self._environment = base_environment() | dict(settings.environment)

    def __iter__(self) -> Iterator[FlexDriver]:
        return iter(sorted(self._drivers.values(), key=lambda driver: driver.name))

    async def open(self) -> None:
        """Find the drivers and begin to initialise them; does not wait for that."""
        await self._discovery.look()
        self._spawn(self._discovery.run(), "flexvolume discovery")

    async def close(self) -> None:
        """End the tasks, and the calls that they make."""
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._discovery.close()

    def lacks_metrics(self, name: str) -> bool:
        """Return True if a driver is ready, and its volumes cannot be measured."""
        driver = self._drivers.get(name)
        if driver is None or driver.state is not DriverState.READY:
            return False
        return not driver.capabilities.supports_metrics

    async def get(self, name: str, until: float) -> FlexDriver:
        """Return a driver that is ready. Raises Unavailable if there is none; waits while it is initialised."""
        driver = await self.find(name, until)
        if driver.state is not DriverState.READY:
            raise Unavailable(
                f"driver {name}: not ready: {driver.last_error or 'init has not ended'}; it is initialised again "
                f"within {LAST_RETRY_SECONDS:.0f} s",
                reason=Event.FAILED_MOUNT,
            )
        return driver

    async def find(self, name: str, until: float) -> FlexDriver:
        """Return a driver after its first ``init``, also if that failed, or at the deadline.

        Raises DriverMissing if its executable is not there.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout_at(until):
                if name not in self._drivers:
                    await self._discovery.look()
        while (driver := self._drivers.get(name)) is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout_at(until):
                    await driver.tried.wait()
            is_late = asyncio.get_running_loop().time() >= until
            if is_late or self._drivers.get(name) is driver:  # else it was replaced meanwhile
                return driver
        path = self._host.volume_plugin_directory / name.replace("/", "~") / name.rpartition("/")[2]
        raise DriverMissing(
            f"driver {name}: no executable {path}; install the driver there, with mode 0755",
            reason=Event.FAILED_MOUNT,
        )

    def _take(self, found: Mapping[str, FoundDriver]) -> None:
        """Drop removed drivers, and start new and changed drivers."""
        for name in self._drivers.keys() - found.keys():
            log.info("Lost a driver", driver=name, path=self._drivers[name].found.path)
            self._drop(name)
        for name, driver in found.items():
            known = self._drivers.get(name)
            if known is None or known.found != driver:
                self._drop(name)
                self._start(driver, known)

    def _drop(self, name: str) -> None:
        if (driver := self._drivers.pop(name, None)) is not None:
            if driver.initialising is not None:
                driver.initialising.cancel()
            driver.tried.set()
        self._on_change()

    def _start(self, found: FoundDriver, before: FlexDriver | None) -> None:
        log.info("Found a driver", driver=found.name, path=found.path)
        driver = FlexDriver(found, self._processes, self._slots, self._environment)
        if before is not None:
            driver.calls, driver.failures = before.calls, before.failures
        self._drivers[found.name] = driver
        driver.initialising = self._spawn(self._initialise(driver), f"flexvolume init {found.name}")

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("A task ended with an error", task=task.get_name(), exc_info=error)

    async def _initialise(self, driver: FlexDriver) -> None:
        backoff = Backoff(FIRST_RETRY_SECONDS, LAST_RETRY_SECONDS, jitter=0.1)
        while not await self._init(driver):
            driver.tried.set()
            await self._host.clock.sleep(backoff.next(self._host.clock.monotonic()))
        driver.tried.set()

    async def _init(self, driver: FlexDriver) -> bool:
        until = asyncio.get_running_loop().time() + self._settings.init_timeout_seconds
        before = driver.state, driver.last_error
        try:
            reply = await driver.call(Command.INIT, until=until)
            problem = "" if reply is not None else "init answered: Not supported"
        except KubeletxError as error:
            reply, problem = None, str(error)
        if reply is not None:
            driver.capabilities = reply.capabilities
        driver.state = DriverState.FAILED if reply is None else DriverState.READY
        driver.last_error = problem
        if (driver.state, problem) != before:
            self._on_change()
            if problem:
                log.warning("Failed to initialise a driver", driver=driver.name, err=problem)
            else:
                log.info("Initialised a driver", driver=driver.name, attach=driver.capabilities.attach)
        return reply is not None
