"""`LivePage`: one page, rendered once for all its watchers, which load it again when it has changed.

change of the state ─► HTML again ─► differs? ─► one event to each watcher ─► htmx loads the page and morphs it
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Final

from .state import Feed

COALESCE_SECONDS: Final = 0.25
"""Changes within this time are one event."""
_AGE: Final = re.compile(r"(<time [^>]*>)[^<]*")


class LivePage:
    """One page. Its number grows when more differs than the texts of ages, which browsers keep up to date."""

    def __init__(self, feed: Feed, render: Callable[[], Awaitable[str]]) -> None:
        """`render`: returns the page as it is now."""
        self._feed = feed
        self._render = render
        self._revision = -1
        self._plain = 0
        self._updating = asyncio.Lock()
        self.html = ""
        self.number = time.monotonic_ns() // 1_000_000
        """It begins anywhere, so that a number of an earlier page is not taken for one of this."""

    async def update(self) -> None:
        """Render the page if the state has changed since the last time."""
        async with self._updating:
            revision = self._feed.revision
            if revision == self._revision:
                return
            self.html = await self._render()
            plain = hash(_AGE.sub(r"\1", self.html))
            if plain != self._plain:
                self._plain = plain
                self.number += 1
            self._revision = revision

    async def events(self, since: str) -> AsyncGenerator[bytes, None]:
        """Yield a server-sent event whenever the page has another number than a browser has. `since`: number that it has."""
        yield b"retry: 2000\n\n"
        revision = -1
        while True:
            revision = await self._feed.wait_change(revision)
            await self.update()
            if str(self.number) != since:
                since = str(self.number)
                yield f"event: change\ndata: {since}\n\n".encode()
            await asyncio.sleep(COALESCE_SECONDS)
