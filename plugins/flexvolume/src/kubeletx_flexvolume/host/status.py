"""The status of all drivers, as a file that the panel reads: ``<state directory>/drivers.json``.

The driver of volumes and the panel are two registrations, which may run in two processes. The file only informs users:
it may be missing, or a moment old.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec
import structlog

from kubeletx.api import KubeletxError

from .driver import FlexDriver
from .reply import DriverCapabilities
from .threads import Threads

log = structlog.get_logger(__name__)

FILE_NAME: Final = "drivers.json"


class FlexDriverStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Status of one driver. `state`: value of a `DriverState`. `calls`, `failures`: since the agent's start."""

    name: str
    path: str
    state: str
    capabilities: tuple[str, ...] = ()
    calls: int = 0
    failures: int = 0
    last_error: str = ""


class StatusFile:
    """Writes the status of the drivers after each change."""

    def __init__(self, path: Path, threads: Threads) -> None:
        self._path = path
        self._threads = threads
        self._changed = asyncio.Event()
        self._is_failing = False

    def mark(self) -> None:
        """Note that the status has changed; it is written soon."""
        self._changed.set()

    async def run(self, drivers: Iterable[FlexDriver]) -> None:
        """Write the file after every change, until cancelled."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            data = msgspec.json.encode([status_of(one) for one in drivers])
            try:
                await self._threads.run(_replace, self._path, data)
                self._is_failing = False
            except (OSError, KubeletxError) as error:  # it is written again after the next change
                if not self._is_failing:
                    log.warning("Failed to write the status of drivers", path=str(self._path), err=str(error))
                self._is_failing = True


def status_of(driver: FlexDriver) -> FlexDriverStatus:
    """Return the status of one driver."""
    return FlexDriverStatus(
        name=driver.name,
        path=driver.found.path,
        state=driver.state.value,
        capabilities=capability_words(driver.capabilities),
        calls=driver.calls,
        failures=driver.failures,
        last_error=driver.last_error,
    )


def capability_words(capabilities: DriverCapabilities) -> tuple[str, ...]:
    """Return the names of the capabilities that a driver has, as the protocol spells them."""
    words = {
        "attach": capabilities.attach,
        "fsGroup": capabilities.fs_group,
        "selinuxRelabel": capabilities.selinux_relabel,
        "supportsMetrics": capabilities.supports_metrics,
        "requiresFSResize": capabilities.requires_fs_resize,
    }
    return tuple(word for word, has in words.items() if has)


def read_status(path: Path) -> tuple[FlexDriverStatus, ...]:
    """Return the status that was written last; empty if there is none, or the file is damaged. Blocks."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=tuple[FlexDriverStatus, ...])
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return ()


def _replace(path: Path, data: bytes) -> None:
    temporary = path.with_name(f".{path.name}.new")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
    temporary.replace(path)
