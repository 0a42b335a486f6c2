"""``kubeletx vm list``, ``ip``, ``ssh`` and ``vnc``."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from kubeletx.kube.types.core import ObjectMeta, Pod, PodIP, PodSpec, PodStatus, VirtualMachine
from kubeletx.server.views import MachineView, NicView
from tests.unit.cli.commands.objects import T0, Run, pod


@pytest.fixture(autouse=True)
def machine(agent: Any) -> None:
    agent.backend.put(pod())
    agent.backend.put(
        Pod(
            metadata=ObjectMeta(name="vm", namespace="default"),
            spec=PodSpec(virtual_machine=VirtualMachine(name="main", image="i")),
            status=PodStatus(phase="Running", start_time=T0, pod_ips=(PodIP(ip="10.0.0.7"),)),
        )
    )
    agent.backend.machines.machines["default", "vm"] = MachineView(
        namespace="default", name="vm", machine="main", runtime="kvm", power="running"
    )
    agent.backend.machines.nics = {
        "eth0": NicView(name="eth0", state="attached", ips=("10.0.0.7/24", "fd00::7"))
    }


def test_machines_are_listed_without_pods_of_containers(agent: Any, kubeletx: Run) -> None:
    assert kubeletx("vm", "list", "-o", "name").stdout == "vm/vm\n"
    head, line = kubeletx("vm", "list", "-A").stdout.splitlines()
    assert head.split() == ["NAMESPACE", "NAME", "STATUS", "AGE", "RUNTIME", "IP"]
    assert line.split()[-1] == "10.0.0.7"


def test_addresses_of_a_machine(agent: Any, kubeletx: Run) -> None:
    assert kubeletx("vm", "ip", "vm").stdout == "10.0.0.7\nfd00::7\n"
    assert kubeletx("vm", "ip", "web").exit_code == 1
    agent.backend.machines.nics = {}
    agent.backend.put(replace(agent.backend.pods["default", "vm"], status=PodStatus()))
    assert "has no address yet" in kubeletx("vm", "ip", "vm").stderr


def test_ssh_gets_the_address(agent: Any, kubeletx: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[Any] = []
    monkeypatch.setattr("os.execv", lambda *words: called.append(words))
    monkeypatch.setattr("shutil.which", lambda _: "/usr/bin/ssh")
    assert kubeletx("vm", "ssh", "root@vm", "--", "-p", "23", "uname").exit_code == 0
    assert called == [("/usr/bin/ssh", ["ssh", "root@10.0.0.7", "-p", "23", "uname"])]
    monkeypatch.setattr("shutil.which", lambda _: None)
    assert "connect to 10.0.0.7" in kubeletx("vm", "ssh", "vm").stderr


def test_a_display_is_printed_if_there_is_one(
    agent: Any, kubeletx: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "'kubeletx vm console vm' is its serial console" in kubeletx("vm", "vnc", "vm").stderr

    async def definition(_: Any) -> str:
        return "<graphics type='spice' port='1'/><graphics type='vnc' port='5901' listen='::1'>"

    monkeypatch.setattr(agent.backend.machines, "machine_definition", definition)
    assert kubeletx("vm", "vnc", "vm").stdout == "vnc://[::1]:5901\n"
