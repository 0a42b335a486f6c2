"""The contract suite on real containerd and runc through plugins/quark, with standby by each strategy."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from kubeletx_quark.plugin import make_runtime

from kubeletx.api import Runtime, SystemClock, UnitSpec
from kubeletx.testing import FakeHost, endpoint, unit_spec
from kubeletx.testing.contract import RuntimeContract
from kubeletx.testing.contract.base import RUN
from kubeletx.testing.contract.power import PowerContract
from kubeletx.testing.contract.units import UnitContract
from kubeletx_testing.lab import PrivateContainerd, image_ref


class OnQuark:
    """One handler of the lab's containerd; `parameters` of the endpoint URL differ."""

    parameters = ""

    @pytest.fixture
    def make_runtime(self, containerd_a: PrivateContainerd, tmp_path: Path) -> Callable[[], Runtime]:
        def make() -> Runtime:
            # Freezing waits for the kernel, which does not follow a fake clock.
            host = FakeHost(tmp_path, clock=SystemClock())
            return make_runtime(endpoint(f"{containerd_a.endpoint}?{self.parameters}"), None, host)

        return make

    @pytest.fixture
    def unit_spec(self) -> UnitSpec:
        return unit_spec("main", image=image_ref("busybox"), command=("sh", "-c", RUN), log_path="main.log")


class TestFreezer(OnQuark, RuntimeContract):
    """The cgroup's freezer."""

    parameters = "handler=runc"


class TestPause(OnQuark, PowerContract):
    """Pause and Resume of the task service."""

    parameters = "strategy=pause"


class TestSignal(OnQuark, PowerContract, UnitContract):
    """SIGSTOP and SIGCONT, and stops by the task service."""

    parameters = "strategy=signal&stop=kill"
