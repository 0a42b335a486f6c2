"""A machine's life through the agent, on real QEMU."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from kubeletx_testing.lab import Lab, PrivateAgent, bound_runtime, put_manifest
from kubeletx_testing.lab.tiny_machine import UP, make_tiny_machine_image
from tests.integration.support.machines import (
    emulators,
    files_below,
    is_running,
    machine_agent,
    machine_manifest,
    wait_console,
)
from tests.integration.support.survival import until

MakeAgent = Callable[..., PrivateAgent]


def test_a_machine_runs_as_a_pod_survives_the_agent_and_leaves_nothing(
    make_agent: MakeAgent, manifests: Path, lab: Lab, tmp_path: Path
) -> None:
    image = make_tiny_machine_image(tmp_path)
    agent = machine_agent(lab, make_agent, imageDirectories=[str(tmp_path)])
    agent.start()
    path = put_manifest(manifests, machine_manifest("vm", image=str(image)))
    pod = agent.wait_for("vm", is_running, timeout_seconds=60)
    assert bound_runtime(pod) == "libvirt-qemu"
    assert "vm-lab" in agent.cli("get", "pods").stdout
    wait_console(agent, "vm-lab", UP)
    ((process, _),) = emulators(agent).items()
    for end in (agent.stop, agent.kill):
        end()
        assert list(emulators(agent)) == [process]
        agent.start()
        again = agent.wait_for("vm", is_running)
        assert list(emulators(agent)) == [process]
        assert again.status.start_time == pod.status.start_time
        assert again.status.virtual_machine_status is not None or again.status.container_statuses
    path.unlink()
    agent.wait_gone("vm", timeout_seconds=40)
    until(lambda: not emulators(agent), "the emulator's end")
    state = agent.root_dir / "runtimes" / "libvirt-qemu"
    assert [name for name in files_below(state) if name.startswith(("disks/", "units/"))] == []
