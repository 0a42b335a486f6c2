"""`LivePage`: one page as named fragments of HTML, rendered once for all its watchers, which get the changes.

    change of the state ─► fragments again ─► differences to the last ones ─► one message to each watcher

Each fragment is one HTML element with an id. A message replaces elements by their ids (htmx, out of band). Messages have
numbers; a browser that begins or resumes at an older number gets what has changed since, or is asked to load the page
again if it is too far behind.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from typing import Final

import msgspec

from .state import Feed

COALESCE_SECONDS: Final = 0.25
"""Changes within this time are sent as one message."""
KEPT: Final = 50
"""Messages kept for browsers that resume."""
BEHIND: Final = 20
"""A watcher that has this many messages before it loads the page again."""
KEEPALIVE_SECONDS: Final = 15.0
_AGE: Final = re.compile(r"(<time [^>]*>)[^<]*")


class Fragments(msgspec.Struct, frozen=True):
    """A page as it is now: its fragments by id, and the ids of the rows of its table in their order.

    `parts`: HTML of each element. `rows`: ids of the table's rows, which are in `parts`, too.
    """

    parts: Mapping[str, str]
    rows: Sequence[str] = ()


class _Message(msgspec.Struct, frozen=True):
    number: int
    text: bytes


class LivePage:
    """One page that at least one browser watches."""

    def __init__(
        self,
        feed: Feed,
        render: Callable[[], Fragments],
        prepare: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """`render`: returns the page as it is now; it is called after each change of the state.

        `prepare`: is awaited after each change before that; it reads what `render` needs beside the state.
        """
        self._feed = feed
        self._render = render
        self._prepare = prepare
        self.now = render()
        self.number = time.monotonic_ns() // 1_000_000
        """Number of the last message. It begins anywhere, so that a number of an earlier page is not taken for one of this."""
        self._kept: deque[_Message] = deque(maxlen=KEPT)
        self._watchers: set[asyncio.Queue[_Message | None]] = set()
        self._task: asyncio.Task[None] | None = None

    async def messages(self, since: int) -> AsyncGenerator[bytes, None]:
        """Yield server-sent events: what changed after message number `since`, then each change as it comes."""
        queue: asyncio.Queue[_Message | None] = asyncio.Queue(BEHIND)
        missed = [kept for kept in self._kept if kept.number > since]
        if since > self.number or len(missed) != self.number - since:
            yield b"event: reload\ndata: \n\n"
            return
        self._watchers.add(queue)
        if self._task is None:
            self._task = asyncio.create_task(self._follow(), name="live page")
        try:
            yield b"retry: 2000\n\n"
            for kept in missed:
                yield kept.text
            while True:
                try:
                    async with asyncio.timeout(KEEPALIVE_SECONDS):
                        message = await queue.get()
                except TimeoutError:
                    yield b": \n\n"
                    continue
                if message is None:
                    yield b"event: reload\ndata: \n\n"
                    return
                yield message.text
        finally:
            self._watchers.discard(queue)
            if not self._watchers and self._task is not None:
                self._task.cancel()
                self._task = None

    @property
    def is_watched(self) -> bool:
        return bool(self._watchers)

    async def update(self) -> None:
        """Call `prepare`, and then `refresh`."""
        if self._prepare is not None:
            await self._prepare()
        self.refresh()

    def refresh(self) -> None:
        """Render the page again, and send what has changed to the watchers."""
        new, old = self._render(), self.now
        self.now = new
        if _others(new) != _others(old):  # a section has come or gone
            self.number += 1
            self._kept.clear()
            for queue in tuple(self._watchers):
                self._send_reload(queue)
        elif body := changes(old, new):
            self.number += 1
            message = _Message(self.number, sse(body, self.number))
            self._kept.append(message)
            for queue in tuple(self._watchers):
                self._send(queue, message)

    async def _follow(self) -> None:
        revision = -1
        while True:
            revision = await self._feed.wait_change(revision)
            await self.update()
            await asyncio.sleep(COALESCE_SECONDS)

    def _send(self, queue: asyncio.Queue[_Message | None], message: _Message) -> None:
        try:
            queue.put_nowait(message)
        except asyncio.QueueFull:
            self._send_reload(queue)

    def _send_reload(self, queue: asyncio.Queue[_Message | None]) -> None:
        while not queue.empty():
            queue.get_nowait()
        queue.put_nowait(None)
        self._watchers.discard(queue)


def _others(page: Fragments) -> set[str]:
    return page.parts.keys() - set(page.rows)


def sse(body: str, number: int) -> bytes:
    """Return a server-sent event with this number; `body` may have several lines, and CR ends one, too."""
    lines = "".join(f"data: {line}\n" for line in re.split("\r\n|\r|\n", body))
    return f"id: {number}\n{lines}\n".encode()


def changes(old: Fragments, new: Fragments) -> str:
    """Return the HTML of a message that turns the page `old` into `new`; empty if nothing differs.

    Rows are in <template> elements, since a browser drops a row that it finds outside of a table.
    """
    before, after = set(old.rows), set(new.rows)
    pieces = []
    for name, html in new.parts.items():
        if name in old.parts and _differs(html, old.parts[name]):
            changed = _with(html, 'hx-swap-oob="true"')
            pieces.append(f"<template>{changed}</template>" if name in after else changed)
    gone = [name for name in old.rows if name not in after]
    pieces += [f'<template><tr id="{name}" hx-swap-oob="delete"></tr></template>' for name in gone]
    added = [name for name in new.rows if name not in before]
    if added:
        rows = "".join(new.parts[name] for name in added)
        pieces.append(f'<template><tbody hx-swap-oob="beforeend:#rows">{rows}</tbody></template>')
    if [name for name in old.rows if name in after] + added != list(new.rows):
        pieces.append(f'<span id="order" hx-swap-oob="true" hidden data-order="{" ".join(new.rows)}"></span>')
    return "".join(pieces)


def _differs(html: str, other: str) -> bool:
    """Return True if more differs than the texts of ages, which browsers keep up to date."""
    return html != other and _AGE.sub(r"\1", html) != _AGE.sub(r"\1", other)


def _with(html: str, attribute: str) -> str:
    """Return the element with one more attribute."""
    tag, _, rest = html.partition(" ")
    return f"{tag} {attribute} {rest}"
