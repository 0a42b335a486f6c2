"""The contract suite on real QEMU, behind a libvirtd of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kubeletx_libvirt.config import Settings
from kubeletx_libvirt.runtime import LibvirtRuntime

from kubeletx.api import ImageSpec, Machine, Resources, Runtime, UnitSpec
from kubeletx.testing import FakeClock, FakeHost, endpoint
from kubeletx.testing.contract import RuntimeContract
from kubeletx.testing.lab import Lab
from kubeletx.testing.lab.libvirt import PrivateLibvirtd
from kubeletx.testing.lab.machines import load_machine_image

SMALL = Resources(cpu_limit_millicores=1000, memory_limit_bytes=192 << 20)


@pytest.fixture(scope="module")
def libvirtd(lab: Lab) -> Iterator[PrivateLibvirtd]:
    """One for the whole file."""
    one = PrivateLibvirtd(lab.base_dir, name="lv-contract")
    one.start()
    yield one
    one.end()


class TestLibvirt(RuntimeContract):
    """Machines that boot the lab's image."""

    @pytest.fixture
    def make_runtime(self, libvirtd: PrivateLibvirtd, tmp_path: Path) -> Callable[[], Runtime]:
        state = tmp_path / "state"
        state.mkdir()
        host = FakeHost(state, clock=FakeClock(auto_advance=True))
        settings = Settings(accelerator="qemu", image_directories=(str(load_machine_image().parent),))

        def make() -> Runtime:
            return LibvirtRuntime(endpoint(libvirtd.url, workload_type="vm"), settings, host)

        return make

    @pytest.fixture
    def unit_spec(self) -> UnitSpec:
        return UnitSpec(
            name="main",
            image=ImageSpec(requested=str(load_machine_image())),
            detail=Machine(hostname="contract"),
            resources=SMALL,
            log_path="main.log",
            labels={"io.kubernetes.container.name": "main"},
        )
