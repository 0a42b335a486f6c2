"""The contract suite for plugins' health checks (`kubeletx.api.HealthCheck`)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from kubeletx.api import CheckResult, HealthCheck, Severity

from .held import never_blocks

TIMEOUT_SECONDS = 10.0
"""The agent's default for ``kubeletx.pluginHealthCheckTimeout``."""


class HealthCheckContract:
    """Tests that every implementation of `kubeletx.api.HealthCheck` must pass.

    Subclass it and define the fixtures `make_check` and `make_failing`.
    """

    pytestmark = pytest.mark.asyncio

    @pytest.fixture
    def make_check(self) -> Callable[[], HealthCheck]:
        """Function that returns a new check that passes, as the plugin's factory does. You must override this."""
        raise NotImplementedError("override the fixture make_check in your subclass of HealthCheckContract")

    @pytest.fixture
    def make_failing(self) -> Callable[[], HealthCheck]:
        """Function that returns a new check that fails. You must override this."""
        raise NotImplementedError("override the fixture make_failing in your subclass of HealthCheckContract")

    async def test_it_passes(self, make_check: Callable[[], HealthCheck]) -> None:
        assert (await look(make_check())).ok

    async def test_a_failure_has_a_severity_and_one_line_for_people(
        self, make_failing: Callable[[], HealthCheck]
    ) -> None:
        result = await look(make_failing())
        assert not result.ok
        assert isinstance(result.severity, Severity)
        assert result.message.strip()
        assert "\n" not in result.message

    async def test_it_checks_again_and_again(self, make_check: Callable[[], HealthCheck]) -> None:
        check = make_check()
        for _ in range(3):
            assert (await look(check)).ok

    async def test_it_can_be_cancelled_and_checks_again_afterwards(
        self, make_check: Callable[[], HealthCheck]
    ) -> None:
        check = make_check()
        task = asyncio.create_task(as_coroutine(check), name="check")
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task], timeout=TIMEOUT_SECONDS)
        assert task.done(), "it goes on after its cancellation"
        assert (await look(check)).ok


async def look(check: HealthCheck) -> CheckResult:
    """Run the check and return its result.

    Fails the test if the check takes longer than `TIMEOUT_SECONDS`, or blocks the event loop.
    """
    async with asyncio.timeout(TIMEOUT_SECONDS):
        result = await never_blocks(check.check(), "check")
    assert isinstance(result, CheckResult)
    return result


async def as_coroutine(check: HealthCheck) -> CheckResult:
    """Run the check and return its result.

    This is a coroutine even if the check's method returns another awaitable, so that it can become a task.
    """
    return await check.check()
