"""The leak check: each thing that a test may leave fails it with a line that names the thing.

All samples run once, in a pytest of their own; the tests here read its report.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

CONFIGURATION = """
[pytest]
asyncio_mode = auto
asyncio_default_fixture_loop_scope = function
filterwarnings = error
markers = integration
leak_grace_seconds = 0.2
"""

TASKS = """
import asyncio

kept = []

async def forever():
    await asyncio.Event().wait()

async def slow_to_end():
    try:
        await forever()
    finally:
        await asyncio.sleep(60)

async def test_leaves_a_task():
    asyncio.create_task(forever(), name="left-over")  # made here
    await asyncio.sleep(0)

async def test_does_not_await_a_cancelled_task():
    task = asyncio.create_task(slow_to_end(), name="cancelled")
    await asyncio.sleep(0)
    task.cancel()

def test_closes_the_loop_of_a_task():
    loop = asyncio.new_event_loop()
    kept.append(loop.create_task(forever(), name="lost"))
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()

async def test_awaits_its_task():
    task = asyncio.create_task(asyncio.sleep(0))
    await task
"""

THREADS = """
import threading
import pytest

stop = threading.Event()

@pytest.fixture(scope="session", autouse=True)
def end():
    yield
    stop.set()

def test_leaves_a_thread():
    threading.Thread(target=stop.wait, name="left-over").start()

def test_leaves_a_daemon_thread():
    threading.Thread(target=stop.wait, name="daemonic", daemon=True).start()

def test_leaves_a_thread_that_is_about_to_end():
    threading.Thread(target=stop.wait, args=(0.01,)).start()

def test_joins_its_thread():
    thread = threading.Thread(target=int)
    thread.start()
    thread.join()
"""

DESCRIPTORS = """
import socket

kept = []

def test_leaves_a_file():
    kept.append(open(__file__))

def test_leaves_a_socket_to_the_garbage_collector():
    circle = [socket.socket()]
    circle.append(circle)

def test_closes_its_file():
    open(__file__).close()

def test_fails_and_leaves_a_file():
    kept.append(open(__file__))
    assert not kept
"""

ENVIRONMENT = """
import logging
import os

def test_sets_a_variable():
    os.environ["LEFT_OVER"] = "1"

def test_removes_a_variable():
    del os.environ["HOME"]

def test_imports_the_log():
    import structlog
    assert structlog.get_config()

def test_sets_up_the_log():
    import structlog
    logging.getLogger().setLevel(logging.ERROR)
    structlog.configure(cache_logger_on_first_use=True)

def test_changes_the_directory():
    os.chdir("/")

def test_finds_all_as_it_was(monkeypatch):
    assert "LEFT_OVER" not in os.environ
    assert "HOME" in os.environ
    assert os.getcwd() != "/"
    monkeypatch.setenv("OTHER", "1")
    monkeypatch.chdir("/")
"""

FIXTURES = """
import pytest

kept = []

@pytest.fixture(scope="module")
def clean():
    with open(__file__) as file:
        yield file

@pytest.fixture(scope="module")
def leaking():
    kept.append(open("/etc/passwd"))

def test_uses_both_fixtures(clean, leaking):
    assert not clean.closed

def test_is_the_last_with_the_fixtures(clean, leaking):
    assert not clean.closed
"""

INTEGRATION = """
import os
import pytest

pytestmark = pytest.mark.integration
kept = []

def test_opens_a_file():
    kept.append(open(__file__))

def test_opens_another_and_sets_a_variable():
    kept.append(open("/etc/passwd"))
    os.environ["LEFT_OVER"] = "1"

def test_closes_one():
    kept.pop(0).close()
"""

SAMPLES = {
    "test_tasks.py": TASKS,
    "test_threads.py": THREADS,
    "test_descriptors.py": DESCRIPTORS,
    "test_environment.py": ENVIRONMENT,
    "test_fixtures.py": FIXTURES,
    "test_integration.py": INTEGRATION,
}


class Report:
    """The outcome of each sample: its failures by name, and the lines of what it leaves."""

    def __init__(self, root: Path, document: ElementTree.Element) -> None:
        self.root = root
        self._cases: dict[str, list[ElementTree.Element]] = {}
        for case in document.iter("testcase"):
            self._cases.setdefault(case.attrib["name"], []).extend(case)

    def outcomes(self, test: str) -> list[str]:
        """Names of what went wrong: `failure` in the test, `error` before or after it."""
        return [element.tag for element in self._cases[test] if element.tag in ("failure", "error")]

    def left(self, test: str) -> list[str]:
        """Lines of what the test leaves."""
        text = "\n".join(element.text or "" for element in self._cases[test] if element.tag == "error")
        return [line.removeprefix("- ") for line in text.splitlines() if line.startswith("- ")]


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    root = tmp_path_factory.mktemp("samples")
    (root / "pytest.ini").write_text(CONFIGURATION)
    for name, text in SAMPLES.items():
        (root / name).write_text(text)
    plugins = ["-p", "kubeletx_testing.leaks", "-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:cov"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--junitxml=report.xml", *plugins],
        check=False,
        cwd=root,
        stdout=subprocess.PIPE,
        text=True,
        timeout=100,
    )
    assert done.returncode == 1, done.stdout
    return Report(root, ElementTree.parse(root / "report.xml").getroot())


@pytest.mark.parametrize(
    "test",
    [
        "test_awaits_its_task",
        "test_leaves_a_thread_that_is_about_to_end",
        "test_joins_its_thread",
        "test_closes_its_file",
        "test_finds_all_as_it_was",
        "test_imports_the_log",
        "test_uses_both_fixtures",
        "test_opens_a_file",
    ],
)
def test_a_clean_test_passes(report: Report, test: str) -> None:
    assert report.outcomes(test) == []


def test_a_pending_task_is_named_with_where_it_was_created_and_where_it_waits(report: Report) -> None:
    (line,) = report.left("test_leaves_a_task")
    made = next(number for number, text in enumerate(TASKS.splitlines(), 1) if text.endswith("# made here"))
    assert line.startswith(
        f"task 'left-over', pending when its loop ended; created at {report.root}/test_tasks.py:{made}"
    )
    assert f"waits in forever at {report.root}/test_tasks.py:7, Event.wait at " in line


def test_a_task_that_was_cancelled_but_not_awaited_is_named(report: Report) -> None:
    (line,) = report.left("test_does_not_await_a_cancelled_task")
    assert line.startswith(
        "task 'cancelled', pending when its loop ended; cancelled but not awaited; created at "
    )


def test_a_task_of_a_closed_loop_is_named(report: Report) -> None:
    (line,) = report.left("test_closes_the_loop_of_a_task")
    assert line.startswith("task 'lost', its loop is closed; created at ")


def test_a_running_thread_is_named_also_if_it_is_a_daemon(report: Report) -> None:
    assert report.left("test_leaves_a_thread") == ["thread 'left-over' of Event.wait"]
    assert report.left("test_leaves_a_daemon_thread") == ["daemon thread 'daemonic' of Event.wait"]


def test_an_open_descriptor_is_named_with_its_target(report: Report) -> None:
    (line,) = report.left("test_leaves_a_file")
    assert line.startswith("file descriptor ")
    assert line.endswith(f" open on {report.root}/test_descriptors.py")


def test_a_socket_that_only_the_garbage_collector_closes_is_named(report: Report) -> None:
    (line,) = report.left("test_leaves_a_socket_to_the_garbage_collector")
    assert line.startswith("closed by the garbage collector only: unclosed <socket.socket")


def test_a_changed_environment_is_named(report: Report) -> None:
    assert report.left("test_sets_a_variable") == ["variable LEFT_OVER of the environment: was None, is '1'"]
    (line,) = report.left("test_removes_a_variable")
    assert line.startswith("variable HOME of the environment: was '")
    assert report.left("test_sets_up_the_log") == [
        "log set-up, cache_logger_on_first_use: was False, is True",
        "log set-up, level: was 30, is 40",
    ]
    assert report.left("test_changes_the_directory") == [f"working directory: was '{report.root}', is '/'"]


def test_a_fixture_of_a_module_has_to_close_what_it_opens_when_the_module_ends(report: Report) -> None:
    (line,) = report.left("test_is_the_last_with_the_fixtures")
    assert line.endswith("open on /etc/passwd")


def test_integration_tests_are_compared_at_the_end_of_their_module_except_for_the_environment(
    report: Report,
) -> None:
    assert report.left("test_opens_another_and_sets_a_variable") == [
        "variable LEFT_OVER of the environment: was None, is '1'"
    ]
    (line,) = report.left("test_closes_one")
    assert line.endswith("open on /etc/passwd")


def test_a_test_that_failed_is_reported_once(report: Report) -> None:
    assert report.outcomes("test_fails_and_leaves_a_file") == ["failure"]
