"""``kubeletx image``."""

from __future__ import annotations

from typing import Any

from kubeletx.server.views import ImageView
from tests.unit.cli.commands.objects import Run, runtime


def test_images_are_pulled_removed_and_pruned(agent: Any, kubeletx: Run) -> None:
    agent.backend.runtimes = {"one": runtime()}
    agent.backend.images = (
        ImageView(
            store="s1",
            runtimes=("one",),
            id="sha256:1",
            ref="r",
            tags=("a:1",),
            size_bytes=1000,
            pulled_by_us=True,
        ),
    )
    assert kubeletx("image", "pull", "busybox").stdout == "busybox pulled into one: sha256:busybox\n"
    assert kubeletx("image", "pull", "missing").stderr == "Error: image missing not found\n"
    assert kubeletx("image", "rm", "a:1").stdout == "Deleted: a:1 (s1)\n"
    assert kubeletx("image", "prune").stdout == "Deleted: a:1 (s1)\nFreed 1kB\n"
    assert kubeletx("image", "list", "-o", "name").stdout == "image/a:1\n"
