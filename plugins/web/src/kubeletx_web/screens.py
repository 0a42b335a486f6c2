"""Screenshots of machines, each kept for ten seconds, so that many watchers cost the runtime one."""

from __future__ import annotations

import asyncio
from typing import Final

from kubeletx.api import Clock

from .agent import Agent

KEPT_SECONDS: Final = 10.0


class Screens:
    """Pictures of machines, by the path of the agent that gives them."""

    def __init__(self, agent: Agent, clock: Clock) -> None:
        self._agent = agent
        self._clock = clock
        self._kept: dict[str, tuple[float, asyncio.Task[bytes]]] = {}

    async def get(self, path: str) -> bytes:
        """Return a PNG file that is at most `KEPT_SECONDS` old. Raises KubeletxError, also to all who wait for the same."""
        now = self._clock.monotonic()
        self._kept = {name: kept for name, kept in self._kept.items() if now - kept[0] < KEPT_SECONDS}
        if path not in self._kept:
            task = asyncio.create_task(self._agent.read(path), name="screenshot")
            task.add_done_callback(_seen)
            self._kept[path] = (now, task)
        # Shielded: a watcher who goes away does not take the picture from the others.
        return await asyncio.shield(self._kept[path][1])

    async def close(self) -> None:
        """End the requests that run."""
        tasks = [task for _, task in self._kept.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _seen(task: asyncio.Task[bytes]) -> None:
    if not task.cancelled():
        task.exception()  # or asyncio logs it if all watchers are gone
