"""Other ways to a libvirtd than its socket: its TCP port works as long as it is this machine's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kubeletx_testing.lab import Lab, PrivateAgent, free_port, put_manifest
from kubeletx_testing.lab.libvirt import PrivateLibvirtd
from kubeletx_testing.lab.tiny_machine import UP, make_tiny_machine_image
from tests.integration.support.bench import until
from tests.integration.support.machines import is_running, machine_agent, machine_manifest, wait_console

TINY = {"limits": {"cpu": "1", "memory": "16Mi"}, "requests": {"cpu": "10m"}}

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def libvirtd(lab: Lab) -> Iterator[PrivateLibvirtd]:
    one = PrivateLibvirtd(lab.base_dir, name="lv-tcp", tcp_port=free_port())
    one.start()
    yield one
    one.end()


def test_a_machine_of_a_libvirtd_on_a_loopback_port_is_like_any_other(
    lab: Lab,
    libvirtd: PrivateLibvirtd,
    make_agent: Callable[..., PrivateAgent],
    manifests: Path,
    tmp_path: Path,
) -> None:
    image = make_tiny_machine_image(tmp_path)
    endpoint = f"vm:lv-tcp:{libvirtd.tcp_url}"
    agent = machine_agent(lab, make_agent, endpoints=endpoint, imageDirectories=[str(tmp_path)])
    agent.start()
    put_manifest(manifests, machine_manifest("tcp", image=str(image), machine={"resources": TINY}))
    agent.wait_for("tcp", is_running, timeout_seconds=150)
    wait_console(agent, "tcp-lab", UP)
    libvirtd.kill()
    libvirtd.start()
    until(lambda: agent.cli("vm", "stop", "tcp-lab").returncode == 0, "the new libvirtd")
    until(lambda: libvirtd.emulators() == [], "the end of the machine")
    assert agent.cli("vm", "start", "tcp-lab").returncode == 0
    until(lambda: agent.cli("logs", "tcp-lab").stdout.count(UP) == 2, "the machine's next run")
    (manifests / "tcp.json").unlink()
    agent.wait_gone("tcp", timeout_seconds=60)
    assert libvirtd.emulators() == []


def test_a_libvirt_of_another_machine_is_a_runtime_that_is_not_ready_and_says_why(
    lab: Lab, make_agent: Callable[..., PrivateAgent]
) -> None:
    agent = machine_agent(lab, make_agent, endpoints="vm:far:qemu+ssh://root@far.example/system")
    agent.start()
    states = {one.name: one.status for one in agent.runtimes()}
    assert states["far"] == "NotReady"
    assert (
        "qemu+ssh://root@far.example/system is a libvirt on another machine, far.example"
        in agent.log_path.read_text()
    )
