"""Events say what a kubelet v1.36 says in the same place, so that people and tools recognise them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from kubeletx.api import Channel, ImageStatus, UnitId
from kubeletx.kube.types.core import ExecAction, Lifecycle, LifecycleHandler, Pod
from kubeletx.pods.unit_images import pulled_text
from kubeletx.testing import FakeSession
from tests.unit.pods.manager_model import Node, a_pod


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def with_container(**fields: Any) -> Pod:
    pod = a_pod()
    (container,) = pod.spec.containers
    return replace(pod, spec=replace(pod.spec, containers=(replace(container, **fields),)))


def messages(node: Node, reason: str) -> list[str]:
    return [event.message for event in node.sink.recorded if event.reason == reason]


async def test_a_container_is_created_and_started_without_its_name(node: Node) -> None:
    async with node.running():
        await node.start(with_container(image_pull_policy="IfNotPresent"))
    assert messages(node, "Created") == ["Container created"]
    assert messages(node, "Started") == ["Container started"]
    assert messages(node, "Pulled") == [
        'Container image "busybox" already present on machine and can be accessed by the pod'
    ]


async def test_a_pull_reports_its_time_the_wait_before_it_and_the_size(node: Node) -> None:
    async with node.running():
        await node.start(with_container(image="other"))
    (text,) = messages(node, "Pulled")
    assert text.startswith('Successfully pulled image "other" in ')
    assert " including waiting)." in text


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (4096, 'Successfully pulled image "a" in 250ms (1m1.5s including waiting). Image size: 4096 bytes.'),
        (0, 'Successfully pulled image "a" in 250ms (1m1.5s including waiting).'),
    ],
)
def test_durations_have_gos_form_and_an_unknown_size_is_left_out(size: int, text: str) -> None:
    assert pulled_text("a", ImageStatus(id="i", ref="i", size_bytes=size), 0.2499, 61.5) == text


async def test_what_a_hook_printed_is_in_no_event(node: Node) -> None:
    async def refuse(_unit_id: UnitId, _command: Sequence[str], session: FakeSession) -> int:
        session.send(Channel.STDOUT, b"password=hunter2")
        return 3

    node.exec_handler = refuse
    shell = LifecycleHandler(exec=ExecAction(command=("sh", "-c", "false")))
    async with node.running() as manager:
        manager.update("file", with_container(lifecycle=Lifecycle(post_start=shell)))
        await node.until(lambda: messages(node, "FailedPostStartHook"))
        stopped = replace(with_container(lifecycle=Lifecycle(pre_stop=shell)), metadata=a_pod("b").metadata)
        await node.start(stopped)
        manager.remove("file", stopped.uid)
        await node.until(lambda: messages(node, "FailedPreStopHook"))
    assert set(messages(node, "FailedPostStartHook")) == {"PostStartHook failed"}
    assert messages(node, "FailedPreStopHook") == ["PreStopHook failed"]
    assert not [event for event in node.sink.recorded if "hunter2" in event.message]
