"""The contract suite on the fake, once with everything and once with as little as is allowed."""

from collections.abc import Callable

import pytest

from kubeletx.api import CAPABILITIES, LogMode, Runtime, Traits
from kubeletx.testing.contract import RuntimeContract
from kubeletx_testing.suite_fake import SuiteFakeRuntime, suite_backend


class TestFakeRuntime(RuntimeContract):
    @pytest.fixture
    def make_runtime(self) -> Callable[[], Runtime]:
        backend = suite_backend()
        return lambda: SuiteFakeRuntime(backend)


class TestFakeRuntimeThatStreamsItsLogs(RuntimeContract):
    @pytest.fixture
    def make_runtime(self) -> Callable[[], Runtime]:
        backend = suite_backend()
        traits = Traits(details=("process", "machine"), images=False, log_mode=LogMode.STREAM)
        return lambda: SuiteFakeRuntime(backend=backend, traits=traits, without=CAPABILITIES[:7])
