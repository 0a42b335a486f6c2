"""Panels of plugins in a whole agent."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kubeletx.api import Internal, NotFound, Png, Table, Text, TimedOut, Unavailable
from kubeletx.plugins.registrations import Hook, Registration
from kubeletx.runtimes.plugins.failures import LONGEST_TEXT
from tests.unit.agent.agent_model import AgentModel

PICTURE = Png(data=b"\x89PNG\r\n\x1a\n...", text="a dot")


class Panel:
    def __init__(self, content: Any) -> None:
        self.content = content
        self.calls = 0

    async def show(self) -> Any:
        self.calls += 1
        if isinstance(self.content, BaseException):
            raise self.content
        return await self.content() if callable(self.content) else self.content


def register(agent: AgentModel, name: str, panel: Any) -> None:
    def factory(settings: Any, host: Any) -> Any:
        if isinstance(panel, BaseException):
            raise panel
        return panel

    agent.registrations.add(
        Registration(hook=Hook.PANEL, name=name, factory=factory, plugin="acme", title=name.title())
    )


@pytest.mark.parametrize(
    "content", [Table(columns=("A", "B"), rows=(("1", "2"),)), Text(text="two\nlines"), PICTURE]
)
async def test_a_panel_is_listed_and_shown(agent: AgentModel, content: Any) -> None:
    register(agent, "load", Panel(content))
    async with agent.running() as backend:
        (view,) = await backend.about.list_panels()
        assert (view.name, view.title, view.plugin, view.state) == ("load", "Load", "acme", "ready")
        assert await backend.about.show_panel("load") == content


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("<b>markup</b>", "returned str, not Table, Text or Png"),
        (Table(columns=("A",), rows=(("1", "2"),)), "row 0 has 2 cells, not 1"),
        (Table(columns=("A",), rows=((3,),)), "Expected `str`"),  # type: ignore[arg-type]
        (Table(columns=("A",), rows=(("1",),) * 10_001), "10001 cells, more than 10000"),
        (Text(text="x" * 1_000_001), "1000001 characters"),
        (Table(columns=("A",), rows=(("x" * 8000,),) * 126), "1008001 characters, more than 1000000"),
        (Png(data=b"GIF89a"), "is not a PNG"),
        (SystemExit(2), "SystemExit: 2"),
    ],
)
async def test_what_breaks_the_rules_is_an_error_of_the_plugin(
    agent: AgentModel, content: Any, words: str
) -> None:
    register(agent, "bad", Panel(content))
    register(agent, "good", Panel(Text(text="fine")))
    async with agent.running() as backend:
        with pytest.raises(Internal, match=words):
            await backend.about.show_panel("bad")
        assert await backend.about.show_panel("good") == Text(text="fine")
        assert {one.name: one.state for one in await backend.about.list_panels()} == {
            "bad": "degraded",
            "good": "ready",
        }


async def test_long_cells_and_descriptions_are_cut(agent: AgentModel) -> None:
    register(agent, "long", Panel(Table(columns=("A",), rows=(("x" * 10_000,),))))
    register(agent, "seen", Panel(Png(data=PICTURE.data, text="x" * 10_000)))
    async with agent.running() as backend:
        table, picture = await backend.about.show_panel("long"), await backend.about.show_panel("seen")
    assert isinstance(table, Table)
    assert isinstance(picture, Png)
    for text in (table.rows[0][0], picture.text):
        assert text.startswith("x" * LONGEST_TEXT)
        assert text.endswith("(1808 characters left out)")


async def test_a_panel_that_hangs_is_timed_out(agent: AgentModel) -> None:
    register(agent, "hangs", Panel(asyncio.Event().wait))
    async with agent.running() as backend:
        with pytest.raises(TimedOut, match="panel/hangs: show: did not return within 10 s"):
            await agent.done(backend.about.show_panel("hangs"))


async def test_those_who_ask_at_once_share_one_call(agent: AgentModel) -> None:
    gate = asyncio.Event()

    async def slow() -> Text:
        await gate.wait()
        return Text(text="once")

    panel = Panel(slow)
    register(agent, "slow", panel)
    async with agent.running() as backend:
        asked = [asyncio.create_task(backend.about.show_panel("slow")) for _ in range(3)]
        await agent.until(lambda: panel.calls)
        asked[0].cancel()
        gate.set()
        assert await asyncio.gather(*asked[1:]) == [Text(text="once")] * 2
        assert panel.calls == 1


async def test_an_unknown_panel_is_not_found_and_one_that_could_not_be_made_says_why(
    agent: AgentModel,
) -> None:
    async with agent.running() as backend:
        assert list(await backend.about.list_panels()) == []
        with pytest.raises(NotFound, match="known: none"):
            await backend.about.show_panel("load")
    register(agent, "unmade", ValueError("no way"))
    async with agent.running() as backend:
        with pytest.raises(NotFound, match="known: unmade"):
            await backend.about.show_panel("load")
        with pytest.raises(Unavailable, match="ValueError: no way"):
            await backend.about.show_panel("unmade")
