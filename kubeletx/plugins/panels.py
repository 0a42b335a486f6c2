"""`Panels`: lists the panels that plugins registered, and calls a plugin for the content of its panel."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final

import msgspec

from kubeletx.api import NotFound, Panel, Png, Table, Text
from kubeletx.runtimes.plugins.failures import shortened
from kubeletx.server.views import PanelContent, PanelView

from .callbacks import Callbacks

MAX_CELLS: Final = 10_000
MAX_CHARACTERS: Final = 1_000_000
MAX_BYTES: Final = 8 * 1024 * 1024
PNG_SIGNATURE: Final = b"\x89PNG\r\n\x1a\n"


class Panels:
    """Lists the plugins' panels, and calls a plugin for the content of its panel."""

    def __init__(self, panels: Iterable[Callbacks], *, timeout_seconds: float) -> None:
        self._panels = {callbacks.registration.name: callbacks for callbacks in panels}
        self._timeout_seconds = timeout_seconds
        self._shown: dict[str, asyncio.Task[PanelContent]] = {}
        """Running calls for a panel's content, by name of the panel; concurrent requests share one call."""

    def list(self) -> tuple[PanelView, ...]:
        """Return every panel with its state, sorted by name."""
        return tuple(
            PanelView(
                name=name,
                title=panel.registration.title,
                plugin=panel.registration.plugin,
                state=panel.state.word,
                reason=panel.state.reason,
            )
            for name, panel in sorted(self._panels.items())
        )

    async def show(self, name: str) -> PanelContent:
        """Call the plugin for the panel's content, and return it.

        Raises NotFound for an unknown panel, Unavailable if its factory failed, or the plugin's error as a
        KubeletxError.
        """
        if name not in self._panels:
            known = ", ".join(sorted(self._panels)) or "none"
            raise NotFound(f"no plugin registers panel {name!r}; known: {known}")
        task = self._shown.get(name)
        if task is None:
            task = self._shown[name] = asyncio.create_task(self._show(name), name=f"panel {name}")
            task.add_done_callback(lambda _: self._shown.pop(name, None))
        return await asyncio.shield(task)

    async def close(self) -> None:
        tasks = tuple(self._shown.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _show(self, name: str) -> PanelContent:
        callbacks = self._panels[name]
        panel = callbacks.made
        return await callbacks.call("show", lambda: _content(panel), seconds=self._timeout_seconds)


async def _content(panel: Panel) -> PanelContent:
    """Call the panel's `show` and check the result; raises TypeError, ValueError or ValidationError.

    The content is converted, so that a field of a wrong type is refused; its texts are not copied.
    """
    shown = await panel.show()
    if not isinstance(shown, Table | Text | Png):
        raise TypeError(f"returned {type(shown).__name__}, not Table, Text or Png")
    values = msgspec.to_builtins(shown, builtin_types=(bytes,))
    return checked(msgspec.convert(values, PanelContent, builtin_types=(bytes,)))


def checked(content: PanelContent) -> PanelContent:
    """Return the content, with cells cut at `LONGEST_TEXT`.

    Raises ValueError if it is too large, or malformed by the rules of `kubeletx.api.panels`.
    """
    match content:
        case Table(columns=columns, rows=rows):
            for number, row in enumerate(rows):
                if len(row) != len(columns):
                    raise ValueError(f"row {number} has {len(row)} cells, not {len(columns)}")
            if len(rows) * len(columns) > MAX_CELLS:
                raise ValueError(f"the table has {len(rows) * len(columns)} cells, more than {MAX_CELLS}")
            cut = Table(columns=_cut(columns), rows=tuple(map(_cut, rows)))
            size = sum(len(cell) for row in (cut.columns, *cut.rows) for cell in row)
            if size > MAX_CHARACTERS:
                raise ValueError(f"the table has {size} characters, more than {MAX_CHARACTERS}")
            return cut
        case Text(text=text):
            if len(text) > MAX_CHARACTERS:
                raise ValueError(f"the text has {len(text)} characters, more than {MAX_CHARACTERS}")
        case Png(data=data, text=description):
            if not data.startswith(PNG_SIGNATURE):
                raise ValueError("the picture is not a PNG")
            if len(data) > MAX_BYTES:
                raise ValueError(f"the picture has {len(data)} bytes, more than {MAX_BYTES}")
            return Png(data=data, text=shortened(description))
    return content


def _cut(cells: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(map(shortened, cells))
