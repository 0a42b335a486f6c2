"""What earlier lives left: ours goes, others' stays."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar, cast

import pytest

from kubeletx.agent.parts.clean_up import RETRY_SECONDS, SETTLE_SECONDS, CleanUp
from kubeletx.api import Blocking, PodUid, Unavailable
from kubeletx.pods.logs.directories import PodDirectories
from kubeletx.pods.manager import PodManager
from kubeletx.pods.model.node_context import NodeContext
from kubeletx.pods.records import PodRecords
from kubeletx.runtimes.registry import RuntimeRegistry
from kubeletx.testing import FakeClock
from kubeletx.volumes import FieldContext, VolumePreparer
from kubeletx_testing.waiting import let_others_work, until

T = TypeVar("T")


async def blocking(function: Callable[..., T], /, *args: Any) -> T:
    """File work on a thread."""
    return await asyncio.to_thread(function, *args)


def make_clean_up(
    root: Path,
    clock: FakeClock,
    known: set[str],
    *,
    blocking: Blocking = blocking,
    released: Callable[[PodUid], None] = lambda _uid: None,
) -> CleanUp:
    """A clean-up for a node whose workers are `known`. `released`: called when a pod's volumes are."""

    class Volumes(VolumePreparer):
        async def release(self, uid: PodUid, *, deadline_seconds: float = 1.0) -> None:
            await super().release(uid, deadline_seconds=deadline_seconds)
            released(uid)

    context = NodeContext(agent_id="a", node_name="n", root_dir=root, pod_logs_dir=root / "logs")
    manager = SimpleNamespace(workers=known, queued=lambda: (), synced_sources={"file"})
    registry = SimpleNamespace(handles=lambda: (), bindings=dict)
    return CleanUp(
        manager=cast("PodManager", manager),
        registry=cast("RuntimeRegistry", registry),
        volumes=Volumes(root_dir=root, blocking=blocking, fields=FieldContext(node_name="n")),
        directories=PodDirectories(context),
        records=cast("PodRecords", SimpleNamespace(prune=lambda known: None)),
        blocking=blocking,
        clock=clock,
        sources=lambda: frozenset({"file"}),
    )


def leave(root: Path, uid: str, *, ours: bool) -> None:
    """What a pod leaves: logs, and, if it was ours, a directory."""
    (root / "logs" / f"default_web_{uid}" / "c").mkdir(parents=True)
    if ours:
        (root / "pods" / uid / "volumes").mkdir(parents=True)


async def test_only_what_is_proven_to_be_ours_and_unknown_goes(tmp_path: Path) -> None:
    leave(tmp_path, "gone", ours=True)
    leave(tmp_path, "living", ours=True)
    leave(tmp_path, "a-kubelets", ours=False)
    clock = FakeClock()
    clean_up = make_clean_up(tmp_path, clock, {PodUid("living")})
    task = asyncio.create_task(clean_up.run())
    await clock.run_for(SETTLE_SECONDS)
    await task
    assert {one.name for one in (tmp_path / "pods").iterdir()} == {"living"}
    assert {one.name for one in (tmp_path / "logs").iterdir()} == {
        "default_web_living",
        "default_web_a-kubelets",
    }


async def test_a_pod_that_comes_while_others_are_removed_keeps_its_directory(tmp_path: Path) -> None:
    for uid in ("first", "second"):
        leave(tmp_path, uid, ours=True)
    clock, known = FakeClock(), set[str]()

    async def blocking_and_coming(function: Callable[..., T], /, *args: Any) -> T:
        known.add(PodUid("second"))  # its manifest is there again, with the same UID
        return await blocking(function, *args)

    clean_up = make_clean_up(tmp_path, clock, known, blocking=blocking_and_coming)
    task = asyncio.create_task(clean_up.run())
    await clock.run_for(SETTLE_SECONDS)
    await task
    assert {one.name for one in (tmp_path / "pods").iterdir()} == {"second"}
    assert {one.name for one in (tmp_path / "logs").iterdir()} == {"default_web_second"}


async def test_what_cannot_be_removed_holds_up_nothing_and_is_tried_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for uid in ("busy", "free"):
        leave(tmp_path, uid, ours=True)
    clock = FakeClock()
    tries: list[PodUid] = []

    def busy(uid: PodUid) -> None:
        if uid == "busy" and len(tries) < 2:
            tries.append(uid)
            raise Unavailable("a mount is in use")

    task = asyncio.create_task(make_clean_up(tmp_path, clock, set(), released=busy).run())
    await clock.run_for(SETTLE_SECONDS)
    await until(lambda: {one.name for one in (tmp_path / "pods").iterdir()} == {"busy"})
    while not task.done():
        await clock.run_for(RETRY_SECONDS)
        await let_others_work()
    assert list((tmp_path / "pods").iterdir()) == []
    assert capsys.readouterr().out.count("Failed to remove") == 1


async def test_a_pod_that_comes_back_while_it_is_removed_keeps_what_is_left(tmp_path: Path) -> None:
    leave(tmp_path, "again", ours=True)
    clock, known = FakeClock(), set[str]()
    task = asyncio.create_task(make_clean_up(tmp_path, clock, known, released=known.add).run())
    await clock.run_for(SETTLE_SECONDS)
    await task
    assert {one.name for one in (tmp_path / "pods").iterdir()} == {"again"}
    assert {one.name for one in (tmp_path / "logs").iterdir()} == {"default_web_again"}
