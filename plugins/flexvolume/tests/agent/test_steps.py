"""Steps on the programs that they run."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from kubeletx_flexvolume.agent.journal import Use
from kubeletx_flexvolume.agent.namespace import MountNamespace
from kubeletx_flexvolume.agent.plan import Step, StepKind
from kubeletx_flexvolume.agent.steps import StepRunner
from kubeletx_flexvolume.backends.backend import AttachedSource, SourceType
from kubeletx_flexvolume.backends.registry import Backends
from kubeletx_flexvolume.commands import Commands
from kubeletx_flexvolume.device import Device
from kubeletx_flexvolume.mounts import Mounts

from kubeletx.api import Unavailable
from kubeletx.linux.locks import hold_lock
from plugins.flexvolume.tests.agent.agent_model import (
    Faults,
    ModelBook,
    at_once,
    holder,
    journal,
    request,
    volume,
)
from plugins.flexvolume.tests.fake_volume import FakeVolume

NFS = AttachedSource(type=SourceType.REMOTE, source="nas:/x", fs_type="nfs", mount_options=("nosharecache",))


def make_runner(node: FakeVolume, **options: Any) -> StepRunner:
    return StepRunner(
        book=ModelBook(Faults()),  # type: ignore[arg-type]
        backends=Backends(()),
        mounts=lambda _: Mounts(node),
        device=lambda _, path: Device(path, node),
        namespace=MountNamespace(),
        blocking=at_once,
        **options,
    )


@pytest.mark.parametrize("kind", [StepKind.UNBIND, StepKind.UNMOUNT, StepKind.DETACH])
async def test_nothing_counts_as_removed_while_a_program_of_a_killed_agent_may_still_make_it(
    tmp_path: Path, kind: StepKind
) -> None:
    """Such a program mounts after a look that finds nothing."""
    runner = make_runner(FakeVolume(), wait_idle=partial(Commands(tmp_path).wait_idle, seconds=0.05))
    use = Use(holder=holder())
    made = journal(volume=volume(backend=""), uses=(use,), kubelet_root=str(tmp_path))
    step = Step(kind, use.key if kind is StepKind.UNBIND else None)
    with hold_lock(tmp_path / "pv-1.lock"), pytest.raises(Unavailable, match="pv-1 is locked by"):
        await runner.run(step, made, None)
    await runner.run(step, made, None)


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize(
    ("source", "command"),
    [
        (AttachedSource(type=SourceType.DEVICE, source="/dev/x"), "-t ext4 -o {},noatime -- /dev/x"),
        (NFS, "-t nfs -o {},noatime,nosharecache -- nas:/x"),
        (AttachedSource(type=SourceType.DIRECTORY, source="/pool/d"), "--bind -- /pool/d"),
    ],
)
async def test_a_volume_is_mounted_once_for_the_node(
    tmp_path: Path, source: AttachedSource, command: str, read_only: bool
) -> None:
    node = FakeVolume()
    runner = make_runner(node)
    use = Use(holder=holder(read_only=read_only))
    of = volume(mount_options=("noatime",))
    made = journal(
        volume=of,
        source=source,
        uses=(use,),
        kubelet_root=str(tmp_path),
        global_dir=f"{tmp_path}/mounts/pv-1",
    )
    outcome = await runner.run(Step(StepKind.MOUNT, use.key), made, request(of=of))
    assert outcome.is_writable is (not read_only or source.type is SourceType.DIRECTORY)
    access = command.format("ro" if read_only else "rw")
    assert node.ran == [f"mount -c {access} {tmp_path}/mounts/pv-1"]
    assert (tmp_path / "mounts/pv-1").is_dir()
