"""Panels: a plugin shows something about the node, as a table, a text or a picture.

The agent calls `Panel.show` when a user runs `kubeletx panel NAME`, in its own task with the deadline
``kubeletx.pluginPanelTimeout``; concurrent requests share one call. A panel returns values without markup: the program
that shows them decides on the layout.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import msgspec

if TYPE_CHECKING:
    from .plugin_host import PluginHost


class Table(msgspec.Struct, frozen=True, kw_only=True, tag="table", tag_field="type"):
    """Panel content: a table with column headings. At most 10,000 cells and a million characters.

    `columns`: the headings. Every row has one cell for each column. A cell is cut after 8,192 characters.
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
    """View of a plugin that shows users something about the node, as a table, a text or a picture."""

    async def show(self) -> Table | Text | Png:
        """Return the current content. The agent does not call it again before it has returned.

        Runs on the event loop: use `PluginHost.blocking` for calls that block.
        """
        ...


PanelFactory: TypeAlias = "Callable[[Any, PluginHost], Panel]"
"""Function from the plugin's settings (None if there are none) and its `PluginHost` to the panel. Must not do I/O."""
