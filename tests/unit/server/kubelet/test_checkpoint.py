"""Checkpoints over the kubelet's API."""

from __future__ import annotations

import json
from pathlib import Path

from kubeletx.api import Unsupported
from kubeletx.server.kubelet.pods import checkpoint_routes
from kubeletx.server.views import PodTarget
from tests.unit.server.api_client import serving
from tests.unit.server.fake_admin import FakeAdminBackend


class Source:
    """Writes none, and says so of container ``old``."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, float | None]] = []

    async def checkpoint(self, target: PodTarget, container: str, timeout_seconds: float | None) -> str:
        if container == "old":
            raise Unsupported("runtime containerd cannot write checkpoints")
        self.asked.append((target.ref, container, timeout_seconds))
        return "/var/lib/kubeletx/checkpoints/one.tar"


async def test_a_checkpoint_answers_with_its_path(tmp_path: Path) -> None:
    source, backend = Source(), FakeAdminBackend()
    async with serving(tmp_path) as first:
        backend.pods = first.backend.pods
    async with serving(tmp_path / "two", more=checkpoint_routes(backend, source)) as api:

        async def post(path: str) -> tuple[int, str]:
            return await api.ask("POST", f"/checkpoint/default/{path}", certificate=api.admin)

        code, text = await post("web/main?timeout=5")
        assert (code, json.loads(text)) == (200, {"items": ["/var/lib/kubeletx/checkpoints/one.tar"]})
        assert source.asked == [("default/web", "main", 5.0)]
        assert await post("web/old") == (405, "runtime containerd cannot write checkpoints")
        assert (await post("none/main"))[0] == 404
        for text in ("soon", "9" * 400):
            code, words = await post(f"web/main?timeout={text}")
            assert (code, "not a number of seconds" in words) == (400, True)
        assert (await api.get("/checkpoint/default/web/main"))[0] == 405
