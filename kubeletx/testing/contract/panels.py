"""The contract suite for plugins' panels (`kubeletx.api.Panel`)."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from kubeletx.api import Panel, Png, Table, Text

from .calls import plugin_of
from .failures import about
from .shared import Maker, NewObject, SuiteBase, answer_of, cancel_one_call


class PanelContract(SuiteBase):
    """Tests that every implementation of `kubeletx.api.Panel` must pass.

    Subclass it and define the fixture `make_panel`.
    """

    @pytest.fixture
    def make_panel(self) -> Callable[[], Panel]:
        """Function that returns a new panel, as the plugin's factory does. You must override this."""
        raise NotImplementedError("override the fixture make_panel in your subclass of PanelContract")

    @pytest.fixture
    def new_panel(self, make_panel: Callable[[], Panel], maker: Maker) -> NewObject[Panel]:
        """The function of `make_panel`; calls of its panels have time limits."""
        return maker.of(make_panel, Panel)

    async def test_it_shows_values_of_the_declared_types(self, new_panel: NewObject[Panel]) -> None:
        shown = await look(new_panel())
        assert msgspec.json.decode(msgspec.json.encode(shown), type=type(shown)) == shown

    async def test_its_content_fits_its_kind(self, new_panel: NewObject[Panel]) -> None:
        match await look(new_panel()):
            case Table(columns=columns, rows=rows):
                assert columns
                assert {len(row) for row in rows} <= {len(columns)}
                assert len(rows) * len(columns) <= 10_000
            case Text(text=text):
                assert len(text) <= 1_000_000
            case Png(data=data):
                assert data.startswith(b"\x89PNG\r\n\x1a\n")
                assert len(data) <= 8 * 1024 * 1024

    async def test_it_gives_values_and_no_markup(self, new_panel: NewObject[Panel]) -> None:
        match await look(new_panel()):
            case Table(columns=columns, rows=rows):
                texts = [*columns, *(cell for row in rows for cell in row)]
            case Text(text=text):
                texts = [text]
            case Png(text=text):
                texts = [text]
        for text in texts:
            assert "\x1b" not in text, "escape codes of terminals belong to what shows the panel"
            assert not text.lstrip().lower().startswith(("<html", "<!doctype", "<div", "<table"))

    async def test_it_shows_again_and_again(self, new_panel: NewObject[Panel]) -> None:
        panel = new_panel()
        kinds = {type(await look(panel)) for _ in range(3)}
        assert len(kinds) == 1, "a panel keeps its kind of content"

    @about("show")
    async def test_it_can_be_cancelled_and_shows_afterwards(self, new_panel: NewObject[Panel]) -> None:
        panel = new_panel()
        await cancel_one_call(new_panel.calls, "show", plugin_of(panel).show)
        await look(panel)


async def look(panel: Panel) -> Table | Text | Png:
    """Return the panel's content."""
    shown: Table | Text | Png = answer_of("show", await panel.show(), Table, Text, Png)
    return shown
