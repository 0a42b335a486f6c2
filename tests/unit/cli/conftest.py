"""A fake agent on a real unix socket, in a thread of its own, and the command line in front of it."""

from __future__ import annotations

import asyncio
import importlib
import threading
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import pytest
from click.testing import CliRunner, Result

from kubeletx.cli.main import cli
from kubeletx.server.admin.socket import AdminServer
from tests.unit.server.fake_admin import FakeAdminBackend

T = TypeVar("T")
NOW = datetime(2026, 1, 1, 12, 10, 0, tzinfo=UTC)


class Agent:
    """The fake agent's side."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.backend = FakeAdminBackend()
        self.loop = asyncio.new_event_loop()
        self._server = AdminServer(backend=self.backend.parts, socket_path=root / "kubeletx.sock")
        self._thread = threading.Thread(target=self.loop.run_forever, name="fake-agent")

    def start(self) -> None:
        self._thread.start()
        self.run(self._server.start)

    def stop(self) -> None:
        self.run(self._server.stop)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()

    def run(self, function: Callable[..., Awaitable[T]], *args: Any) -> T:
        """Call in the agent's loop."""

        async def call() -> T:
            return await function(*args)

        return asyncio.run_coroutine_threadsafe(call(), self.loop).result(10)

    def soon(self, function: Callable[..., object], *args: Any) -> None:
        """Do something in the agent's loop, not waiting for it."""
        self.loop.call_soon_threadsafe(function, *args)


@pytest.fixture(autouse=True)
def has_no_fork_handlers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set what the command line sets for its process, so that no test changes the environment."""
    monkeypatch.setenv("GRPC_ENABLE_FORK_SUPPORT", "false")


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    made = Agent(tmp_path)
    made.start()
    yield made
    made.stop()


@pytest.fixture
def kubeletx(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Run a command against the agent of this test; `input` is its standard input."""
    for name in ("output.printers", "commands.describe", "commands.version"):
        monkeypatch.setattr(importlib.import_module(f"kubeletx.cli.{name}"), "now", lambda: NOW)

    def run(*args: str, input: str | None = None) -> Result:
        return CliRunner().invoke(
            cli, ["--root-dir", str(tmp_path), *args], input=input, prog_name="kubeletx"
        )

    return run
