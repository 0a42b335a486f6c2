"""Panels: a plugin shows something about the node, as a table, a text or a picture.

The host calls `Panel.show` when a user asks (`kubeletx panel NAME`), in a task of its own and under the deadline
``kubeletx.pluginPanelTimeout``; concurrent users share one call. A panel returns values, never markup: the program that
shows them decides on the layout.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from .plugin_host import PluginHost


class Table(msgspec.Struct, frozen=True, kw_only=True, tag="table", tag_field="type"):
    """Panel content: rows under headings. At most 10,000 cells.

    Every row has as many cells as there are columns.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...] = ()


class Text(msgspec.Struct, frozen=True, kw_only=True, tag="text", tag_field="type"):
    """Panel content: plain text of one or more lines, at most a million characters."""

    text: str


class Png(msgspec.Struct, frozen=True, kw_only=True, tag="png", tag_field="type"):
    """Panel content: a picture in PNG format, at most 8 MiB.

    `text`: description of the picture, for users who cannot see it.
    """

    data: bytes
    text: str = ""


class Panel(Protocol):
    """Panel that a plugin registers; it shows one thing about the node."""

    async def show(self) -> Table | Text | Png:
        """Return the present content. The host does not call it again before it has returned.

        Runs on the event loop: use `PluginHost.blocking` for calls that block.
        """
        ...


PanelFactory = Callable[[Any, PluginHost], Panel]
"""(own settings Struct or None, host) → panel. Must not do I/O."""
