from __future__ import annotations

from pathlib import Path

from kubeletx_web.agent import Agent
from kubeletx_web.live import Fragments, LivePage, changes, sse
from kubeletx_web.state import Feed


def test_a_carriage_return_in_a_page_does_not_begin_a_field_of_its_message() -> None:
    message = sse("<p>one\revent: reload\r\ntwo\nthree</p>", 7)
    assert message == b"id: 7\ndata: <p>one\ndata: event: reload\ndata: two\ndata: three</p>\n\n"


async def test_a_change_between_loading_and_watching_is_sent(tmp_path: Path) -> None:
    text = ["old"]
    page = LivePage(Feed(Agent(tmp_path / "socket")), lambda: Fragments({"a": f'<p id="a">{text[-1]}</p>'}))
    loaded = page.number
    text.append("new")
    page.refresh()  # another browser loads the page
    messages = page.messages(loaded)
    assert await anext(messages) == b"retry: 2000\n\n"
    assert b'<p hx-swap-oob="true" id="a">new</p>' in await anext(messages)
    await messages.aclose()


def test_an_age_that_grows_is_not_sent_and_another_moment_is() -> None:
    def page(at: str, age: str) -> Fragments:
        return Fragments({"a": f'<p id="a">for <time datetime="{at}">{age}</time></p>'})

    assert changes(page("12:00", "5s"), page("12:00", "6s")) == ""
    assert "12:01" in changes(page("12:00", "5s"), page("12:01", "5s"))
