"""A pytest plugin: a test fails if it leaves tasks, threads, descriptors or a changed environment behind.

The check runs after the last fixture of a test is torn down, and compares with the state after the previous
test:

- tasks that were pending when their event loop ended (`asyncio.run` cancels them), and tasks of a loop that was
  closed without that;
- threads that still run, daemon threads included;
- open file descriptors. The garbage collector runs before a descriptor is reported, so a socket that only the collector
  closes is a ResourceWarning of the test that left it;
- environment variables, the working directory, and the settings of the log. Variables and directory are set back,
  so that only the test that changed them is reported and not all later tests.

Threads and descriptors that a fixture of a wider scope opens belong to the fixture, and must be closed when
its module or session ends. Tests with marker ``integration`` share daemons whose connections are opened and
closed at any time: after each of these tests only tasks and environment are compared; threads and descriptors
are compared at the end of the module. A test that has failed is not reported again. What gRPC and libvirt
open once for the process, and files that installed packages keep open, are ignored.
"""

from __future__ import annotations

import asyncio
import asyncio.runners
import gc
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from types import AsyncGeneratorType
from typing import Any
from weakref import WeakSet

import pytest
import structlog

GRACE_SECONDS = 10.0
"""Default of the option `leak_grace_seconds`: how long threads and descriptors may end later than the test."""

_PAUSE_SECONDS = 0.005
_ORIGIN_FRAMES = 3
_IGNORED_VARIABLES = ("PYTEST_CURRENT_TEST",)
_STANDARD_STREAMS = ("0", "1", "2")  # pytest's capture exchanges them around each phase of a test
_PACKAGES = "/site-packages/"  # files of installed packages, such as fonts of matplotlib
_PROCESS_THREADS = ("libvirt-events",)  # libvirt's event loop starts once in a process and never ends
_EVENT_DESCRIPTORS = ("anon_inode:[eventfd]", "anon_inode:[eventpoll]")
_HAS_FAILED = pytest.StashKey[bool]()

Opened = tuple[str, str]
"""The number of a file descriptor, and the path or kind of the file that it refers to."""


@dataclass(frozen=True)
class Held:
    """A set of running threads and open file descriptors, with the operators of sets."""

    threads: frozenset[threading.Thread] = frozenset()
    opened: frozenset[Opened] = frozenset()

    def __or__(self, other: Held) -> Held:
        return Held(self.threads | other.threads, self.opened | other.opened)

    def __sub__(self, other: Held) -> Held:
        return Held(self.threads - other.threads, self.opened - other.opened)

    def __and__(self, other: Held) -> Held:
        return Held(self.threads & other.threads, self.opened & other.opened)

    def __bool__(self) -> bool:
        return bool(self.threads or self.opened)


def held_now() -> Held:
    """Return the threads that are running and the descriptors that are open now.

    Standard streams and files of installed packages are left out.
    """
    opened = set()
    for number in os.listdir("/proc/self/fd"):
        if number in _STANDARD_STREAMS:
            continue
        try:
            target = os.readlink(f"/proc/self/fd/{number}")
        except FileNotFoundError:  # the listing's own descriptor
            continue
        if _PACKAGES not in target:
            opened.add((number, target))
    return Held(frozenset(threading.enumerate()), frozenset(opened))


def _log_settings() -> dict[str, Any]:
    """Return the settings of the standard library's root logger and of structlog."""
    root = logging.getLogger()
    handlers = [handler for handler in root.handlers if not type(handler).__module__.startswith("_pytest")]
    settings: dict[str, Any] = {"level": root.level, "handlers": handlers}
    settings |= structlog.get_config()
    settings["processors"] = list(settings["processors"])  # capture_logs changes the list
    return settings


@dataclass
class Environment:
    """Saved environment variables, working directory and log settings, for comparison with the state after a test."""

    variables: dict[str, str] = field(default_factory=lambda: dict(os.environ))
    directory: str = field(default_factory=os.getcwd)
    log: dict[str, Any] = field(default_factory=_log_settings)

    def changes(self) -> list[str]:
        """Return one line for each setting that differs from the saved state.

        Variables and directory are set back; changed log settings become the saved state.
        """
        lines = []
        environment = dict(os.environ)
        for name in _IGNORED_VARIABLES:
            environment.pop(name, None)
            self.variables.pop(name, None)
        if environment != self.variables:
            for name in sorted(environment.keys() | self.variables.keys()):
                before, after = self.variables.get(name), environment.get(name)
                if before == after:
                    continue
                lines.append(f"variable {name} of the environment: was {before!r}, is {after!r}")
                if before is None:
                    del os.environ[name]
                else:
                    os.environ[name] = before
        try:
            directory = str(Path.cwd())
        except FileNotFoundError:
            directory = "a directory that is removed"
        if directory != self.directory:
            lines.append(f"working directory: was {self.directory!r}, is {directory!r}")
            os.chdir(self.directory)
        return [*lines, *self._log_changes()]

    def _log_changes(self) -> list[str]:
        lines = []
        log = _log_settings()
        for name in sorted(log.keys() & self.log.keys()):  # structlog's settings appear when it is imported
            if self.log[name] != log[name]:
                lines.append(f"log set-up, {name}: was {self.log[name]!r}, is {log[name]!r}")
        self.log = log
        return lines


class LeakCheck:
    """The pytest plugin. Its hooks record what exists before a test and report what the test leaves behind."""

    def __init__(self, grace_seconds: float) -> None:
        self._grace_seconds = grace_seconds
        self._cancel_all: Callable[[asyncio.AbstractEventLoop], None] = asyncio.runners._cancel_all_tasks  # type: ignore[attr-defined]
        self._tasks: list[str] = []
        self._lost: WeakSet[asyncio.Task[Any]] = WeakSet()
        """Tasks of closed loops that have already been reported."""
        self._known = Held()
        self._module, self._session = Held(), Held()
        self._environment: Environment | None = None
        """The state before the next test; None before the first test."""
        self._is_grpc_open = False

    def install(self) -> None:
        """Replace the function of asyncio that cancels the tasks of an ending loop, so that they are recorded too."""
        asyncio.runners._cancel_all_tasks = self._note_tasks  # type: ignore[attr-defined]
        sys.set_coroutine_origin_tracking_depth(_ORIGIN_FRAMES)

    def uninstall(self) -> None:
        """Restore asyncio's own function."""
        asyncio.runners._cancel_all_tasks = self._cancel_all  # type: ignore[attr-defined]
        sys.set_coroutine_origin_tracking_depth(0)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self) -> None:
        """Record the state before the first test.

        For later tests, the state after the previous test is used.
        """
        if self._environment is None:
            self._environment = Environment()
            self._known = held_now()
        self._open_grpc()

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Generator[None, object, object]:
        """Record the threads and descriptors that a fixture opens, if its scope is wider than one test."""
        if fixturedef.scope == "function":
            return (yield)
        before = held_now()
        result = yield
        made = held_now() - before
        if fixturedef.scope in ("class", "module"):
            self._module |= made
        else:
            self._session |= made
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Mark a test that failed. What it leaves behind is a consequence of the failure and is not reported."""
        report = yield
        if report.failed:
            item.stash[_HAS_FAILED] = True
        return report

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(
        self, item: pytest.Item, nextitem: pytest.Item | None
    ) -> Generator[None, None, None]:
        """After all fixtures are torn down, compare with the state before the test.

        The test fails if it left something behind.
        """
        is_reported = False
        try:
            yield
            is_reported = not item.stash.get(_HAS_FAILED, False)
        finally:
            left = self._left(item, nextitem)
            if is_reported and left:
                pytest.fail(
                    "The test leaves behind:\n" + "\n".join(f"- {leak}" for leak in left), pytrace=False
                )

    def _left(self, item: pytest.Item, nextitem: pytest.Item | None) -> list[str]:
        """Return what the test left behind, one line each, and record the state for the next test."""
        left, self._tasks = self._tasks, []
        for task in _lost_tasks():
            if task not in self._lost:
                self._lost.add(task)
                left.append(_task_line(task, "its loop is closed"))
        if self._environment is not None:
            left += self._environment.changes()
        module = item.getparent(pytest.Module)
        is_last = nextitem is None or nextitem.getparent(pytest.Module) is not module
        if is_last:
            self._module = Held()
        if nextitem is None:
            self._session = Held()
        if is_last or item.get_closest_marker("integration") is None:
            left += self._left_open()
        return left

    def _left_open(self) -> list[str]:
        allowed = self._known | self._module | self._session
        now = held_now()
        extra, warnings = now - allowed, list[str]()
        if extra and self._open_grpc():  # the test imported gRPC: its descriptors look like any others
            extra, now = Held(), held_now()
        if extra:
            now, warnings = _settled(allowed, self._grace_seconds)
            extra = now - allowed
        threads = frozenset(thread for thread in extra.threads if thread.name not in _PROCESS_THREADS)
        opened = extra.opened
        is_libvirt_new = len(threads) < len(
            extra.threads
        )  # its event loop keeps the descriptor that wakes it
        # gRPC keeps the event descriptors of ended calls for the next ones, and a poller of its servers.
        if self._is_grpc_open or is_libvirt_new:
            opened = frozenset(one for one in opened if one[1] not in _EVENT_DESCRIPTORS)
        extra = Held(threads, opened)
        self._known = now - self._module - self._session
        return [*warnings, *_thread_lines(extra.threads), *_opened_lines(extra.opened)]

    def _open_grpc(self) -> bool:
        """Make gRPC open its poller, which all channels share, so that no test is blamed for it.

        Returns True if the poller was opened by this call. Returns False if gRPC is not imported, or if the
        poller is open already.
        """
        if self._is_grpc_open or "grpc.aio" not in sys.modules:
            return False
        before = held_now()
        # gRPC registers its poller with the current event loop, and a thread has none after its first `asyncio.run`.
        with asyncio.Runner() as runner:
            asyncio.set_event_loop(runner.get_loop())
            sys.modules["grpc.aio"].init_grpc_aio()
        asyncio.set_event_loop(None)
        self._known |= held_now() - before
        self._is_grpc_open = True
        return True

    def _note_tasks(self, loop: asyncio.AbstractEventLoop) -> None:
        pending = [task for task in asyncio.all_tasks(loop) if not _is_of_grpc(task)]
        self._tasks += [_task_line(task, "pending when its loop ended") for task in pending]
        self._cancel_all(loop)


def _settled(allowed: Held, grace_seconds: float) -> tuple[Held, list[str]]:
    """Wait at most `grace_seconds` until only `allowed` threads and descriptors are left.

    Returns what exists then, and the garbage collector's complaints.
    """
    warnings: list[str] = []
    began = time.monotonic()
    is_collected = False
    while (now := held_now()) - allowed and time.monotonic() < began + grace_seconds:
        time.sleep(_PAUSE_SECONDS)
        if not is_collected and time.monotonic() > began + 4 * _PAUSE_SECONDS:
            warnings, is_collected = _collect(), True
    return now, warnings


def _collect() -> list[str]:
    """Run the garbage collector and return its complaints about objects that were not closed."""
    lines: list[str] = []

    def note(unraisable: Any) -> None:
        lines.append(f"closed by the garbage collector only: {unraisable.exc_value}")

    before, sys.unraisablehook = sys.unraisablehook, note
    try:
        gc.collect()
    finally:
        sys.unraisablehook = before
    return lines


def _lost_tasks() -> list[asyncio.Task[Any]]:
    """Return the tasks that can never end because their event loop is closed.

    Up to Python 3.11 asyncio's set of all tasks has another name.
    """
    name = "_all_tasks" if hasattr(asyncio.tasks, "_all_tasks") else "_scheduled_tasks"
    tasks: list[asyncio.Task[Any]] = list(getattr(asyncio.tasks, name))
    return [task for task in tasks if not task.done() and task.get_loop().is_closed()]


def _is_of_grpc(task: asyncio.Task[Any]) -> bool:
    """Return True for gRPC's own tasks, which end shortly after a server or call has ended.

    A channel that is not closed is found by its descriptors.
    """
    code = getattr(task.get_coro(), "cr_code", None)
    return code is not None and "grpc/_cython" in code.co_filename


def _task_line(task: asyncio.Task[Any], why: str) -> str:
    parts = [f"task {task.get_name()!r}, {why}"]
    if task.cancelling():
        parts.append("cancelled but not awaited")
    coroutine: Any = task.get_coro()
    if type(coroutine).__name__ == "async_generator_athrow":
        abandoned = [one for one in gc.get_referents(coroutine) if isinstance(one, AsyncGeneratorType)]
        names = [
            f"{one.__qualname__} at {one.ag_code.co_filename}:{one.ag_code.co_firstlineno}"
            for one in abandoned
        ]
        parts.append(f"closes an asynchronous generator that was left in the middle: {', '.join(names)}")
        return "; ".join(parts)
    origin = getattr(coroutine, "cr_origin", None)
    if origin:
        parts.append("created at " + " from ".join(f"{path}:{line}" for path, line, _ in origin))
    waits = []
    while coroutine is not None:
        frame = getattr(coroutine, "cr_frame", None)
        if frame is None:  # a future or an object with __await__
            break
        waits.append(f"{coroutine.__qualname__} at {frame.f_code.co_filename}:{frame.f_lineno}")
        coroutine = coroutine.cr_await
    parts.append("waits in " + ", ".join(waits or [repr(task.get_coro())]))
    return "; ".join(parts)


def _thread_lines(threads: Iterable[threading.Thread]) -> list[str]:
    lines = []
    for thread in threads:
        kind = "daemon thread" if thread.daemon else "thread"
        target = getattr(thread, "_target", None)
        lines.append(
            f"{kind} {thread.name!r} of {getattr(target, '__qualname__', type(thread).__qualname__)}"
        )
    return sorted(lines)


def _opened_lines(opened: Iterable[Opened]) -> list[str]:
    return [f"file descriptor {number} open on {target}" for number, target in sorted(opened)]


_CHECK = pytest.StashKey[LeakCheck]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option `leak_grace_seconds` to pytest's configuration file."""
    parser.addini(
        "leak_grace_seconds", "seconds for threads and descriptors to end", default=str(GRACE_SECONDS)
    )


def pytest_configure(config: pytest.Config) -> None:
    """Install the leak check for this run of pytest."""
    check = config.stash[_CHECK] = LeakCheck(float(config.getini("leak_grace_seconds")))
    check.install()
    config.pluginmanager.register(check, "kubeletx-leaks")


def pytest_unconfigure(config: pytest.Config) -> None:
    """Uninstall the leak check."""
    config.stash[_CHECK].uninstall()
