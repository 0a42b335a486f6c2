"""Files, mounts and variables of pods with sessions, and the content of their metadata."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kubeletx.api import InvalidPod, PodUid
from kubeletx.api.names import APPLICATION, APPLICATION_DATA, SESSION_INIT_CONTAINERS
from kubeletx.kube.types.core import Container, ContainerPort, Pod, PodIP, PodSpec, PodStatus, VirtualMachine
from kubeletx.pods import DesiredPod, PodFacts, UnitRole
from kubeletx.sessions.extras import AccessSettings, SessionAccess
from kubeletx.sessions.stubs import session_service_pb2 as pb
from kubeletx_testing.waiting import until
from tests.unit.sessions.room import UID, Room

MACHINE = VirtualMachine(name="vm", image="i")


@pytest.fixture
async def access(room: Room, tmp_path: Path) -> AsyncIterator[SessionAccess]:
    async with RunningAccess(room, tmp_path) as one:
        yield one


class RunningAccess:
    """Context manager: access of the pods of `room`, as in a new agent process."""

    def __init__(self, room: Room, root: Path, **settings: Any) -> None:
        self._access = SessionAccess(
            AccessSettings(
                root=root / "sessions", pod_directory=lambda uid: root / "pods" / uid, node="n1", **settings
            ),
            sessions=room.sessions,
            blocking=asyncio.to_thread,
            clock=room.clock,
        )
        (root / "pods" / UID).mkdir(parents=True, exist_ok=True)

    async def __aenter__(self) -> SessionAccess:
        self._task = asyncio.create_task(self._access.run(), name="access")
        return self._access

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await self._access.close()


def a_pod(room: Room, **annotations: str) -> Pod:
    """The pod of `room`, with a port and more annotations."""
    pod = room.pods.views[UID].pod
    main = Container(name="main", image="i", ports=(ContainerPort(name="http", container_port=8080),))
    meta = msgspec.structs.replace(pod.metadata, annotations={**pod.metadata.annotations, **annotations})
    return msgspec.structs.replace(pod, metadata=meta, spec=PodSpec(containers=(main,)))


def metadata(root: Path) -> Any:
    return json.loads((root / "pods" / UID / "session" / "metadata.json").read_bytes())


def publish(access: SessionAccess, pod: Pod, status: PodStatus | None) -> None:
    access.pod_changed(DesiredPod(uid=pod.uid, pod=pod, source="file", spec_hash=""), PodFacts(), status)


async def test_a_pod_without_the_annotation_gets_nothing_and_starts_nothing(
    room: Room, access: SessionAccess, tmp_path: Path
) -> None:
    room.pods.add(PodUid("u2"), name="plain", has_sessions=False)
    pod = room.pods.views[PodUid("u2")].pod
    extras = await access.provide(pod, pod.spec.containers[0])
    publish(access, pod, PodStatus(phase="Running"))
    assert (extras.mounts, extras.variables) == ((), {})
    assert not (tmp_path / "sessions").exists()


async def test_a_container_gets_mounts_and_variables(
    room: Room, access: SessionAccess, tmp_path: Path
) -> None:
    pod = a_pod(room)
    extras = await access.provide(pod, pod.spec.containers[0])
    assert [(mount.source, mount.target, mount.read_only) for mount in extras.mounts] == [
        (str(tmp_path / "pods" / UID / "session"), "/run/kubeletx/session", True),
        (str(tmp_path / "sessions" / "socket"), "/run/kubeletx/session-service", True),
    ]
    assert extras.variables == {
        "KUBELETX_SESSION_DIRECTORY": "/run/kubeletx/session",
        "KUBELETX_SESSION_SERVICE": "unix:///run/kubeletx/session-service/session.sock",
        "KUBELETX_POD_ID": "default/web",
    }
    assert extras.scope == {UnitRole.REGULAR, UnitRole.SIDECAR}
    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "sessions").iterdir()}
    assert modes == {"ca.crt": 0o644, "ca.key": 0o600, "socket": 0o755}
    asked = a_pod(room, **{SESSION_INIT_CONTAINERS: "true"})
    assert UnitRole.INIT in (await access.provide(asked, asked.spec.containers[0])).scope


async def test_a_machine_gets_a_share_and_needs_a_tcp_address(
    room: Room, access: SessionAccess, tmp_path: Path
) -> None:
    with pytest.raises(InvalidPod, match="--session-service-address"):
        await access.provide(a_pod(room), MACHINE)
    settings = {"address": "127.0.0.1:0", "reached_at": "10.0.0.1:10260"}
    async with RunningAccess(room, tmp_path, **settings) as with_address:
        extras = await with_address.provide(a_pod(room), MACHINE)
        assert [mount.target for mount in extras.mounts] == ["/run/kubeletx/session"]
        assert metadata(tmp_path)["service"] == "10.0.0.1:10260"


async def test_metadata_has_pod_endpoints_application_and_sessions(
    room: Room, access: SessionAccess, tmp_path: Path
) -> None:
    pod = a_pod(room, **{APPLICATION: "chess", APPLICATION_DATA: "level=3"})
    await access.provide(pod, pod.spec.containers[0])
    publish(access, pod, PodStatus(phase="Running", pod_ip="10.1.0.5", pod_ips=(PodIP(ip="10.1.0.5"),)))
    application = await room.opened(data=b"\xff", application="chess")
    application.report(pb.STATE_OPEN, "ann")
    await room.open("default/s0", data=b"text")

    def is_complete() -> bool:
        room.clock.advance(0.1)
        return [one.get("clients", []) for one in metadata(tmp_path)["sessions"]] == [[], ["ann"]]

    await until(is_complete)
    assert metadata(tmp_path) == {
        "podId": "default/web",
        "podUid": UID,
        "service": "unix:///run/kubeletx/session-service/session.sock",
        "node": "n1",
        "endpoints": [{"name": "http", "protocol": "TCP", "address": "10.1.0.5", "port": 8080}],
        "application": {"name": "chess", "data": "level=3"},
        "sessions": [
            {"id": "default/s0", "application": "", "state": "ReadinessChecking", "data": "text"},
            {
                "id": "default/s1",
                "application": "chess",
                "state": "Live",
                "dataBase64": "/w==",
                "clients": ["ann"],
            },
        ],
    }


async def test_the_file_is_replaced_only_when_its_content_changes(
    room: Room, access: SessionAccess, tmp_path: Path
) -> None:
    pod = a_pod(room)
    await access.provide(pod, pod.spec.containers[0])
    path = tmp_path / "pods" / UID / "session" / "metadata.json"
    inode = path.stat().st_ino
    await access.provide(pod, pod.spec.containers[0])
    assert path.stat().st_ino == inode
    await room.open()

    def is_replaced() -> bool:
        room.clock.advance(0.1)
        return path.stat().st_ino != inode

    await until(is_replaced)


async def test_certificates_are_kept_over_a_restart_and_renewed_after_a_loss_of_the_ca(
    room: Room, access: SessionAccess, tmp_path: Path
) -> None:
    pod, certificate = a_pod(room), tmp_path / "pods" / UID / "session" / "tls.crt"
    await access.provide(pod, pod.spec.containers[0])
    first = certificate.read_bytes()
    await access.close()
    async with RunningAccess(room, tmp_path) as second:
        await second.provide(pod, pod.spec.containers[0])
    assert certificate.read_bytes() == first
    (tmp_path / "sessions" / "ca.key").unlink()
    async with RunningAccess(room, tmp_path) as third:
        publish(third, pod, PodStatus(phase="Running"))
        await until(lambda: certificate.read_bytes() != first)


async def test_the_files_of_a_pod_that_is_gone_do_not_come_back(
    room: Room, access: SessionAccess, tmp_path: Path
) -> None:
    pod, directory = a_pod(room), tmp_path / "pods" / UID / "session"
    await access.provide(pod, pod.spec.containers[0])
    for path in directory.iterdir():
        path.unlink()
    directory.rmdir()
    await room.open()
    room.clock.advance(0.1)
    await room.settle()
    publish(access, pod, None)
    await room.settle()
    assert not directory.exists()
