"""The progress line of a pull and of other long work."""

from __future__ import annotations

import asyncio
import io
from typing import Any

import pytest

from kubeletx.cli.output.progress import ProgressLine, progress_text
from kubeletx.server.views import PodTarget, StandbyView
from tests.unit.cli.commands.objects import Run, pod
from tests.unit.cli.terminal import terminal

MB = 1_000_000


def test_a_known_size_has_a_bar_and_a_share() -> None:
    assert progress_text("nginx", 31 * MB, 62 * MB, 4.7) == (
        "nginx  [==========>         ]   50 %  31MB of 62MB  4 s"
    )
    assert "[====================]  100 %" in progress_text("nginx", MB, MB, 0)


def test_an_unknown_size_shows_the_bytes_and_nothing_fetched_only_the_time() -> None:
    assert progress_text("nginx", 3 * MB, None, 61) == "nginx  3MB  61 s"
    assert progress_text("nginx resolving", 0, None, 0) == "nginx resolving  0 s"


def test_control_characters_of_a_message_do_not_reach_the_terminal() -> None:
    assert "\x1b" not in progress_text("a\x1b[2Jb", 0, None, 0)


def test_the_line_fits_the_terminal_is_redrawn_rarely_and_erased_at_the_end() -> None:
    now = [0.0]
    out = io.StringIO()
    with ProgressLine(out, now=lambda: now[0], width=lambda: 12, tick_seconds=3600) as line:
        line.show("a-long-image-name", 0, None)
        line.show("not drawn", 0, None)
        now[0] = 0.2
        line.show("drawn", 0, None)
    assert out.getvalue() == "\r\x1b[Ka-long-imag" + "\r\x1b[Kdrawn  0 s" + "\r\x1b[K"


def test_long_work_has_a_line_on_a_terminal_and_none_in_a_pipe(
    agent: Any, kubeletx: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent.backend.put(pod())
    may_end, at_once = asyncio.Event(), agent.backend.standby.set_standby

    async def slowly(target: PodTarget, verb: str, timeout_seconds: float) -> StandbyView:
        await may_end.wait()
        view: StandbyView = await at_once(target, verb, timeout_seconds)
        return view

    monkeypatch.setattr(agent.backend.standby, "set_standby", slowly)
    with terminal("--root-dir", str(agent.root), "pod", "standby", "web", "--hibernate") as out:
        out.read_until("\x1b[Khibernating pod/web  ")
        agent.soon(may_end.set)
        code, rest = out.end()
        assert (code, rest.rpartition("\x1b[K")[2]) == (0, "pod/web hibernated\r\n")
    result = kubeletx("pod", "standby", "web", "--hibernate")
    assert (result.stdout, result.stderr) == ("pod/web hibernated\n", "")


def test_steps_are_lines_above_the_line(agent: Any) -> None:
    with terminal("--root-dir", str(agent.root), "drain", "--all") as out:
        code, text = out.end()
        assert code == 0
        assert text.endswith("\r\x1b[Kall pods have ended\r\n\r\x1b[K")


def test_a_pull_shows_its_updates_and_ends_with_the_result(agent: Any) -> None:
    with terminal("--root-dir", str(agent.root), "image", "pull", "nginx") as out:
        assert out.read_until("nginx resolving").startswith("\r\x1b[K")
        code, text = out.end()
        assert (code, text.rpartition("\r\x1b[K")[2]) == (0, "nginx pulled into default: sha256:nginx\r\n")
