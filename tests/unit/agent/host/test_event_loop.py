"""Exits that a plugin raises outside of the agent's calls do not end the event loop; the agent's own do."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from kubeletx.agent.host.event_loop import AgentLoop
from tests.unit.plugins.plugin_sites import Site

PLUGIN = """\
import sys

async def exits():
    sys.exit(3)

async def fails():
    raise ValueError("no url")
"""


@pytest.fixture
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner(loop_factory=AgentLoop) as made:
        yield made


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The module of an installed plugin ``tasks`` of distribution ``tasks`` 1.0."""
    site = Site(tmp_path / "site")
    monkeypatch.syspath_prepend(str(site.path))
    site.install("tasks", {"site_tasks/__init__.py": PLUGIN}, plugins="tasks = site_tasks")
    import site_tasks  # type: ignore[import-not-found]

    yield site_tasks
    site.forget()


def test_an_exit_in_a_task_of_a_plugin_is_logged_once_with_plugin_and_line(
    runner: asyncio.Runner, plugin: Any
) -> None:
    async def main() -> str:
        for number in range(3):
            task = asyncio.create_task(plugin.exits(), name=f"own-{number}")
            await asyncio.wait((task,))
        return "went on"

    with capture_logs() as lines:
        assert runner.run(main()) == "went on"
    (line, trace) = lines
    assert line["event"] == "Task or callback raised an exception that ends programs"
    assert line["plugin"] == "plugin tasks (tasks 1.0)"
    assert line["place"] == f"{plugin.__file__}:4"
    assert line["task"] == "own-0"
    assert line["err"] == "SystemExit: 3"
    assert trace["log_level"] == "debug"
    assert isinstance(trace["exc_info"], SystemExit)


def test_a_failed_task_of_a_plugin_that_nothing_awaits_is_logged_with_plugin_and_line(
    runner: asyncio.Runner, plugin: Any
) -> None:
    async def main() -> None:
        task = asyncio.create_task(plugin.fails(), name="own")
        await asyncio.sleep(0)
        del task

    with capture_logs() as lines:
        runner.run(main())
    assert lines[0]["event"] == "Task of a plugin raised an exception"
    assert lines[0]["plugin"] == "plugin tasks (tasks 1.0)"
    assert lines[0]["place"] == f"{plugin.__file__}:7"
    assert lines[0]["task"] == "own"


def test_exits_in_callbacks_and_threads_do_not_end_the_loop(runner: asyncio.Runner) -> None:
    async def main() -> str:
        loop = asyncio.get_running_loop()
        loop.call_soon(sys.exit, 1)
        thread = threading.Thread(target=sys.exit, args=(2,), name="own")
        thread.start()
        done = asyncio.Event()
        loop.call_later(0, done.set)
        await done.wait()
        await asyncio.to_thread(thread.join)
        return "went on"

    with capture_logs() as lines:
        assert runner.run(main()) == "went on"
    shown = [(one["event"], one["err"]) for one in lines if one["log_level"] == "error"]
    assert sorted(shown) == [
        ("Task or callback raised an exception that ends programs", "SystemExit: 1"),
        ("Thread raised an exception", "SystemExit: 2"),
    ]


def test_an_exit_in_the_same_step_as_the_end_of_the_main_task_does_not_keep_the_loop_running(
    runner: asyncio.Runner,
) -> None:
    async def main() -> str:
        loop = asyncio.get_running_loop()
        loop.call_soon(loop.call_soon, sys.exit, 1)  # runs in the step after this coroutine has returned
        return "ended"

    with capture_logs():
        assert runner.run(main()) == "ended"


def test_an_exit_of_the_main_task_ends_the_loop(runner: asyncio.Runner) -> None:
    async def main() -> None:
        sys.exit(5)

    with pytest.raises(SystemExit) as raised:
        runner.run(main())
    assert raised.value.code == 5


@pytest.mark.usefixtures("interruptible")
def test_a_second_interrupt_by_the_user_ends_the_loop(runner: asyncio.Runner) -> None:
    async def main() -> None:
        try:
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.Event().wait()

    with pytest.raises(KeyboardInterrupt):
        runner.run(main())
