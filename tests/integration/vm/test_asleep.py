"""The agent did not run for a while, as on a node that was paused: libvirtd has closed its connection meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kubeletx.kube.types.core import Pod
from kubeletx_testing.lab import Lab, PrivateAgent, put_manifest, sweep
from kubeletx_testing.lab.libvirt import PrivateLibvirtd
from kubeletx_testing.lab.tiny_machine import make_tiny_machine_image
from tests.integration.support.machines import is_running, machine_agent, machine_manifest
from tests.integration.support.survival import container, until

TINY = {"limits": {"cpu": "1", "memory": "16Mi"}, "requests": {"cpu": "10m"}}

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def libvirtd(lab: Lab) -> Iterator[PrivateLibvirtd]:
    one = PrivateLibvirtd(lab.base_dir, name="lv-asleep", patience_seconds=6)
    one.start()
    yield one
    one.end()


def test_machines_start_restart_and_end_after_libvirtd_gave_up_a_sleeping_agent(
    lab: Lab,
    libvirtd: PrivateLibvirtd,
    make_agent: Callable[..., PrivateAgent],
    manifests: Path,
    tmp_path: Path,
) -> None:
    image = make_tiny_machine_image(tmp_path)

    def put(name: str) -> Path:
        return put_manifest(
            manifests, machine_manifest(name, image=str(image), machine={"resources": TINY, "name": "main"})
        )

    agent = machine_agent(lab, make_agent, endpoints=libvirtd.endpoint, imageDirectories=[str(tmp_path)])
    agent.start()
    put("ends")
    agent.wait_for("ends", is_running, timeout_seconds=150)
    (ending,) = libvirtd.emulators()
    put("stays")
    stays = machine_of(agent.wait_for("stays", is_running))
    assert agent.daemon is not None
    agent.daemon.pause()
    until(lambda: libvirtd.count_connections() == 0, "the end of the silent connection")
    sweep.end_processes([ending])
    agent.daemon.resume()
    put("new")
    agent.wait_for("new", is_running)
    agent.wait_for("ends", lambda pod: is_running(pod) and container(pod).restart_count == 1)
    assert machine_of(agent.wait_for("stays", is_running)) == stays
    for name in ("ends", "stays", "new"):
        (manifests / f"{name}.json").unlink()
    for name in ("ends", "stays", "new"):
        agent.wait_gone(name)
    assert libvirtd.emulators() == []


def machine_of(pod: Pod) -> tuple[str | None, int]:
    """Which domain the pod's machine is, and how often it was started again."""
    one = container(pod)
    return one.container_id, one.restart_count
