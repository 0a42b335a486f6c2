"""A machine operation whose outcome cannot be stored does not block the next one."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kubeletx.api import Conflict, Unavailable
from kubeletx.kube.types.core import Pod, VirtualMachine
from kubeletx.pods.logs.pod_files import PodFiles
from kubeletx.server.views import PodTarget
from tests.unit.agent.agent_model import AgentModel, a_pod

VM = PodTarget(namespace="default", name="vm")
FULL = Unavailable("cannot write overrides.json: No space left on device")


def is_stored(root: Path) -> bool:
    """Return True if a machine operation was stored."""
    return any(root.rglob("overrides.json"))


@pytest.mark.parametrize("error", [None, Conflict("the disk is full"), Unavailable("no answer")])
async def test_a_verb_works_again_after_its_outcome_could_not_be_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Conflict | Unavailable | None
) -> None:
    agent = AgentModel(tmp_path, names=("one", "kvm"))
    write, writes = PodFiles.write_overrides, 0

    async def fail_once(files: PodFiles, pod: Pod, data: bytes) -> None:
        nonlocal writes
        writes += 1
        if writes == 2:  # the first one stores that the operation has begun
            raise FULL
        await write(files, pod, data)

    async with agent.running() as backend:
        verbs = backend.machines
        await agent.apply(
            a_pod("vm", containers=(), virtual_machine=VirtualMachine(name="guest", image="busybox"))
        )
        reboot = asyncio.ensure_future(verbs.reboot_machine(VM, 3600))
        await agent.until(lambda: is_stored(tmp_path))
        monkeypatch.setattr(PodFiles, "write_overrides", fail_once)
        if error is None:
            made = await agent.done(verbs.create_snapshot(VM, "first", True))
            assert made.name == "first"
        else:
            agent.runtimes["kvm"].script("create_snapshot", error=error, times=1)
            with pytest.raises(type(error), match=str(error)):
                await agent.done(verbs.create_snapshot(VM, "first", True))
        await agent.done(verbs.create_snapshot(VM, "second", True))
        assert [(one.detail, one.outcome) for one in (await verbs.find_machine(VM)).operations] == [
            ("after 3600s", "begun"),
            ("first", "unknown"),
            ("second", "done"),
        ]
        with pytest.raises(Conflict, match="a reboot of machine default/vm is under way already"):
            await verbs.reboot_machine(VM, 0)
        await verbs.cancel_reboot(VM)
        with pytest.raises(Conflict, match="was cancelled"):
            await agent.done(reboot)
