"""The contract suite for plugins' panels (`kubeletx.api.Panel`)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec
import pytest

from kubeletx.api import Panel, Png, Table, Text

from .held import never_blocks

TIMEOUT_SECONDS = 10.0
"""The agent's default for ``kubeletx.pluginPanelTimeout``."""


class PanelContract:
    """Tests that every implementation of `kubeletx.api.Panel` must pass.

    Subclass it and define the fixture `make_panel`.
    """

    pytestmark = pytest.mark.asyncio

    @pytest.fixture
    def make_panel(self) -> Callable[[], Panel]:
        """Function that returns a new panel, as the plugin's factory does. You must override this."""
        raise NotImplementedError("override the fixture make_panel in your subclass of PanelContract")

    async def test_it_shows_values_of_the_declared_types(self, make_panel: Callable[[], Panel]) -> None:
        shown = await look(make_panel())
        assert msgspec.json.decode(msgspec.json.encode(shown), type=type(shown)) == shown

    async def test_its_content_fits_its_kind(self, make_panel: Callable[[], Panel]) -> None:
        match await look(make_panel()):
            case Table(columns=columns, rows=rows):
                assert columns
                assert {len(row) for row in rows} <= {len(columns)}
                assert len(rows) * len(columns) <= 10_000
            case Text(text=text):
                assert len(text) <= 1_000_000
            case Png(data=data):
                assert data.startswith(b"\x89PNG\r\n\x1a\n")
                assert len(data) <= 8 * 1024 * 1024

    async def test_it_gives_values_and_no_markup(self, make_panel: Callable[[], Panel]) -> None:
        match await look(make_panel()):
            case Table(columns=columns, rows=rows):
                texts = [*columns, *(cell for row in rows for cell in row)]
            case Text(text=text):
                texts = [text]
            case Png(text=text):
                texts = [text]
        for text in texts:
            assert "\x1b" not in text, "escape codes of terminals belong to what shows the panel"
            assert not text.lstrip().lower().startswith(("<html", "<!doctype", "<div", "<table"))

    async def test_it_shows_again_and_again(self, make_panel: Callable[[], Panel]) -> None:
        panel = make_panel()
        kinds = {type(await look(panel)) for _ in range(3)}
        assert len(kinds) == 1, "a panel keeps its kind of content"

    async def test_it_can_be_cancelled_and_shows_afterwards(self, make_panel: Callable[[], Panel]) -> None:
        panel = make_panel()
        task = asyncio.create_task(_show(panel), name="panel")
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task], timeout=TIMEOUT_SECONDS)
        assert task.done(), "it goes on after its cancellation"
        await look(panel)


async def look(panel: Panel) -> Table | Text | Png:
    """Return the panel's content.

    Fails the test if the panel takes longer than `TIMEOUT_SECONDS`, or blocks the event loop.
    """
    async with asyncio.timeout(TIMEOUT_SECONDS):
        shown = await never_blocks(panel.show(), "show")
    assert isinstance(shown, Table | Text | Png)
    return shown


async def _show(panel: Panel) -> Table | Text | Png:
    return await panel.show()
