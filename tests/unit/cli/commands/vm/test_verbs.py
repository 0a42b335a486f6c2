"""``kubeletx vm``: what is sent and what is reported."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from kubeletx.kube.types.core import ObjectMeta, Pod, PodSpec, VirtualMachine
from kubeletx.server.views import MachineSize, MachineView, NicRequest, SnapshotView

Run = Callable[..., Result]


@pytest.fixture(autouse=True)
def machine(agent: Any) -> None:
    agent.backend.machines.machines[("default", "vm")] = MachineView(
        namespace="default",
        name="vm",
        machine="testvm",
        runtime="kvm",
        power="running",
        power_state="running",
        limits={"cpu": "1", "memory": "1Gi"},
        granted={"cpu": "1", "memory": "1Gi"},
    )
    agent.backend.pods[("default", "vm")] = Pod(
        metadata=ObjectMeta(name="vm", namespace="default"),
        spec=PodSpec(virtual_machine=VirtualMachine(name="testVM", image="i")),
    )


@pytest.mark.parametrize(
    ("verb", "said"),
    [
        ("pause", "vm/vm paused (above powerSpec Running)"),
        ("suspend", "vm/vm suspended (above powerSpec Running)"),
        ("stop", "vm/vm stopped (above powerSpec Running)"),
        ("resume", "vm/vm resumed"),
        ("start", "vm/vm started"),
    ],
)
def test_power_verbs(agent: Any, kubeletx: Run, verb: str, said: str) -> None:
    result = kubeletx("vm", verb, "vm", "--timeout", "2m")
    assert (result.exit_code, result.stdout) == (0, said + "\n")
    assert agent.backend.calls == [("machine_power", "default/vm", verb, 120.0)]


def test_reboot_passes_its_delay_on(agent: Any, kubeletx: Run) -> None:
    assert kubeletx("vm", "reboot", "vm", "--delay", "5s").stdout == "vm/vm rebooted\n"
    assert agent.backend.calls == [("reboot_machine", "default/vm", 5.0)]
    assert kubeletx("vm", "reboot", "vm", "--delay", "soon").exit_code == 2


def test_a_reboot_that_is_to_come_is_cancelled(agent: Any, kubeletx: Run) -> None:
    assert kubeletx("vm", "reboot", "vm", "--cancel").stdout == "vm/vm reboot cancelled\n"
    assert agent.backend.calls == [("cancel_reboot", "default/vm")]
    assert kubeletx("vm", "reboot", "vm", "--cancel", "--delay", "5s").exit_code == 2


def test_deleting_an_unknown_snapshot_fails(agent: Any, kubeletx: Run) -> None:
    result = kubeletx("vm", "snapshot", "delete", "vm", "none")
    assert result.exit_code == 1
    assert "has no snapshot 'none'" in result.stderr


def test_resize_says_what_is_asked_for(agent: Any, kubeletx: Run) -> None:
    assert kubeletx("vm", "resize", "vm", "--memory", "2Gi").stdout == "vm/vm is to have cpu 1, memory 2Gi\n"
    assert agent.backend.calls == [("resize_machine", "default/vm", MachineSize(memory="2Gi"))]
    assert kubeletx("vm", "resize", "vm").exit_code == 2
    assert "Limits" in kubeletx("vm", "show", "vm").stdout


def test_snapshots(agent: Any, kubeletx: Run) -> None:
    assert kubeletx("vm", "snapshot", "list", "vm").exit_code == 0
    made = kubeletx("vm", "snapshot", "create", "vm", "before", "--memory")
    assert made.stdout == "snapshot/before created with memory\n"
    agent.backend.machines.snapshots["before"] = SnapshotView(name="before", with_memory=True, current=True)
    assert kubeletx("vm", "snapshot", "list", "vm").stdout.splitlines()[1].split()[:3] == [
        "before",
        "yes",
        "*",
    ]
    assert kubeletx("vm", "snapshot", "restore", "vm", "before").stdout == "snapshot/before restored\n"
    lost = kubeletx("vm", "snapshot", "restore", "vm", "after")
    assert lost.exit_code == 1
    assert "has no snapshot 'after'" in lost.stderr
    assert kubeletx("vm", "snapshot", "delete", "vm", "before").stdout == "snapshot/before deleted\n"


def test_interfaces(agent: Any, kubeletx: Run) -> None:
    done = kubeletx("vm", "nic", "attach", "vm", "data", "--network", "blue", "--ip", "10.0.0.9")
    assert done.stdout == "nic/data attached\n"
    wanted = NicRequest(name="data", subnet_name="blue", ip_address="10.0.0.9")
    assert agent.backend.calls == [("attach_nic", "default/vm", wanted)]
    assert kubeletx("vm", "nic", "list", "vm", "-o", "name").stdout == "nic/data\n"
    assert kubeletx("vm", "nic", "detach", "vm", "data").stdout == "nic/data detached\n"


def test_a_screenshot_is_written_once(kubeletx: Run, tmp_path: Path) -> None:
    file = tmp_path / "screen.png"
    assert kubeletx("vm", "screenshot", "vm", "--file", str(file)).exit_code == 0
    assert file.read_bytes().startswith(b"\x89PNG")
    assert "exists; give --force" in kubeletx("vm", "screenshot", "vm", "--file", str(file)).stderr
    assert kubeletx("vm", "screenshot", "vm", "--file", str(file), "--force").exit_code == 0


def test_dump_xml(kubeletx: Run) -> None:
    assert kubeletx("vm", "dump-xml", "vm").stdout == "<domain><name>testvm</name></domain>\n"


@pytest.mark.parametrize(
    "words",
    [
        ("pause",),
        ("reboot",),
        ("resize", "--cpu", "2"),
        ("snapshot", "list"),
        ("nic", "list"),
        ("screenshot", "--file", "-"),
        ("dump-xml",),
        ("console",),
        ("show",),
    ],
)
def test_a_verb_on_a_container_pod_is_refused_in_words(kubeletx: Run, words: tuple[str, ...]) -> None:
    result = kubeletx("vm", *words, "web")
    assert result.exit_code == 1
    assert "'kubeletx vm' is for virtual machines" in result.stderr
