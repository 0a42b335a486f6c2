"""Registration of the plugin, and the events it subscribes to."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest
from kubeletx_containerd.plugin import kubeletx_register_runtimes, make_runtime

from kubeletx.api import ENTRY_POINT_GROUP, InvalidConfig, SupportsEvents
from kubeletx.cri import ContainerdEvents, ContainerdRuntime
from kubeletx.cri.events import CriEvents
from kubeletx.testing import FakeHost, endpoint
from kubeletx_testing.cri_server import FakeCriServer


@pytest.fixture
def socket_directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="cri-") as name:
        yield Path(name)


def test_it_is_found_by_its_entry_point() -> None:
    (found,) = [e for e in entry_points(group=ENTRY_POINT_GROUP) if e.name == "containerd"]
    assert found.load().kubeletx_register_runtimes is kubeletx_register_runtimes


def test_it_claims_containers_over_unix_and_tcp() -> None:
    registered: list[tuple[str, Any, dict[str, Any]]] = []

    def register(kind: str, factory: Any, **what: Any) -> None:
        registered.append((kind, factory, what))

    kubeletx_register_runtimes(register)
    assert registered == [
        (
            "containerd",
            make_runtime,
            {
                "workload_types": ("container",),
                "schemes": ("unix", "tcp"),
                "default_claim": True,
                "parameters": ("handler",),
            },
        )
    ]


def test_registering_does_not_load_grpc() -> None:
    code = "import sys, kubeletx_containerd.plugin; sys.exit('grpc' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_url_that_cannot_be_connected_to_is_refused_when_the_runtime_is_made(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig):
        make_runtime(endpoint("tcp://nowhere"), None, FakeHost(tmp_path))


@pytest.mark.parametrize(
    ("uuid", "cri_events", "expected"),
    [
        ("1234", False, ContainerdEvents),
        ("1234", True, ContainerdEvents),
        ("", True, CriEvents),
        ("", False, None),
    ],
)
async def test_it_listens_to_containerd_else_to_the_cri_else_to_no_one(
    socket_directory: Path, tmp_path: Path, uuid: str, cri_events: bool, expected: type | None
) -> None:
    async with FakeCriServer(socket_directory, uuid=uuid) as server:
        if cri_events:
            server.model.unimplemented.clear()
        runtime = make_runtime(endpoint(server.url), None, FakeHost(tmp_path))
        assert isinstance(runtime, ContainerdRuntime)
        await runtime.open()
        found: object = runtime.capability(SupportsEvents)
        assert type(found) is (expected or type(None))
        await runtime.close()


async def test_a_server_that_was_exchanged_is_asked_again(socket_directory: Path, tmp_path: Path) -> None:
    async with FakeCriServer(socket_directory) as server:
        runtime = make_runtime(endpoint(server.url), None, FakeHost(tmp_path))
        await runtime.open()
        assert runtime.capability(SupportsEvents) is None
        server.uuid = "1234"
        await runtime.open()
        assert runtime.capability(SupportsEvents) is not None
        await runtime.close()
