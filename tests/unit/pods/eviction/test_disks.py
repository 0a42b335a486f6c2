"""Disk usage of pods is measured on a thread, several pods in one call."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kubeletx.kube.types.core import Pod
from kubeletx.pods.eviction import disks
from kubeletx.pods.eviction.disks import DiskBoard
from kubeletx.pods.model.node_context import NodeContext
from kubeletx.testing import FakeClock
from tests.unit.pods.manager_model import a_pod


def a_board(root: Path, pods: list[Pod], calls: list[int]) -> DiskBoard:
    """Return a board for these pods; each call of a thread adds the number of its pods to `calls`."""
    context = NodeContext(agent_id="a", node_name="n", root_dir=root, pod_logs_dir=root / "logs")

    async def at_once(function: Callable[..., Any], /, *args: Any) -> Any:
        measured = function(*args)
        calls.append(len(measured))
        return measured

    return DiskBoard(context, pods=lambda: pods, blocking=at_once, clock=FakeClock())


@pytest.mark.parametrize(("seconds", "expected"), [(60.0, [3]), (0.0, [1, 1, 1])])
async def test_pods_are_measured_together_unless_it_takes_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float, expected: list[int]
) -> None:
    monkeypatch.setattr(disks, "TURN_SECONDS", seconds)
    pods = [a_pod(name) for name in ("one", "two", "three")]
    calls: list[int] = []
    board = a_board(tmp_path, pods, calls)
    await board.refresh()
    assert calls == expected
    assert board.figures.keys() == {pod.uid for pod in pods}
    await board.refresh()
    assert calls == expected  # a minute has not passed


async def test_a_pod_that_is_gone_has_no_figures(tmp_path: Path) -> None:
    pods = [a_pod("one"), a_pod("two")]
    board = a_board(tmp_path, pods, [])
    await board.refresh()
    del pods[0]
    await board.refresh()
    assert board.figures.keys() == {pods[0].uid}
