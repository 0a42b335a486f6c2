"""Machines with UEFI firmware: they boot by it, and its memory goes with them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kubeletx_testing.lab import Lab, PrivateAgent, put_manifest
from kubeletx_testing.lab.uefi_machine import UP, make_uefi_machine_image
from tests.integration.support.bench import until
from tests.integration.support.machines import emulators, machine_agent, machine_manifest, wait_console

BOOT_SECONDS = 120
SMALL = {"limits": {"cpu": "1", "memory": "128Mi"}, "requests": {"cpu": "10m"}}

pytestmark = pytest.mark.timeout(300)


def nvrams(agent: PrivateAgent) -> list[Path]:
    """Files of firmware's variables below the embedded libvirt's root."""
    (root,) = [part.partition("root=")[2] for part in agent.argv() if "root=" in part and "embed" in part]
    return sorted(Path(root, "lib", "qemu", "nvram").glob("*"))


def test_a_machine_boots_by_uefi_and_its_variables_are_gone_with_it(
    lab: Lab, make_agent: Callable[..., PrivateAgent], manifests: Path, tmp_path: Path
) -> None:
    image = make_uefi_machine_image(tmp_path)
    agent = machine_agent(lab, make_agent, imageDirectories=[str(tmp_path)])
    agent.start()
    notes: dict[str, Any] = {"annotations": {"kubeletx.io/vm-firmware": "uefi"}}
    put_manifest(
        manifests, machine_manifest("uefi", image=str(image), machine={"resources": SMALL}, metadata=notes)
    )
    wait_console(agent, "uefi-lab", UP, timeout_seconds=BOOT_SECONDS)
    (line,) = emulators(agent).values()
    (nvram,) = nvrams(agent)
    assert str(nvram) in line
    refused = agent.cli("vm", "snapshot", "create", "uefi-lab", "one", "--memory")
    assert "pflash based firmware are not supported" in refused.stderr
    agent.cli("vm", "stop", "uefi-lab")
    until(lambda: not emulators(agent), "the end of the machine")
    assert nvrams(agent) == [nvram]
    agent.cli("vm", "start", "uefi-lab")
    until(lambda: any(str(nvram) in line for line in emulators(agent).values()), "the next run")
    (manifests / "uefi.json").unlink()
    agent.wait_gone("uefi", timeout_seconds=60)
    assert nvrams(agent) == []
    assert emulators(agent) == {}
