"""The contract suite on a fake runtime in a process of its own."""

from __future__ import annotations

import importlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from kubeletx.api import Runtime
from kubeletx.runtimes.isolation import IsolatedRuntime
from kubeletx.testing import FakeHost, endpoint
from kubeletx.testing.contract import RuntimeContract
from kubeletx.testing.contract.basics import BasicContract
from kubeletx.testing.contract.changes import ChangeContract


class Shared:
    """One isolated runtime for all of a test: the fake's backend lives as long as its process."""

    def __init__(self, runtime: IsolatedRuntime) -> None:
        self._runtime = runtime

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runtime, name)

    async def close(self) -> None:
        """The next object of this test goes on with the same process."""


class TestIsolatedFake(RuntimeContract):
    @pytest.fixture
    async def isolated(self, tmp_path: Path) -> AsyncIterator[IsolatedRuntime]:
        factory = importlib.import_module("tests.unit.runtimes.isolation.isolated_fake").make
        runtime = IsolatedRuntime(factory, endpoint("fake://"), None, FakeHost(tmp_path))
        yield runtime
        await runtime.close()

    @pytest.fixture
    def make_runtime(self, isolated: IsolatedRuntime) -> Callable[[], Runtime]:
        return lambda: Shared(isolated)


class TestIsolatedProcesses(BasicContract, ChangeContract):
    """What concerns restarts, with a runtime whose units outlive its process, so that every restart is a new one."""

    @pytest.fixture
    def make_runtime(self, tmp_path: Path) -> Callable[[], Runtime]:
        from kubeletx_local_process.runtime import ProcessRuntime

        host = FakeHost(tmp_path)
        return lambda: IsolatedRuntime(ProcessRuntime, endpoint("process:///"), None, host)
