"""The progress line of a pull and of other long work."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kubeletx.cli.output.progress import progress_text
from kubeletx.server.views import PodTarget, StandbyView
from tests.unit.cli.commands.objects import Run, pod
from tests.unit.cli.terminal import terminal

MB = 1_000_000


@pytest.mark.parametrize(
    ("text", "done", "total", "seconds", "line"),
    [
        ("nginx", 31 * MB, 62 * MB, 4.7, "nginx  [==========>         ]   50 %  31MB of 62MB  4 s"),
        ("nginx", MB, MB, 0, "nginx  [====================]  100 %  1MB of 1MB  0 s"),
        ("nginx", 3 * MB, None, 61, "nginx  3MB  61 s"),
        ("a\x1b[2Jb resolving", 0, None, 0, "a?[2Jb resolving  0 s"),
    ],
)
def test_the_line_shows_as_much_as_is_known(
    text: str, done: int, total: int | None, seconds: float, line: str
) -> None:
    assert progress_text(text, done, total, seconds) == line


def test_long_work_has_a_line_that_fits_the_terminal_and_none_in_a_pipe(
    agent: Any, kubeletx: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent.backend.put(pod())
    may_end, at_once = asyncio.Event(), agent.backend.standby.set_standby

    async def slowly(target: PodTarget, verb: str, timeout_seconds: float) -> StandbyView:
        await may_end.wait()
        view: StandbyView = await at_once(target, verb, timeout_seconds)
        return view

    monkeypatch.setattr(agent.backend.standby, "set_standby", slowly)
    with terminal("--root-dir", str(agent.root), "pod", "standby", "web", "--hibernate", columns=12) as out:
        out.read_until("\r\x1b[Khibernating\r")
        agent.soon(may_end.set)
        code, rest = out.end()
        assert (code, rest.rpartition("\r\x1b[K")[2]) == (0, "pod/web hibernated\r\n")
    result = kubeletx("pod", "standby", "web", "--hibernate")
    assert (result.stdout, result.stderr) == ("pod/web hibernated\n", "")


@pytest.mark.parametrize(
    ("command", "shown", "end"),
    [
        (("drain", "--all"), "draining the node  ", "\r\x1b[Kall pods have ended\r\n\r\x1b[K"),
        (("image", "pull", "nginx"), "nginx", "\r\x1b[Knginx pulled into default: sha256:nginx\r\n"),
    ],
)
def test_a_drain_prints_its_steps_above_the_line_and_a_pull_its_result_at_the_end(
    agent: Any, command: tuple[str, ...], shown: str, end: str
) -> None:
    with terminal("--root-dir", str(agent.root), *command) as out:
        out.read_until(f"\r\x1b[K{shown}")
        code, text = out.end()
        assert (code, text.endswith(end)) == (0, True)
