"""Watches the drop-in directories of runtimes: a runtime added as a file is used without a restart of the agent."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import structlog

from kubeletx.linux.inotify import Inotify
from kubeletx.runtimes.registry import RuntimeRegistry

log = structlog.get_logger(__name__)

QUIET_SECONDS = 0.2
"""Delay between a change and the reading of the files; files written within the delay are read together."""


class DropInWatch:
    """Watches the drop-in directories of runtimes, and makes the registry read the files after each change."""

    def __init__(self, registry: RuntimeRegistry, directories: Sequence[Path]) -> None:
        self._registry = registry
        self._directories = tuple(directories)
        self._refused: dict[str, str] = {}

    async def run(self) -> None:
        """Make the registry read the files now and after each change, until cancelled."""
        changed = asyncio.Event()
        changed.set()
        watch = Inotify(lambda _events: changed.set())
        try:
            for directory in self._directories:
                directory.mkdir(mode=0o700, parents=True, exist_ok=True)
                watch.watch_directory(str(directory))
            while True:
                await changed.wait()
                await asyncio.sleep(QUIET_SECONDS)
                changed.clear()
                await self._reload()
        finally:
            watch.close()

    async def _reload(self) -> None:
        """Make the registry read the files again; log each problem that was not logged before."""
        refused = {
            error.obj or error.field: str(error) for error in await self._registry.fleet.reload_dropins()
        }
        for origin, text in refused.items():
            if self._refused.get(origin) != text:
                log.error("Ignored runtime drop-in", err=text)
        self._refused = refused
