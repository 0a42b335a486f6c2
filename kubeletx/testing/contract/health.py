"""The contract suite for plugins' health checks (`kubeletx.api.HealthCheck`)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kubeletx.api import CheckResult, HealthCheck, Severity

from .calls import plugin_of
from .failures import about
from .shared import Maker, NewObject, SuiteBase, answer_of, cancel_one_call


class HealthCheckContract(SuiteBase):
    """Tests that every implementation of `kubeletx.api.HealthCheck` must pass.

    Subclass it and define the fixtures `make_check` and `make_failing`.
    """

    @pytest.fixture
    def make_check(self) -> Callable[[], HealthCheck]:
        """Function that returns a new check that passes, as the plugin's factory does. You must override this."""
        raise NotImplementedError("override the fixture make_check in your subclass of HealthCheckContract")

    @pytest.fixture
    def make_failing(self) -> Callable[[], HealthCheck]:
        """Function that returns a new check that fails. You must override this."""
        raise NotImplementedError("override the fixture make_failing in your subclass of HealthCheckContract")

    @pytest.fixture
    def new_check(self, make_check: Callable[[], HealthCheck], maker: Maker) -> NewObject[HealthCheck]:
        """The function of `make_check`; calls of its checks have time limits."""
        return maker.of(make_check, HealthCheck)

    @pytest.fixture
    def new_failing(self, make_failing: Callable[[], HealthCheck], maker: Maker) -> NewObject[HealthCheck]:
        """The function of `make_failing`; calls of its checks have time limits."""
        return maker.of(make_failing, HealthCheck)

    async def test_it_passes(self, new_check: NewObject[HealthCheck]) -> None:
        await passes(new_check())

    async def test_a_failure_has_a_severity_and_one_line_for_people(
        self, new_failing: NewObject[HealthCheck]
    ) -> None:
        result = await look(new_failing())
        assert not result.ok, "the check of make_failing returned ok=True"
        assert isinstance(result.severity, Severity), f"severity is {result.severity!r}"
        assert result.message.strip(), "message is empty"
        assert "\n" not in result.message, f"message has more than one line: {result.message!r}"

    async def test_it_checks_again_and_again(self, new_check: NewObject[HealthCheck]) -> None:
        check = new_check()
        for _ in range(3):
            await passes(check)

    @about("check")
    async def test_it_can_be_cancelled_and_checks_again_afterwards(
        self, new_check: NewObject[HealthCheck]
    ) -> None:
        check = new_check()
        await cancel_one_call(new_check.calls, "check", plugin_of(check).check)
        await passes(check)


async def look(check: HealthCheck) -> CheckResult:
    """Run the check and return its result."""
    result: CheckResult = answer_of("check", await check.check(), CheckResult)
    return result


async def passes(check: HealthCheck) -> None:
    """Run the check; fail the test unless it passes."""
    result = await look(check)
    assert result.ok, f"the check of make_check failed: {result.message!r}"
