"""What `kubeletx.api` offers beside the contract: `SpecFiles`, `UnitFollower`, `SharedPulls`, `stop_with_grace` and the small ones."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from kubeletx.api import (
    FEATURES,
    BaseRuntime,
    EventKind,
    NotFound,
    PodUid,
    PullProgress,
    SandboxId,
    SandboxState,
    SharedPulls,
    SpecFiles,
    SupportsEvents,
    SupportsExec,
    Unavailable,
    UnitFollower,
    UnitId,
    UnitState,
    every_feature_but,
    matching,
    stop_with_grace,
)
from kubeletx.testing import FakeHost, endpoint, sandbox_spec, unit_spec


@pytest.fixture
def files(tmp_path: Path) -> SpecFiles:
    files = SpecFiles(FakeHost(tmp_path))
    files.open()
    return files


async def test_the_same_key_gives_the_same_id_also_when_asked_twice_at_once(files: SpecFiles) -> None:
    spec = sandbox_spec()
    ids = set(await asyncio.gather(*(files.add_sandbox(spec) for _ in range(8))))
    assert ids == {one.id for one in files.sandboxes()}
    (sandbox_id,) = ids
    units = set(await asyncio.gather(*(files.add_unit(sandbox_id, unit_spec()) for _ in range(8))))
    assert units == {one.id for one in files.units(sandbox_id)}


async def test_a_uid_may_hold_anything_and_never_leaves_the_directory(
    files: SpecFiles, tmp_path: Path
) -> None:
    sandbox_id = await files.add_sandbox(sandbox_spec(uid="../../etc/ü"))
    assert files.sandbox(sandbox_id).path.is_relative_to(tmp_path)


async def test_what_a_crash_left_in_between_is_dropped_by_open_and_the_rest_is_kept(
    files: SpecFiles, tmp_path: Path
) -> None:
    sandbox_id = await files.add_sandbox(sandbox_spec())
    (tmp_path / "spare" / "half-made").mkdir()
    again = SpecFiles(FakeHost(tmp_path))
    again.open()
    assert list((tmp_path / "spare").iterdir()) == []
    assert [one.id for one in again.sandboxes()] == [sandbox_id]


async def test_removing_takes_the_units_along_and_leaves_no_file(files: SpecFiles, tmp_path: Path) -> None:
    sandbox_id = await files.add_sandbox(sandbox_spec())
    unit_id = await files.add_unit(sandbox_id, unit_spec())
    (files.unit(unit_id).path / "of-the-plugin").write_text("x")
    await files.remove_unit(unit_id)
    await files.remove_unit(unit_id)
    await files.add_unit(sandbox_id, unit_spec("other"))
    await files.remove_sandbox(sandbox_id)
    await files.remove_sandbox(sandbox_id)
    assert files.units() == []
    assert [path for path in tmp_path.rglob("*") if path.parent != tmp_path] == []


async def test_the_unknown_is_not_found(files: SpecFiles) -> None:
    with pytest.raises(NotFound, match="sandbox nobody does not exist"):
        files.sandbox(SandboxId("nobody"))
    with pytest.raises(NotFound, match="unit nobody does not exist"):
        files.unit(UnitId("nobody"))
    with pytest.raises(NotFound):
        await files.add_unit(SandboxId("nobody"), unit_spec())
    files.stop_sandbox(SandboxId("nobody"))
    assert files.units(SandboxId("nobody")) == []


async def test_statuses_follow_from_what_has_happened(files: SpecFiles) -> None:
    sandbox_id = await files.add_sandbox(sandbox_spec(log_directory="/logs"))
    unit = files.unit(await files.add_unit(sandbox_id, unit_spec(log_path="main/0.log")))
    assert unit.status().summary.state is UnitState.CREATED
    assert unit.status(started_at_ns=1).summary.state is UnitState.RUNNING
    assert unit.status(started_at_ns=1, state=UnitState.PAUSED).summary.state is UnitState.PAUSED
    ended = unit.status(started_at_ns=1, finished_at_ns=2, exit_code=0)
    assert (ended.summary.state, ended.reason) == (UnitState.EXITED, "Completed")
    assert unit.status(started_at_ns=1, exit_code=3).reason == "Error"
    assert ended.log_path == "/logs/main/0.log"
    assert files.sandbox(sandbox_id).status().summary.state is SandboxState.READY
    files.stop_sandbox(sandbox_id)
    assert files.sandbox(sandbox_id).status(ips=("10.0.0.1",)).summary.state is SandboxState.NOT_READY


async def test_a_followed_unit_reports_its_start_and_its_end_once() -> None:
    follower, end = UnitFollower(), asyncio.Event()
    for _ in range(2):
        follower.follow(UnitId("u"), SandboxId("s"), PodUid("p"), end.wait)
    end.set()
    events = follower.events()
    assert [(await anext(events)).kind for _ in range(2)] == [EventKind.STARTED, EventKind.STOPPED]
    follower.follow(UnitId("u"), SandboxId("s"), PodUid("p"), asyncio.Event().wait)
    assert (await anext(events)).kind is EventKind.STARTED
    await follower.close()
    await follower.close()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(anext(events), 0)


async def test_stopping_with_grace_asks_first_and_kills_only_when_it_must() -> None:
    done: list[str] = []
    ended = asyncio.Event()

    async def ask() -> None:
        done.append("ask")

    async def ask_the_obedient() -> None:
        await ask()
        ended.set()

    async def kill() -> None:
        done.append("kill")
        ended.set()

    await stop_with_grace(ask=ask_the_obedient, kill=kill, wait=ended.wait, grace_seconds=60)
    assert done == ["ask"]
    ended.clear()
    await stop_with_grace(ask=ask, kill=kill, wait=ended.wait, grace_seconds=0.001)
    assert done == ["ask", "ask", "kill"]
    ended.clear()
    await stop_with_grace(ask=ask, kill=kill, wait=ended.wait, grace_seconds=0)
    assert done == ["ask", "ask", "kill", "kill"]


def test_a_base_runtime_answers_only_for_what_it_declares(tmp_path: Path) -> None:
    class Pushing(BaseRuntime):
        capabilities = (SupportsEvents, SupportsExec)

        def events(self) -> None: ...

    runtime = Pushing(endpoint("x:///"), None, FakeHost(tmp_path))
    assert runtime.capability(SupportsEvents) is runtime
    assert runtime.capability(SupportsExec) is None, "declared, but its methods are missing"
    assert BaseRuntime(endpoint("x:///"), None, FakeHost(tmp_path)).capability(SupportsEvents) is None


async def test_lists_are_filtered_by_every_label(files: SpecFiles) -> None:
    await files.add_sandbox(sandbox_spec(labels={"a": "1", "b": "2"}))
    summaries = [one.status().summary for one in files.sandboxes()]
    assert matching(summaries, {}) == matching(summaries, {"a": "1", "b": "2"}) == summaries
    assert matching(summaries, {"a": "1", "b": "3"}) == []


def test_a_feature_that_no_one_knows_is_refused() -> None:
    assert set(every_feature_but("stdin")) == FEATURES - {"stdin"}
    with pytest.raises(ValueError, match="unknown feature 'stdinn'"):
        every_feature_but("stdinn")


async def test_a_pull_that_was_cancelled_is_not_in_the_way_of_the_next() -> None:
    pulls = SharedPulls[str]()
    began: list[asyncio.Event] = []

    async def fetch(report: object) -> str:
        began.append(asyncio.Event())
        if len(began) == 1:
            await began[0].wait()
        return "ref"

    for end in ("cancelled", "closed"):
        began.clear()
        first = asyncio.create_task(pulls.join("x", fetch, None))
        await asyncio.sleep(0)
        if end == "closed":
            await pulls.close()  # before the fetch ran at all
            with pytest.raises(Unavailable):
                await first
            began.append(asyncio.Event())
        else:
            first.cancel()
            with pytest.raises(asyncio.CancelledError):
                await first
        async with asyncio.timeout(60):
            assert await pulls.join("x", fetch, None) == "ref"


async def test_those_who_want_the_same_share_one_pull_and_hear_how_far_it_is() -> None:
    pulls: SharedPulls[str] = SharedPulls()
    heard: list[str] = []
    go_on, count = asyncio.Event(), 0

    async def pull(report: Callable[[PullProgress], None]) -> str:
        nonlocal count
        count += 1
        await go_on.wait()
        report(PullProgress(message="half"))
        return "ref"

    def listen(progress: PullProgress) -> None:
        heard.append(progress.message)

    waiting = [asyncio.create_task(pulls.join("x", pull, listen)) for _ in range(10)]
    await asyncio.sleep(0)
    assert list(pulls.keys) == ["x"]
    waiting.pop().cancel()
    await asyncio.sleep(0)
    go_on.set()
    assert await asyncio.gather(*waiting) == ["ref"] * 9
    assert count == 1
    assert heard == ["waiting"] * 10 + ["half"] * 9
    await asyncio.sleep(0)
    assert list(pulls.keys) == []
