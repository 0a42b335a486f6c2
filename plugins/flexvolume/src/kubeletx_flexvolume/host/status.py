"""The status of all drivers, as a file that the panels read: ``<state directory>/drivers.json``.

The driver of volumes and the panel are two registrations, which may run in two processes. The file only informs users:
it may be missing, or a moment old.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec
import structlog

from kubeletx.api import Blocking, KubeletxError, PluginHost, Table, Text
from kubeletx.linux.files import replace_unflushed

from ..driver.program import CallFailed, ask, request, socket_path
from ..values import DRIVER

log = structlog.get_logger(__name__)

FILE_NAME: Final = "drivers.json"
ASK_SECONDS: Final = 8.0
"""Above the storage agent's own deadline, and below the default of ``kubeletx.pluginPanelTimeout``."""
_COLUMNS: Final = ("DRIVER", "STATE", "CAPABILITIES", "CALLS", "FAILED", "LAST ERROR")


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

    def __init__(self, path: Path, blocking: Blocking) -> None:
        self._path = path
        self._blocking = blocking
        self._changed = asyncio.Event()

    def mark(self) -> None:
        """Note that the status has changed; it is written soon."""
        self._changed.set()

    async def run(self, look: Callable[[], list[FlexDriverStatus]]) -> None:
        """Write the file after every change, until cancelled. `look`: returns the present status."""
        is_failing = False
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                await self._blocking(replace_unflushed, self._path, msgspec.json.encode(look()))
                is_failing = False
            except (OSError, KubeletxError) as error:  # it is written again after the next change
                if not is_failing:
                    log.warning("Failed to write the status of drivers", path=str(self._path), err=str(error))
                is_failing = True


class FlexPanel:
    """Shows what `read` makes from the file. Implements `kubeletx.api.Panel`."""

    def __init__(self, host: PluginHost, registration: str, read: Callable[[Path], Table | Text]) -> None:
        """`registration`: name of the volume driver's registration, whose state directory is next to the panel's."""
        self._host = host
        self._read = read
        self._path = host.state_directory.parent / registration / FILE_NAME

    async def show(self) -> Table | Text:
        return await self._host.blocking(self._read, self._path)


def show_drivers(status: Path) -> Table:
    """Return the drivers, their state and the last error of each."""
    return Table(columns=_COLUMNS, rows=tuple(map(_row, _read(status))))


def show_attachments(status: Path) -> Table | Text:
    """Return who has which volume attached, and what nodes must still detach, as this node's storage agent reads it."""
    driver = next((one for one in _read(status) if one.name == DRIVER), None)
    if driver is None:
        return Text(text=f"No storage agent: driver {DRIVER} is not installed on this node.")
    try:
        text = ask(socket_path(driver.path), request("attachments", []), ASK_SECONDS)
    except CallFailed as error:
        return Text(text=str(error))
    answer = msgspec.json.decode(text, type=dict[str, Any])
    if answer["status"] != "Success":
        return Text(text=f"the storage agent answered: {answer.get('message', answer['status'])}")
    columns, *rows = answer["rows"]
    return Table(columns=tuple(name.upper() for name in columns), rows=tuple(map(tuple, rows)))


def _read(path: Path) -> tuple[FlexDriverStatus, ...]:
    """Return the status that was written last; empty if there is none, or the file is damaged."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=tuple[FlexDriverStatus, ...])
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return ()


def _row(driver: FlexDriverStatus) -> tuple[str, ...]:
    capabilities = " ".join(driver.capabilities) or "none"
    numbers = str(driver.calls), str(driver.failures)
    return (driver.name, driver.state, capabilities, *numbers, driver.last_error)
