"""How guests end by themselves, told apart and followed by restartPolicy, through the agent on real QEMU.

Most of it is done by machines that need no boot and do at a key press what a guest does by itself (`Does`), each
against QEMU's real devices: power management, reset, panic device, i6300esb watchdog. Two guests with a kernel of
their own show that Linux uses the same ones; that one shuts itself down is in test_vm_console.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kubeletx.kube.types.core import Pod
from kubeletx.kube.types.status import ContainerStateTerminated, ContainerStatus
from kubeletx_testing.lab import Lab, PrivateAgent, put_manifest
from kubeletx_testing.lab.machines import UP, Kernel, load_machine_image
from kubeletx_testing.lab.tiny_machine import UP as TINY_UP
from kubeletx_testing.lab.tiny_machine import Does, make_tiny_machine_image
from tests.integration.support.machines import (
    Keyboards,
    emulators,
    machine_agent,
    machine_manifest,
    wait_console,
)
from tests.integration.support.survival import until

MakeAgent = Callable[..., PrivateAgent]
QUICK_RESTARTS = {"crashLoopBackOff": {"maxContainerRestartPeriod": "1s"}}

SHUT_DOWN = (0, "Completed")
PANICKED = (1, "GuestPanicked")
WATCHDOG = (1, "Watchdog")
CRASHED = (1, "GuestCrashed")


class Machines:
    """Tiny machines of one agent."""

    def __init__(self, agent: PrivateAgent, manifests: Path, image: Path) -> None:
        self.agent = agent
        self.manifests = manifests
        self.image = image
        self.keyboards = Keyboards()

    def make(self, name: str, policy: str) -> None:
        """A pod with one; it comes up later."""
        machine = {"resources": {"requests": {"cpu": "10m"}, "limits": {"memory": "32Mi"}}}
        put_manifest(
            self.manifests,
            machine_manifest(name, image=str(self.image), machine=machine, spec={"restartPolicy": policy}),
        )

    def sit_down(self, name: str, *, restarts: int = 0) -> Pod:
        """At its console once it runs for the `restarts`th time again and has printed that it is up."""
        pod = self.agent.wait_for(name, lambda pod: _runs(pod, restarts), timeout_seconds=90)
        wait_console(self.agent, pod.metadata.name, TINY_UP, timeout_seconds=90)
        self.keyboards.sit_down(self.agent, pod.metadata.name)
        return pod

    def let(self, name: str, does: Does, *, restarts: int = 0) -> None:
        """Let it do something."""
        pod = self.sit_down(name, restarts=restarts)
        self.keyboards.type(pod.metadata.name, does.value)

    def wait_restarted(self, name: str, restarts: int, *, because: tuple[int, str]) -> Pod:
        """Until it runs again; how it ended before stands in its last state."""
        pod = self.agent.wait_for(name, lambda pod: _runs(pod, restarts), timeout_seconds=90)
        assert _ended(_main(pod).last_state.terminated) == because
        machine = pod.status.virtual_machine_status
        assert machine is not None
        assert (machine.last_termination_state, machine.power_state) == (because[1], "running")
        return pod

    def wait_over(self, name: str, phase: str, *, because: tuple[int, str], power: str) -> None:
        """Until the pod has ended for good; how stands in its state."""
        pod = self.agent.wait_for(name, lambda pod: pod.status.phase == phase, timeout_seconds=90)
        assert _ended(_main(pod).state.terminated) == because
        machine = pod.status.virtual_machine_status
        assert machine is not None
        assert (machine.state, machine.power_state) == ("Terminated", power)


@pytest.fixture
def machines(lab: Lab, make_agent: MakeAgent, manifests: Path, tmp_path: Path) -> Iterator[Machines]:
    image = make_tiny_machine_image(tmp_path)
    agent = machine_agent(
        lab, make_agent, kubelet=QUICK_RESTARTS, watchdog=True, imageDirectories=[str(tmp_path)]
    )
    agent.start()
    one = Machines(agent, manifests, image)
    yield one
    one.keyboards.close()


def test_what_a_guest_does_by_itself_is_distinguished_and_follows_the_restart_policy(
    machines: Machines,
) -> None:
    for name, policy in (("always", "Always"), ("failure", "OnFailure"), ("never", "Never")):
        machines.make(name, policy)
    machines.make("never-reboots", "Never")

    machines.let("always", Does.REBOOT)
    machines.let("failure", Does.PANIC)
    machines.let("never", Does.HANG)
    machines.let("never-reboots", Does.REBOOT)
    rebooted = machines.agent.wait_for("never-reboots", lambda pod: _runs(pod, 1), timeout_seconds=90)
    assert _main(rebooted).last_state.terminated is None, "a reboot ends nothing"
    machines.wait_restarted("failure", 1, because=PANICKED)
    machines.wait_over("never", "Failed", because=WATCHDOG, power="crashed")

    machines.let("always", Does.POWER_OFF, restarts=1)
    machines.let("never-reboots", Does.POWER_OFF, restarts=1)
    pod = machines.sit_down("failure", restarts=1)
    os.kill(_emulator_of(machines.agent, pod), signal.SIGKILL)
    machines.wait_restarted("always", 2, because=SHUT_DOWN)  # the reboot counts too
    machines.wait_over("never-reboots", "Succeeded", because=SHUT_DOWN, power="shutdown")
    machines.wait_restarted("failure", 2, because=CRASHED)

    machines.let("always", Does.HANG, restarts=2)
    machines.let("failure", Does.POWER_OFF, restarts=2)
    machines.wait_restarted("always", 3, because=WATCHDOG)
    machines.wait_over("failure", "Succeeded", because=SHUT_DOWN, power="shutdown")
    until(lambda: len(emulators(machines.agent)) == 1, "the end of all emulators but one")


def test_what_a_guest_did_while_the_agent_was_away_is_found_out_and_follows_the_policy_too(
    machines: Machines,
) -> None:
    policies = {"panics": "Never", "hangs": "Always", "stops": "OnFailure", "panics-again": "OnFailure"}
    for name, policy in policies.items():
        machines.make(name, policy)
    pods = {name: machines.sit_down(name) for name in policies}
    still = {name: _emulator_of(machines.agent, pod) for name, pod in pods.items()}
    machines.agent.kill()
    does = {
        "panics": Does.PANIC,
        "hangs": Does.HANG,
        "stops": Does.POWER_OFF,
        "panics-again": Does.PANIC,
    }
    for name, pod in pods.items():
        machines.keyboards.type(pod.metadata.name, does[name].value)
    machines.agent.start()
    machines.wait_over("panics", "Failed", because=PANICKED, power="crashed")
    machines.wait_over("stops", "Succeeded", because=SHUT_DOWN, power="shutdown")
    machines.wait_restarted("hangs", 1, because=WATCHDOG)
    machines.wait_restarted("panics-again", 1, because=PANICKED)
    until(
        lambda: len(emulators(machines.agent)) == 2 and not still.values() & emulators(machines.agent).keys(),
        "the end of the emulators of dead guests",
    )


def test_a_guest_with_a_kernel_reboots_while_the_agent_is_away_and_panics_and_is_distinguished(
    make_agent: MakeAgent, manifests: Path, lab: Lab
) -> None:
    agent = machine_agent(lab, make_agent, kubelet=QUICK_RESTARTS)
    agent.start()
    put_manifest(manifests, machine_manifest("linux", spec={"restartPolicy": "OnFailure"}))
    pod = agent.wait_for("linux", lambda pod: _runs(pod, 0), timeout_seconds=60).metadata.name
    wait_console(agent, pod, UP, timeout_seconds=120)
    machine_id = _main(agent.wait_for("linux", lambda pod: _runs(pod, 0))).container_id

    _run_in_guest(agent, pod, "reboot", seconds=5)
    agent.stop()
    (console,) = agent.logs_dir.glob(f"*{pod}*/*/0.raw")
    until(lambda: console.read_text(errors="replace").count(UP) == 2, "the second boot", seconds=120)
    agent.start()
    unheard = agent.wait_for("linux", lambda pod: _runs(pod, 1), timeout_seconds=60)
    assert _main(unheard).container_id == machine_id
    assert _main(unheard).last_state.terminated is None

    _run_in_guest(agent, pod, "echo c > /proc/sysrq-trigger")
    panicked = agent.wait_for("linux", lambda pod: _runs(pod, 2), timeout_seconds=60)
    assert _main(panicked).container_id != machine_id
    assert _ended(_main(panicked).last_state.terminated) == PANICKED
    assert agent.cli("logs", "--previous", pod).stdout.count(UP) == 2


@pytest.mark.long
def test_a_guest_whose_kernel_is_not_told_that_all_is_well_ends_by_its_watchdog(
    make_agent: MakeAgent, manifests: Path, lab: Lab
) -> None:
    agent = machine_agent(lab, make_agent, watchdog=True)
    agent.start()
    image = str(load_machine_image(kernel=Kernel.GENERIC))  # the cloud kernel has no driver for it
    put_manifest(manifests, machine_manifest("linux", image=image, spec={"restartPolicy": "Never"}))
    pod = agent.wait_for("linux", lambda pod: _runs(pod, 0), timeout_seconds=60).metadata.name
    wait_console(agent, pod, UP, timeout_seconds=120)
    _run_in_guest(agent, pod, "watchdog -F -T 2 -t 600 /dev/watchdog")
    failed = agent.wait_for("linux", lambda pod: pod.status.phase == "Failed", timeout_seconds=60)
    assert _ended(_main(failed).state.terminated) == WATCHDOG


def _run_in_guest(agent: PrivateAgent, pod: str, command: str, *, seconds: int = 1) -> None:
    """Through the guest agent; a moment later, so that the agent can still answer."""
    script = f"(sleep {seconds}; {command}) >/dev/null 2>&1 &"

    def is_begun() -> bool:
        return agent.cli("exec", pod, "--", "sh", "-c", script).returncode == 0

    until(is_begun, "the guest agent to take a command")


def _emulator_of(agent: PrivateAgent, pod: Pod) -> int:
    """Process id; the domain's name, which is on the command line, begins its id."""
    machine_id = (_main(pod).container_id or "").rpartition("/")[2]
    (found,) = [pid for pid, line in emulators(agent).items() if f"kx-{machine_id[:8]}" in line]
    return found


def _main(pod: Pod) -> ContainerStatus:
    (status,) = pod.status.container_statuses
    return status


def _runs(pod: Pod, restarts: int) -> bool:
    return any(
        one.state.running is not None and one.restart_count == restarts
        for one in pod.status.container_statuses
    )


def _ended(state: ContainerStateTerminated | None) -> tuple[int, str]:
    return (state.exit_code, state.reason or "") if state is not None else (-1, "it did not end")
