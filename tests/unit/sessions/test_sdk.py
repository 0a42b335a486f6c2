"""The SDK against the real session service: what an application sees of a node, and a node of an application."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from kubeletx_session import AsyncSessionClient, Session, Settings

from kubeletx.sessions.certificates import load_ca
from kubeletx.sessions.model import SessionState
from kubeletx.sessions.server import SessionServer
from kubeletx_testing.waiting import until
from tests.unit.sessions.room import UID, Room


class Node:
    """A node with the session service for the pod of `room`; a stopped one may start again."""

    def __init__(self, room: Room, directory: Path) -> None:
        self.room = room
        self.directory = directory
        now = datetime.now(UTC)
        self._ca = load_ca(directory, now)
        self._pair = self._ca.server_pair(now)
        pair = self._ca.instance_pair(UID, "default/web", now)
        for name, data in (("ca.crt", self._ca.pem), ("tls.crt", pair.certificate), ("tls.key", pair.key)):
            (directory / name).write_bytes(data)
        room.sessions.ensure_instance(room.pods.views[UID].pod)
        self._server: SessionServer | None = None

    def settings(self) -> Settings:
        return Settings(
            directory=self.directory,
            service=f"unix://{self.directory}/session.sock",
            pod_id="default/web",
            longest_pause_seconds=0.05,
        )

    async def start(self) -> None:
        self._server = SessionServer(
            find=self.room.sessions.instance, ca=self._ca.pem, pair=self._pair, clock=self.room.clock
        )
        await self._server.start(self.directory / "session.sock")

    async def stop(self) -> None:
        if self._server is not None:
            await self._server.stop()
            self._server = None

    async def state(self, state: SessionState) -> None:
        await until(lambda: self.room.session().state is state)


@pytest.fixture
async def node(room: Room, tmp_path: Path) -> AsyncIterator[Node]:
    made = Node(room, tmp_path)
    await made.start()
    yield made
    await made.stop()


class App:
    """An application that keeps its sessions."""

    def __init__(self) -> None:
        self.sessions: list[Session] = []

    async def on_open(self, session: Session) -> None:
        self.sessions.append(session)


async def test_a_session_lives_through_a_restart_of_the_service(node: Node, room: Room) -> None:
    app = App()
    async with AsyncSessionClient(app.on_open, settings=node.settings()) as client:
        await room.open(data=b"blue")
        await node.state(SessionState.READY)
        app.sessions[0].join("ann")
        await node.state(SessionState.LIVE)
        await node.stop()
        await until(lambda: not client.is_connected)
        app.sessions[0].leave("ann")
        await node.start()
        await node.state(SessionState.READY)
        await room.sessions.close("default/s1")
        await node.state(SessionState.TERMINATED)
    assert room.states() == [
        "Starting",
        "ReadinessChecking",
        "Ready",
        "Live",
        "Ready",
        "Terminating",
        "Terminated",
    ]
    assert (room.session().reason, [one.data for one in app.sessions]) == ("", [b"blue"])


async def test_a_name_is_used_again_and_again(node: Node, room: Room) -> None:
    app = App()
    async with AsyncSessionClient(app.on_open, settings=node.settings()):
        for turn in range(5):
            room.clock.advance(0.01)
            await room.open(data=str(turn).encode())
            await node.state(SessionState.READY)
            await room.sessions.close("default/s1")
            await node.state(SessionState.TERMINATED)
            assert room.session().reason == ""
    assert [one.data for one in app.sessions] == [b"0", b"1", b"2", b"3", b"4"]


async def test_an_application_that_ends_closes_its_sessions(node: Node, room: Room) -> None:
    app = App()
    async with AsyncSessionClient(app.on_open, settings=node.settings()):
        await room.open()
        await node.state(SessionState.READY)
    await node.state(SessionState.TERMINATED)
    assert room.session().reason == "ClosedByInstance"
