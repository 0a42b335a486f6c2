"""The calls of CRI are read from the descriptors of its messages."""

from __future__ import annotations

import pytest
from google.protobuf.empty_pb2 import Empty

from kubeletx.cri import methods
from kubeletx.cri.containerd_tasks import PAUSE, TASKS
from kubeletx.cri.methods import METHODS, Method, method
from kubeletx.cri.stubs import containerd_tasks_pb2 as tasks
from kubeletx.cri.stubs import runtime_v1_pb2 as pb


def test_the_table_has_both_services_with_paths_messages_and_kind() -> None:
    assert METHODS["RunPodSandbox"] == Method(
        "/runtime.v1.RuntimeService/RunPodSandbox", pb.RunPodSandboxRequest, pb.RunPodSandboxResponse
    )
    assert METHODS["PullImage"].path == "/runtime.v1.ImageService/PullImage"
    assert METHODS["GetContainerEvents"].stream


def test_each_constant_is_the_row_of_the_table() -> None:
    constants = [value for value in vars(methods).values() if isinstance(value, Method)]
    assert constants
    assert all(METHODS[row.name] == row for row in constants)


def test_methods_of_containerd_with_the_same_answer_differ_by_their_request() -> None:
    assert Method("/containerd.services.tasks.v1.Tasks/Pause", tasks.PauseTaskRequest, Empty) == PAUSE
    with pytest.raises(ValueError, match="not enough values"):
        method(TASKS, tasks.PauseTaskRequest, tasks.GetResponse)
