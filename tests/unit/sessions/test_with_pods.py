"""Sessions over the real pod manager and a fake runtime: frozen pods wake and freeze, ends of pods."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
from msgspec.structs import replace

from kubeletx.api import Conflict, UnitState
from kubeletx.api.names import SESSIONS, STANDBY
from kubeletx.kube.types.core import Pod
from kubeletx.pods import PodManager, has_ended
from kubeletx.sessions.model import OpenRequest, SessionState
from kubeletx.sessions.records import SESSION_TABLES, SessionRecords
from kubeletx.sessions.service import Sessions, access_to
from kubeletx.sessions.stubs import session_service_pb2 as pb
from kubeletx.store import Store
from tests.unit.pods.manager_model import Node, a_pod
from tests.unit.pods.workloads.standby.standby_model import is_in
from tests.unit.sessions.room import Application

REQUEST = OpenRequest(id="default/s1", pod_id="default/web")


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def a_standby_pod() -> Pod:
    pod = a_pod()
    annotations = {SESSIONS: "true", STANDBY: "standby"}
    return replace(pod, metadata=replace(pod.metadata, annotations=annotations))


@asynccontextmanager
async def serving(node: Node, manager: PodManager) -> AsyncIterator[Sessions]:
    """Run the sessions of the node, connected to its pods as the agent does."""
    store = await Store.open(node.root / "sessions.db", [SESSION_TABLES])
    records = SessionRecords(store, node.clock)
    sessions = Sessions(pods=access_to(manager), records=records, clock=node.clock)
    await sessions.load()
    sessions.ask_again()
    node.services.board.subscribe(sessions.pod_changed)
    node.evacuations[:] = [sessions.evacuation()]
    task = asyncio.create_task(sessions.run(), name="sessions")
    try:
        yield sessions
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await sessions.stop()
        await store.close()


async def connected(node: Node, sessions: Sessions) -> Application:
    """Start the standby pod; it freezes once its application has connected."""
    worker = await node.start(a_standby_pod())
    await node.until(lambda: sessions.instance(worker.uid) is not None)
    await node.until(partial(is_in, node, UnitState.RUNNING))
    await node.clock.run_for(5)
    assert is_in(node, UnitState.RUNNING)
    application = Application(sessions.ensure_instance(worker.desired.pod))
    await node.until(partial(is_in, node, UnitState.PAUSED))
    return application


def state_of(sessions: Sessions) -> SessionState | None:
    session = sessions.find(REQUEST.id)
    return session.state if session is not None else None


async def test_a_session_wakes_a_frozen_pod_and_its_end_freezes_it(node: Node) -> None:
    async with node.running() as manager, serving(node, manager) as sessions:
        application = await connected(node, sessions)
        await sessions.open(REQUEST)
        await node.until(partial(is_in, node, UnitState.RUNNING))
        application.report(pb.STATE_OPEN)
        await node.until(lambda: state_of(sessions) is SessionState.READY)
        application.report(pb.STATE_CLOSED)
        await node.until(partial(is_in, node, UnitState.PAUSED))


async def test_a_deleted_pod_closes_its_sessions_before_its_containers_stop(node: Node) -> None:
    async with node.running() as manager, serving(node, manager) as sessions:
        application = await connected(node, sessions)
        worker = next(iter(manager.workers.values()))
        await sessions.open(REQUEST)
        application.report(pb.STATE_OPEN, "ann")
        await node.until(lambda: state_of(sessions) is SessionState.LIVE)
        manager.remove(worker.desired.source, worker.uid)
        await node.until(lambda: state_of(sessions) is SessionState.EVACUATING)
        assert is_in(node, UnitState.RUNNING)
        with pytest.raises(Conflict, match="pod default/web is ending"):
            await sessions.open(replace(REQUEST, id="default/s2"))
        application.report(pb.STATE_CLOSED)
        await node.until(lambda: not manager.workers)
        assert [one.reason for one in sessions.all()] == ["Evacuated"]
        assert sessions.instances() == ()


async def test_a_session_ends_its_pod_as_succeeded(node: Node) -> None:
    async with node.running() as manager, serving(node, manager) as sessions:
        application = await connected(node, sessions)
        await sessions.open(replace(REQUEST, kills_instance=True))
        application.report(pb.STATE_OPEN)
        await node.until(lambda: state_of(sessions) is SessionState.READY)
        application.report(pb.STATE_CLOSED)
        await node.clock.settle()
        worker = next(iter(manager.workers.values()))
        await node.until(lambda: has_ended(worker.desired, worker.facts))
        status = node.services.board.statuses[worker.uid]
        assert (status.phase, status.reason) == ("Succeeded", "SessionClosed")
