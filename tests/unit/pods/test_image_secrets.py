"""A credential in an image's URL is in no event."""

from __future__ import annotations

from pathlib import Path

import pytest

from kubeletx.api import Internal
from kubeletx.kube.types.core import VirtualMachine
from tests.unit.pods.manager_model import Node, a_pod

URL = "https://me:hunter2@images.example/disk.qcow2?token=t0ps3cret"


@pytest.mark.parametrize(
    ("call", "reason"),
    [("", "Pulled"), ("pull_image", "Failed"), ("find_image", "InspectFailed"), ("create_unit", "Failed")],
)
async def test_no_event_shows_a_credential_of_an_image_url(tmp_path: Path, call: str, reason: str) -> None:
    node = Node(tmp_path, workload_type="vm")
    async with node.running() as manager:
        runtime = node.runtimes["one"]
        if call:
            runtime.script(call, error=Internal(f"no disk behind {URL}, {URL!r}"))
        if call != "pull_image":
            runtime.backend.add_image(URL)
        machine = VirtualMachine(name="vm", image=URL)
        manager.update("file", a_pod("vm", containers=0, virtual_machine=machine))
        await node.until(lambda: reason in node.sink.reasons())
        texts = [event.message for event in node.sink.recorded]
        assert any("https://...@images.example/disk.qcow2?..." in text for text in texts)
        assert not any("hunter2" in text or "t0ps3cret" in text for text in texts)
