"""The contract suite on real QEMU, behind a libvirtd of its own.

Two classes, which together hold the whole suite: the commands of `StreamContract` need a guest agent and share
one machine that boots Linux; everything else gets machines of its own that need no boot.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
from kubeletx_libvirt.config import NetworkTarget, Settings
from kubeletx_libvirt.runtime import LibvirtRuntime

from kubeletx.api import (
    ImageSpec,
    Machine,
    Nic,
    Resources,
    Runtime,
    SandboxSpec,
    SupportsExec,
    UnitSpec,
)
from kubeletx.testing import FakeClock, FakeHost, endpoint
from kubeletx.testing import sandbox_spec as make_sandbox_spec
from kubeletx.testing.contract import RuntimeContract
from kubeletx.testing.contract.base import Pod, supported
from kubeletx.testing.contract.basics import BasicContract
from kubeletx.testing.contract.changes import ChangeContract
from kubeletx.testing.contract.ends import EndContract
from kubeletx.testing.contract.images import ImageContract
from kubeletx.testing.contract.logs import LogContract
from kubeletx.testing.contract.power import PowerContract
from kubeletx.testing.contract.processes import ProcessContract
from kubeletx.testing.contract.sandboxes import SandboxContract
from kubeletx.testing.contract.streams import StreamContract
from kubeletx.testing.contract.units import UnitContract
from kubeletx.testing.contract.usage import UsageContract
from kubeletx_testing.lab import Lab
from kubeletx_testing.lab.libvirt import PrivateLibvirtd
from kubeletx_testing.lab.machines import load_machine_image
from kubeletx_testing.lab.tiny_machine import make_tiny_machine_image
from kubeletx_testing.lab.tools import get_tool

BOOT_SECONDS = 90
BRIDGE = f"kxt{os.getpid()}"
SMALL = Resources(cpu_limit_millicores=1000, memory_limit_bytes=192 << 20)
TINY = Resources(cpu_limit_millicores=1000, memory_limit_bytes=32 << 20)


@pytest.fixture(scope="module")
def libvirtd(lab: Lab) -> Iterator[PrivateLibvirtd]:
    """One for the whole file."""
    one = PrivateLibvirtd(lab.base_dir, name="lv-contract")
    one.start()
    yield one
    one.end()


@pytest.fixture(scope="module")
def bridge() -> Iterator[str]:
    """For the interface that is plugged in."""
    subprocess.run([get_tool("ip"), "link", "add", BRIDGE, "type", "bridge"], check=True)
    yield BRIDGE
    subprocess.run([get_tool("ip"), "link", "delete", BRIDGE], check=True)


@pytest.fixture(scope="module")
def tiny_image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The disk of machines that need no boot."""
    return make_tiny_machine_image(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def commands_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """State and logs of the machine that all tests of commands share."""
    directory = tmp_path_factory.mktemp("commands")
    for name in ("state", "logs"):
        (directory / name).mkdir()
    return directory


def machine_unit(image: Path, resources: Resources) -> UnitSpec:
    """One machine with a console log and a label."""
    return UnitSpec(
        name="main",
        image=ImageSpec(requested=str(image)),
        detail=Machine(hostname="contract"),
        resources=resources,
        log_path="main.log",
        labels={"io.kubernetes.container.name": "main"},
    )


def runtime_maker(
    libvirtd: PrivateLibvirtd, state: Path, image: Path, bridge: str = ""
) -> Callable[[], Runtime]:
    """Makes runtimes over the same libvirt and state."""
    networks = {"extra": NetworkTarget(bridge=bridge)} if bridge else {}
    settings = Settings(accelerator="qemu", image_directories=(str(image.parent),), networks=networks)
    host = FakeHost(state, clock=FakeClock(auto_advance=True))
    return lambda: LibvirtRuntime(endpoint(libvirtd.url, workload_type="vm"), settings, host)


class TestMachines(
    BasicContract,
    SandboxContract,
    UnitContract,
    ProcessContract,
    EndContract,
    LogContract,
    ImageContract,
    ChangeContract,
    UsageContract,
    PowerContract,
):
    """Machines that do nothing but obey the power button and let go of devices."""

    @pytest.fixture
    def make_runtime(
        self, libvirtd: PrivateLibvirtd, bridge: str, tiny_image: Path, tmp_path: Path
    ) -> Callable[[], Runtime]:
        state = tmp_path / "state"
        state.mkdir()
        return runtime_maker(libvirtd, state, tiny_image, bridge)

    @pytest.fixture
    def unit_spec(self, tiny_image: Path) -> UnitSpec:
        return machine_unit(tiny_image, TINY)

    @pytest.fixture
    def extra_nic(self) -> Nic:
        return Nic(name="eth9", network="extra")


class TestCommands(StreamContract):
    """Commands in one machine that has booted: the same pod and unit again find it running."""

    @pytest.fixture
    def make_runtime(self, libvirtd: PrivateLibvirtd, commands_directory: Path) -> Callable[[], Runtime]:
        return runtime_maker(libvirtd, commands_directory / "state", load_machine_image())

    @pytest.fixture
    def sandbox_spec(self, commands_directory: Path) -> SandboxSpec:
        return make_sandbox_spec("commands", log_directory=str(commands_directory / "logs"))

    @pytest.fixture
    def unit_spec(self) -> UnitSpec:
        return machine_unit(load_machine_image(), SMALL)

    @pytest_asyncio.fixture
    async def pod(  # type: ignore[override] # a fixture
        self, runtime: Runtime, sandbox_spec: SandboxSpec, unit_spec: UnitSpec
    ) -> AsyncIterator[Pod]:
        pod = Pod(runtime, sandbox_spec, await runtime.create_sandbox(sandbox_spec))
        unit_id = await pod.start(unit_spec)
        await supported(runtime, SupportsExec).exec_sync(unit_id, ["true"], BOOT_SECONDS)
        yield pod  # goes on for the next test; it ends with libvirtd


def test_the_classes_of_this_file_hold_the_whole_contract() -> None:
    assert {*TestMachines.__bases__, *TestCommands.__bases__} == set(RuntimeContract.__bases__)
