"""Pods with clients end in a whole agent on containerd: the containers run until the clients are gone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kubeletx.kube.types.core import Pod
from kubeletx_testing.lab import PrivateAgent, pod_manifest, put_manifest
from kubeletx_testing.lab.logind import PrivateLogind
from tests.integration.support.evacuating_agent import CLIENTS, ROOT, EvacuatingAgent
from tests.integration.support.survival import JSON, log_lines, until

MakeAgent = Callable[..., PrivateAgent]
GRACE_SECONDS = 300
"""So long that no wait for a client ends by itself, however busy the machine is."""
CONFIG = f"""
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
shutdownGracePeriod: {GRACE_SECONDS + 60}s
shutdownGracePeriodCriticalPods: 60s
"""


class Clients:
    """Clients of pods, as files, and the agent that has them."""

    def __init__(self, agent: PrivateAgent, directory: Path) -> None:
        self.agent = agent
        self._directory = directory

    def join(self, name: str) -> None:
        (self._directory / name).touch()

    def leave(self, name: str) -> None:
        (self._directory / name).unlink()

    def wait_asked(self, name: str) -> None:
        """Wait until the clients of the pod are asked to leave; no container is stopped before that."""
        asked = self._directory / f"{name}.leaves"
        until(asked.exists, f"the evacuation of {name}")
        assert 0 < float(asked.read_text()) < GRACE_SECONDS
        asked.unlink()
        assert not self.stopped()

    def pod(self, name: str) -> Pod:
        return next(pod for pod in self.agent.pods() if pod.name == name)

    def stopped(self) -> list[str]:
        """Lines of the agent's log about evacuations and stops, in order."""
        words = ("Evacuated pod", "Stopped container")
        return [line["event"] for line in log_lines(self.agent) if line.get("event") in words]

    def wait_failed(self, name: str, reason: str) -> None:
        until(lambda: self.pod(name).status.phase == "Failed", f"the end of {name}")
        assert self.pod(name).status.reason == reason
        assert self.stopped() == ["Evacuated pod", "Stopped container"]


@pytest.fixture
def make(make_agent: MakeAgent, tmp_path: Path) -> Callable[..., Clients]:
    """Makes a started agent on one containerd with clients; takes flags and variables of the agent."""

    def made(*flags: str, **env: str) -> Clients:
        directory = tmp_path / "clients"
        directory.mkdir()
        env |= {CLIENTS: str(directory), "PYTHONPATH": str(ROOT)}
        agent = make_agent(kind=EvacuatingAgent, flags=(JSON, *flags), env=env)
        agent.start()
        return Clients(agent, directory)

    return made


@pytest.fixture
def host(tmp_path: Path) -> Iterator[PrivateLogind]:
    directory = tmp_path / "bus"
    directory.mkdir()
    with PrivateLogind(directory) as one:
        yield one


def apply(clients: Clients, directory: Path, name: str, **parts: Any) -> None:
    parts["spec"] = {"terminationGracePeriodSeconds": GRACE_SECONDS}
    path = put_manifest(directory, pod_manifest(name, **parts))
    done = clients.agent.cli("apply", "-f", str(path))
    assert done.returncode == 0, done.stderr
    clients.agent.wait_for(name)
    clients.join(name)


def test_a_deletion_waits_for_clients_also_after_a_crash_of_the_agent(
    make: Callable[..., Clients], tmp_path: Path
) -> None:
    clients = make()
    apply(clients, tmp_path, "web")
    assert clients.agent.cli("delete", "pod", "web", "--no-wait").returncode == 0
    clients.wait_asked("web")
    clients.agent.kill()
    clients.agent.start()
    clients.wait_asked("web")
    clients.leave("web")
    until(lambda: not clients.agent.pods(), "the removal of the pod")
    assert clients.stopped() == ["Evacuated pod", "Stopped container"]


def test_an_evicted_pod_is_evacuated(make: Callable[..., Clients], tmp_path: Path) -> None:
    clients = make()
    apply(clients, tmp_path, "web", container={"resources": {"requests": {"memory": "1Mi"}}})
    clients.agent.stop()
    soft = ("--eviction-soft=memory.available<1Ei", "--eviction-soft-grace-period=memory.available=1s")
    clients.agent.flags = (*clients.agent.flags, *soft, f"--eviction-max-pod-grace-period={GRACE_SECONDS}")
    clients.agent.start()
    clients.wait_asked("web")
    clients.leave("web")
    clients.wait_failed("web", "Evicted")


def test_a_shutdown_of_the_host_waits_for_clients(
    make: Callable[..., Clients], host: PrivateLogind, tmp_path: Path
) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(CONFIG)
    clients = make(f"--config={config}", DBUS_SYSTEM_BUS_ADDRESS=host.address)
    host.said("locked shutdown kubeletx delay")
    apply(clients, tmp_path, "web")
    host.tell("begin")
    host.tell("wait")
    clients.wait_asked("web")
    clients.leave("web")
    host.said("released")
    clients.wait_failed("web", "Terminated")
