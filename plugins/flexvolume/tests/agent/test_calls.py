"""Answers to the calls of the driver."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from kubeletx_flexvolume.agent.calls import DriverCalls, DriverCapabilities
from kubeletx_flexvolume.agent.wire import DriverRequest
from kubeletx_flexvolume.attachments.views import panel_rows
from kubeletx_flexvolume.driver.program import PROTOCOL

from kubeletx_testing.waiting import until
from plugins.flexvolume.tests.agent.agent_model import Node, target
from plugins.flexvolume.tests.agent.test_options import KUBELET
from plugins.flexvolume.tests.attachments.attachment_model import StorageModel


class Called:
    """Calls on a modelled node."""

    def __init__(self, state: Path) -> None:
        self.node = Node(state)
        self.calls = DriverCalls(
            self.node.operations,
            self.node.tools,
            capabilities=DriverCapabilities(selinux_relabel=True),
            state=lambda: {"pid": 7},
            attachments=lambda: panel_rows(StorageModel().stores),
        )

    async def __call__(self, call: str, *arguments: str) -> dict[str, Any]:
        request = DriverRequest(protocol=PROTOCOL, driver="0.1.0", call=call, arguments=arguments)
        answer: dict[str, Any] = json.loads(await self.calls.answer(request, "/plugins"))
        return answer


@pytest.fixture
async def called(tmp_path: Path) -> AsyncIterator[Called]:
    one = Called(tmp_path / "volumes")
    yield one
    await one.node.operations.close(0)


OPTIONS = json.dumps({**KUBELET, "backend": "model"})


async def test_init_reports_the_capabilities_and_is_a_handshake(called: Called) -> None:
    answer = await called("init")
    assert answer["status"] == "Success"
    assert answer["capabilities"] == {
        "attach": False,
        "selinuxRelabel": True,
        "fsGroup": True,
        "supportsMetrics": True,
        "requiresFSResize": True,
        "blockVolumes": True,
    }
    assert called.calls.has_handshake.is_set()
    assert called.calls.handshakes == {"/plugins": "0.1.0"}


async def test_a_volume_is_mounted_and_unmounted(called: Called) -> None:
    assert await called("mount", target().path, OPTIONS) == {"status": "Success"}
    assert target().path in called.node.mounts.mounted
    assert await called("unmount", target().path) == {"status": "Success"}
    await until(lambda: called.node.is_clean)


async def test_errors_are_answers(called: Called) -> None:
    answer = await called("mount", "/etc", OPTIONS)
    assert answer["status"] == "Failure"
    assert "'/etc' is not below /kubelet" in answer["message"]
    answer = await called("mount", target().path, "{}")
    assert "option" in answer["message"] or "missing" in answer["message"]
    called.node.faults.fail("mount")
    assert (await called("mount", target().path, OPTIONS))["message"] == "mount failed"


async def test_a_bug_is_an_answer_without_its_text(called: Called) -> None:
    async def broken(*_: object) -> None:
        raise ValueError("hunter2")

    called.node.operations.unmount = broken  # type: ignore[assignment]
    answer = await called("unmount", target().path)
    assert answer["message"] == "ValueError in the storage agent; see its log"


async def test_other_calls_are_not_supported(called: Called) -> None:
    assert await called("attach", "x", "y") == {"status": "Not supported"}
    answer = await called("unmount", "a", "b")
    assert "call unmount: arguments: 2 arguments" in answer["message"]


async def test_status_shows_the_agents_state(called: Called) -> None:
    assert await called("status") == {"status": "Success", "agent": {"pid": 7}}
