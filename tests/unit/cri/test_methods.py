"""The table of calls agrees with the descriptors."""

from __future__ import annotations

from kubeletx.cri.containerd import SERVER, SUBSCRIBE
from kubeletx.cri.containerd_pulls import LIST_STATUSES
from kubeletx.cri.containerd_tasks import TASK_METHODS
from kubeletx.cri.methods import IMAGE_SERVICE, METHODS, RUNTIME_SERVICE
from kubeletx.cri.stubs import (
    containerd_content_pb2,
    containerd_events_service_pb2,
    containerd_introspection_pb2,
    containerd_tasks_pb2,
    runtime_v1_pb2,
)


def test_every_call_of_both_services_is_in_the_table_with_its_messages() -> None:
    described = {
        method.name: (
            f"/{service.full_name}/{method.name}",
            method.input_type.full_name,
            method.output_type.full_name,
            method.server_streaming,
        )
        for service in runtime_v1_pb2.DESCRIPTOR.services_by_name.values()
        for method in service.methods
    }
    table = {
        name: (m.path, m.request.DESCRIPTOR.full_name, m.answer.DESCRIPTOR.full_name, m.stream)
        for name, m in METHODS.items()
    }
    assert table == described
    assert {m.service for m in METHODS.values()} == {RUNTIME_SERVICE, IMAGE_SERVICE}


def test_the_containerd_calls_agree_with_their_descriptors() -> None:
    for method, file in (
        (SERVER, containerd_introspection_pb2.DESCRIPTOR),
        (SUBSCRIBE, containerd_events_service_pb2.DESCRIPTOR),
        (LIST_STATUSES, containerd_content_pb2.DESCRIPTOR),
        *((one, containerd_tasks_pb2.DESCRIPTOR) for one in TASK_METHODS.values()),
    ):
        (service,) = file.services_by_name.values()
        described = service.methods_by_name[method.name]
        assert method.service == service.full_name
        assert method.request.DESCRIPTOR.full_name == described.input_type.full_name
        assert method.answer.DESCRIPTOR.full_name == described.output_type.full_name
        assert method.stream == described.server_streaming
