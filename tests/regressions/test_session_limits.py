"""Data of sessions, ended sessions and full disks: neither an application nor a core fills memory, disk or log."""

from __future__ import annotations

import json
import resource
from datetime import UTC, datetime
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from kubeletx.api import Conflict, PodUid
from kubeletx.fornax import content as content_module
from kubeletx.kube.types.core import PodStatus
from kubeletx.sessions.model import DATA_LIMIT, SessionLimits
from kubeletx.sessions.usage_records import UsageFile, UsageRow
from kubeletx_testing.waiting import until
from tests.unit.fornax.pod_world import World, a_pod
from tests.unit.sessions.room import UID, running_room
from tests.unit.sessions.test_access import RunningAccess, metadata, publish

DATA = b"x" * DATA_LIMIT
NOW = datetime(2026, 1, 1, tzinfo=UTC)


async def test_the_data_of_all_sessions_of_a_pod_is_bounded(tmp_path: Path) -> None:
    """100 sessions with 1 MiB each made a metadata file of 100 MiB, written again at each change."""
    async with running_room(tmp_path / "state.db") as room:
        for number in range(8):
            await room.open(f"default/s{number}", data=DATA)
        with pytest.raises(
            Conflict, match=f"with {8 * DATA_LIMIT} bytes of data, and 1 more exceed the limit"
        ):
            await room.open("default/more", data=b"x")
        await room.open("default/none")
        await room.sessions.close("default/s0")
        room.connect()
        await room.sessions.close("default/s1")
        await room.settle()
        await room.open("default/more", data=b"x")


async def test_ended_sessions_are_few_and_have_no_data(tmp_path: Path) -> None:
    """Ten minutes of a busy core made 30,000 ended sessions, each with its data in memory and in the database."""
    limits = SessionLimits(kept_sessions=3)
    for _ in range(2):
        async with running_room(tmp_path / "state.db", limits=limits) as room:
            for number in range(5):
                await room.open(f"default/s{number}", data=DATA)
                await room.sessions.close(f"default/s{number}")
                await room.settle()
            ended = room.sessions.all()
            assert [(one.id, one.data) for one in ended] == [(f"default/s{n}", b"") for n in (2, 3, 4)]
    async with running_room(tmp_path / "state.db", limits=limits) as room:
        # all end at the same time of the test's clock, so their order is not set
        assert tuple(sorted(room.sessions.all(), key=lambda one: one.id)) == ended


async def test_a_full_list_has_the_last_ended_sessions_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A list of 30,000 ended sessions is above the 4 MiB that a published core takes: it was never brought up to date."""
    monkeypatch.setattr(content_module, "_LISTED_ENDED", 2)
    world = World(tmp_path)
    async with world.running():
        await world.start(a_pod())
        for number in range(4):
            session_id = await world.open(f"s{number}", sessionData="level")
            await world.until_session(session_id, "Available")
            if number:
                await world.close(session_id)
                await world.until_session(session_id, "Closed")
        (listed,) = world.listed().values()
        found = {one.session.metadata.name: one.session for one in listed.sessionStates}
        assert {name: one.status.sessionStatus for name, one in found.items()} == {
            "s0": "Available",
            "s2": "Closed",
            "s3": "Closed",
        }
        assert (found["s0"].spec.sessionData, found["s3"].spec.sessionData) == ("level", "")


async def test_a_session_of_a_core_with_huge_metadata_is_refused(tmp_path: Path) -> None:
    world = World(tmp_path)
    async with world.running():
        await world.start(a_pod())
        await world.open("s1", applicationName="x" * 70_000)
        (answer,) = world.sessions["apps/s1"]
        assert answer.session.status.sessionStatus == "Closed"
        assert "bytes without spec.sessionData; use at most 65536" in answer.message
        assert answer.ByteSize() < 1000


async def test_metadata_that_could_not_be_written_is_written_when_it_can_be(tmp_path: Path) -> None:
    """On a full disk the file stayed out of date until the next change, and each change was logged."""
    async with running_room(tmp_path / "state.db") as room, RunningAccess(room, tmp_path) as access:
        pod = room.pods.views[UID].pod
        await access.provide(pod, pod.spec.containers[0])
        obstacle = tmp_path / "pods" / UID / "session" / ".metadata.json.new"
        obstacle.mkdir()
        with capture_logs() as logs:
            for number in range(3):
                await room.open(f"default/s{number}", open_timeout_seconds=3600)
                room.clock.advance(6)
                await until(lambda: any("metadata" in one["event"] for one in logs))
        assert [one["err"] for one in logs if "metadata" in one["event"]] == [
            f"cannot write {obstacle.parent / 'metadata.json'}: Is a directory"
        ]
        obstacle.rmdir()

        def is_written() -> bool:
            room.clock.advance(1)
            return len(metadata(tmp_path)["sessions"]) == 3

        await until(is_written)


async def test_the_service_starts_when_its_directory_can_be_made(tmp_path: Path) -> None:
    """A new agent that could not start the service waited for a change of a pod, which may be days away."""
    async with running_room(tmp_path / "state.db") as room:
        pod = room.pods.views[UID].pod
        (tmp_path / "sessions").write_text("in the way")
        (tmp_path / "pods" / UID / "session").mkdir(parents=True)
        async with RunningAccess(room, tmp_path) as access:
            with capture_logs() as logs:
                publish(access, pod, PodStatus(phase="Running"))
                await until(lambda: [one for one in logs if one["event"].startswith("Failed to serve")])
            (tmp_path / "sessions").unlink()

            def is_served() -> bool:
                room.clock.advance(1)
                return (tmp_path / "pods" / UID / "session" / "tls.crt").exists()

            await until(is_served)


def test_a_line_of_usage_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    """A full disk left half a line, and the next one followed on it."""
    file = UsageFile(tmp_path / "usage.jsonl")
    rows = [a_row(number) for number in range(3)]
    file.append(rows[:1])
    size = file.path.stat().st_size
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 20, before[1]))  # SIGXFSZ is ignored by Python
    try:
        with pytest.raises(OSError, match="File too large"):
            file.append(rows[1:])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert file.path.stat().st_size == size
    file.append(rows[1:])
    assert [json.loads(line)["key"] for line in file.path.read_text().splitlines()] == ["k0", "k1", "k2"]


def a_row(number: int) -> UsageRow:
    return UsageRow(
        key=f"k{number}",
        id="default/s1",
        pod_id="default/web",
        pod_uid=PodUid("u1"),
        application="shop",
        origin="local",
        created_at=NOW,
        opened_at=NOW,
        counted_at=NOW,
    )
