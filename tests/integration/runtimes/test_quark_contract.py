"""The contract suite on real containerd and runc through plugins/quark, with standby."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from kubeletx_quark.plugin import make_runtime

from kubeletx.api import Runtime, UnitSpec
from kubeletx.runtimes.host.clock import SystemClock
from kubeletx.testing import FakeHost, endpoint, unit_spec
from kubeletx.testing.contract import RuntimeContract
from kubeletx.testing.contract.base import RUN
from kubeletx_testing.lab import PrivateContainerd, image_ref


class TestQuark(RuntimeContract):
    """One handler of the lab's containerd, frozen by the freezer of its cgroups."""

    @pytest.fixture
    def make_runtime(self, containerd_a: PrivateContainerd, tmp_path: Path) -> Callable[[], Runtime]:
        def make() -> Runtime:
            # Freezing waits for the kernel, which does not follow a fake clock.
            host = FakeHost(tmp_path, clock=SystemClock())
            return make_runtime(endpoint(containerd_a.endpoint + "?handler=runc"), None, host)

        return make

    @pytest.fixture
    def unit_spec(self) -> UnitSpec:
        return unit_spec("main", image=image_ref("busybox"), command=("sh", "-c", RUN), log_path="main.log")
