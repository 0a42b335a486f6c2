"""Screenshots of machines, each kept for ten seconds, so that many watchers cost the runtime one."""

from __future__ import annotations

import asyncio
from typing import Final

from kubeletx.api import Clock

from .agent import Agent

KEPT_SECONDS: Final = 10.0


class _Screen:
    """One machine's picture, and when it was asked for; the lock is held while the agent is asked."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.read_at = float("-inf")
        self.picture = b""


class Screens:
    """Pictures of machines, by the path of the agent that gives them."""

    def __init__(self, agent: Agent, clock: Clock) -> None:
        self._agent = agent
        self._clock = clock
        self._kept: dict[str, _Screen] = {}

    async def get(self, path: str) -> bytes:
        """Return a PNG file that is at most `KEPT_SECONDS` old. Raises KubeletxError."""
        oldest = self._clock.monotonic() - KEPT_SECONDS
        for name in [
            name for name, each in self._kept.items() if each.read_at < oldest and not each.lock.locked()
        ]:
            del self._kept[name]
        screen = self._kept.setdefault(path, _Screen())
        async with screen.lock:
            if screen.read_at < oldest:
                screen.picture = await self._agent.read(path)
                screen.read_at = self._clock.monotonic()
        return screen.picture
