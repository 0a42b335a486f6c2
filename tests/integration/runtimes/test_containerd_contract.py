"""The contract suite on real containerd, as one runtime handler of it and as the whole server."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kubeletx.api import Runtime, UnitSpec
from kubeletx.cri import ContainerdRuntime
from kubeletx.testing import FakeClock, FakeHost, endpoint, unit_spec
from kubeletx.testing.contract import RuntimeContract
from kubeletx.testing.contract.base import RUN
from kubeletx.testing.contract.basics import BasicContract
from kubeletx.testing.contract.changes import ChangeContract
from kubeletx.testing.contract.sandboxes import SandboxContract
from kubeletx.testing.contract.units import UnitContract
from kubeletx.testing.contract.usage import UsageContract
from kubeletx_testing.lab import PrivateContainerd, image_ref


class OnContainerd:
    """The lab's image; `parameters` of the endpoint URL differ."""

    parameters = ""

    @pytest.fixture
    def make_runtime(self, containerd_a: PrivateContainerd, tmp_path: Path) -> Callable[[], Runtime]:
        def make() -> Runtime:
            host = FakeHost(tmp_path, clock=FakeClock(auto_advance=True))
            return ContainerdRuntime(endpoint(containerd_a.endpoint + self.parameters), None, host)

        return make

    @pytest.fixture
    def unit_spec(self) -> UnitSpec:
        return unit_spec("main", image=image_ref("busybox"), command=("sh", "-c", RUN), log_path="main.log")


class TestContainerd(OnContainerd, RuntimeContract):
    """The server's default handler."""


class TestHandlerOfContainerd(
    OnContainerd, BasicContract, SandboxContract, UnitContract, ChangeContract, UsageContract
):
    """One runtime handler as a runtime of its own, where a handler matters: health, sandboxes, lists, events."""

    parameters = "?handler=runc-two"
