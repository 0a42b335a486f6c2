"""Random histories of openers, applications, pods and restarts: what must hold at each moment and in the end."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from kubeletx.api import KubeletxError, PodUid
from kubeletx.pods.workloads.power import Power
from kubeletx.sessions.model import TABLE, OpenRequest, Session, SessionState
from kubeletx.sessions.stubs import session_service_pb2 as pb
from kubeletx.testing.clock import FakeClock
from tests.unit.sessions.room import UID, Application, Pods, Room, running_room

PLAIN = PodUid("u2")
IDS = ("default/s1", "default/s2")
EDGES = {(before, after) for (before, _), after in TABLE.items()}
STEPS = st.one_of(
    st.tuples(st.just("open"), st.sampled_from(IDS), st.sampled_from(["default/web", "default/plain"])),
    st.tuples(st.just("close"), st.sampled_from(IDS), st.sampled_from([None, 0, 30])),
    st.tuples(
        st.just("report"),
        st.sampled_from(IDS),
        st.tuples(st.sampled_from(pb.SessionState.values()), st.sampled_from([(), ("ann",), ("bob", "ann")])),
    ),
    st.tuples(st.just("pass"), st.just(""), st.sampled_from([1, 11, 61, 200])),
    st.tuples(
        st.sampled_from(["connect", "disconnect", "replace", "evacuate", "restart"]), st.just(""), st.none()
    ),
    st.tuples(st.just("rest"), st.just(""), st.sampled_from([Power.STANDBY, Power.RUNNING])),
)


Step = tuple[str, str, Any]


class History:
    """Plays steps in a room, and checks it after each."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.clock = FakeClock()
        self.pods = Pods()
        self.pods.add()
        self.pods.add(PLAIN, name="plain", has_sessions=False)
        self.application: Application | None = None
        self.containers = 0
        self.last: dict[str, Session] = {}

    async def play(self, steps: list[Step]) -> None:
        steps = [*steps, ("restart", "", None)]
        while steps:
            end = steps.index(("restart", "", None))
            async with running_room(self.path, clock=self.clock, pods=self.pods) as room:
                room.sessions.subscribe(self.note)
                self.application = None
                self.check(room)
                for kind, session_id, value in steps[:end]:
                    await self.step(room, kind, session_id, value)
                    await room.settle()
                    self.check(room)
                if end == len(steps) - 1:
                    await self.finish(room)
            steps = steps[end + 1 :]

    async def step(self, room: Room, kind: str, session_id: str, value: Any) -> None:
        try:
            match kind, value:
                case "open", str():
                    await room.sessions.open(OpenRequest(id=session_id, pod_id=value))
                case "close", int() | None:
                    await room.sessions.close(session_id, value)
                case "report", (state, clients) if self.application is not None:
                    self.application.report(state, *clients, session=session_id)
                case "pass", int():
                    await room.clock.run_for(value)
                case "connect", _:
                    self.application = room.connect()
                case "disconnect", _ if self.application is not None:
                    self.application.stream.end()
                case "replace", _:
                    self.containers += 1
                    room.pod_status(containers=(f"c{self.containers}",))
                case "evacuate", _:
                    await room.sessions.evacuate(UID, room.clock.monotonic())
                case "rest", Power():
                    room.sessions.wake(UID) if value is Power.RUNNING else room.sessions.rest(UID, value)
        except KubeletxError:
            pass  # refused

    def note(self, session: Session) -> None:
        """Each change is in the table, and nothing changes after the end."""
        before = self.last.get(session.id)
        if before is None or before.created_at != session.created_at or before.is_over:
            assert session.state is SessionState.STARTING
        elif before.state is not session.state:
            assert (before.state, session.state) in EDGES
        assert (session.closed_at is not None) == session.is_over
        if session.state in (SessionState.READY, SessionState.STARTING) or session.is_over:
            assert session.clients == ()
        self.last[session.id] = session

    def check(self, room: Room) -> None:
        for uid in (UID, PLAIN):
            live = room.sessions.of_pod(uid)
            assert all(not one.is_over and one.pod_uid == uid for one in live)
            if live:
                assert self.pods.power[uid] is Power.RUNNING
        for session in room.sessions.all():
            if session.state is SessionState.LIVE:
                assert session.clients

    async def finish(self, room: Room) -> None:
        """All sessions end when they are closed, whatever the application does; then the pods may rest."""
        for session in room.sessions.all():
            await room.sessions.close(session.id)
        await room.clock.run_for(80)
        assert all(one.is_over for one in room.sessions.all())
        assert self.pods.power.get(PLAIN) is None
        instance = room.sessions.instance(UID)
        if instance is not None and not instance.is_ending and instance.row.was_connected:
            assert self.pods.power.get(UID) is instance.power
            assert instance.unconfirmed == set()


@settings(max_examples=60)
@given(st.lists(STEPS, max_size=25))
def test_sessions_keep_their_promises(steps: list[Step]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(History(Path(folder) / "state.db").play(steps))
