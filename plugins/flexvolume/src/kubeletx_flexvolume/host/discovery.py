"""`Discovery`: finds the executable drivers below the plugin directory, and notices their changes.

    <plugin directory>/<vendor>~<driver>/<driver>    the driver vendor/driver
    <plugin directory>/<driver>/<driver>             the driver driver

Names that begin with a dot are left out. File events trigger a look; each look reads the whole directory, which is
small. While there are many events, looks are at least `PAUSE_SECONDS` apart. There is also a look every minute, or
every 5 seconds if the kernel gives no file events. A missing directory is made; if that is impossible, its nearest
existing parent is watched until another program makes it.
"""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec
import structlog

from kubeletx.api import Blocking, KubeletxError, VolumeHost
from kubeletx.linux.inotify import Inotify

from ..errors import file_error
from .options import driver_parts

log = structlog.get_logger(__name__)

RESCAN_SECONDS: Final = 60.0
RESCAN_WITHOUT_EVENTS_SECONDS: Final = 5.0
PAUSE_SECONDS: Final = 0.05
DIRECTORY_MODE: Final = 0o755


class FoundDriver(msgspec.Struct, frozen=True):
    """One executable driver. `identity`: values of its file that change whenever it is written, replaced or touched."""

    name: str
    path: str
    identity: tuple[int, ...]


class Discovery:
    """Looks for drivers, and reports what it found."""

    def __init__(
        self,
        host: VolumeHost,
        blocking: Blocking,
        on_found: Callable[[Mapping[str, FoundDriver]], None],
    ) -> None:
        """`on_found`: called after each look with all drivers, by name."""
        self._host = host
        self._blocking = blocking
        self._on_found = on_found
        self._changed = asyncio.Event()
        self._queue: Inotify | None = None
        self._watches: dict[str, int] = {}
        self._looking = asyncio.Lock()
        self._is_missing = False
        self._is_blind = False

    async def look(self) -> None:
        """Look at the directory now, and again until all directories are watched that the look has read.

        Raises Unavailable if it cannot be read; what was found before stays.
        """
        async with self._looking:
            for _ in range(3):
                self._changed.clear()
                try:
                    drivers, watched = await self._blocking(_scan, self._host.volume_plugin_directory)
                except OSError as error:
                    raise file_error("cannot read the directory of volume drivers", error) from error
                if not self._follow(watched):
                    break
            self._on_found(drivers)
            self._report(watched)

    async def run(self) -> None:
        """Look after every file event and at intervals, until cancelled."""
        try:
            while True:
                await self._wait()
                try:
                    await self.look()
                except KubeletxError as error:  # the next look comes
                    log.warning("Failed to look for drivers", err=str(error))
                await asyncio.sleep(PAUSE_SECONDS)  # a driver may write its log here, line by line
        finally:
            self.close()

    def close(self) -> None:
        if self._queue is not None:
            self._queue.close()
            self._queue, self._watches = None, {}

    async def _wait(self) -> None:
        seconds = RESCAN_SECONDS if self._queue is not None else RESCAN_WITHOUT_EVENTS_SECONDS
        cancel = self._host.clock.call_at(self._host.clock.monotonic() + seconds, self._changed.set)
        try:
            await self._changed.wait()
        finally:
            cancel()

    def _follow(self, directories: tuple[str, ...]) -> bool:
        """Watch these directories and no others; return True if one was not watched during the look that has read it."""
        watches: dict[str, int] = {}
        try:
            if self._queue is None:
                self._queue = Inotify(lambda _: self._changed.set())
            for path in directories:
                with suppress(FileNotFoundError, NotADirectoryError, PermissionError):
                    watches[path] = self._queue.watch_directory(path)
            for number in set(self._watches.values()) - set(watches.values()):
                self._queue.unwatch(number)
        except OSError as error:
            if not self._is_blind:
                log.warning("Failed to watch drivers, looking at intervals", err=str(error))
            self._is_blind = True
            self.close()
            return False
        is_new = not watches.items() <= self._watches.items()
        self._watches = watches
        return is_new

    def _report(self, watched: tuple[str, ...]) -> None:
        directory = str(self._host.volume_plugin_directory)
        is_missing = directory not in watched
        if is_missing and not self._is_missing:
            log.warning("Found no directory of drivers, and cannot make it", path=directory)
        self._is_missing = is_missing


def _scan(directory: Path) -> tuple[dict[str, FoundDriver], tuple[str, ...]]:
    """Return the drivers, and the directories to watch. Makes the directory if it is missing. Blocks."""
    _make(directory)
    watched, drivers = [str(_existing(directory))], {}
    for path in _directories(directory):
        watched.append(str(path))
        if (driver := _driver(path)) is not None:
            drivers[driver.name] = driver
    return drivers, tuple(watched)


def _make(directory: Path) -> None:
    if directory.is_dir():
        return
    try:
        directory.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
        directory.chmod(DIRECTORY_MODE)
    except OSError:  # such as a read-only file system: another program may make it later
        return


def _existing(directory: Path) -> Path:
    return next((path for path in (directory, *directory.parents) if path.is_dir()), Path("/"))


def _directories(directory: Path) -> list[Path]:
    try:
        paths = sorted(path for path in directory.iterdir() if not path.name.startswith("."))
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return []
    return [path for path in paths if _is_directory(path)]


def _is_directory(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:  # a broken one, such as on a dead file system, hides no other
        return False


def _driver(directory: Path) -> FoundDriver | None:
    """Return the driver of one directory; None if its executable is missing or empty."""
    parts = driver_parts(directory.name.replace("~", "/"))
    if not parts:
        return None
    path = directory / parts[-1]
    try:
        info = path.stat()
    except OSError:
        return None
    if not stat.S_ISREG(info.st_mode) or info.st_size == 0 or not os.access(path, os.X_OK):
        return None
    identity = (info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns)
    return FoundDriver("/".join(parts), str(path), identity)
