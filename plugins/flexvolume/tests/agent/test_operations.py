"""Mounts and unmounts of the agent on models: order, undoing, callers that give up, restarts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from kubeletx_flexvolume.agent.callers import ABANDONED_SECONDS
from kubeletx_flexvolume.agent.worker import LAST_RETRY_SECONDS
from kubeletx_flexvolume.backends.backend import SourceType

from kubeletx.api import Conflict, TimedOut, Unavailable
from kubeletx_testing.waiting import until
from plugins.flexvolume.tests.agent.agent_model import BOOT, NODE, Node, call, holder, request, target, volume

MAKING = ["take", "attach", "note", "look", "format", "mount", "bind", "note"]
REMOVING = ["unbind", "unmount", "detach", "release"]


@pytest.fixture
async def hasty(tmp_path: Path) -> AsyncIterator[Node]:
    """A node whose calls have a deadline that the test waits for."""
    one = Node(tmp_path / "volumes", seconds=1.5)
    yield one
    await one.operations.close(0)


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    one = Node(tmp_path / "volumes")
    yield one
    await one.operations.close(0)


async def test_a_mount_and_an_unmount_are_done_in_order_and_leave_nothing(node: Node) -> None:
    await node.mount()
    assert node.faults.log == MAKING
    assert node.mounts.mounted.keys() >= {target().path, target().global_directory}
    await node.unmount()
    assert node.faults.log == [*MAKING, *REMOVING]
    await until(lambda: node.is_clean)
    assert node.operations.volumes() == ()


async def test_mount_and_unmount_may_come_twice(node: Node) -> None:
    await node.mount()
    await node.mount()
    assert node.faults.log == MAKING
    await node.unmount()
    await node.unmount()
    assert node.faults.log == [*MAKING, *REMOVING]


async def test_an_unmount_of_what_was_never_mounted_succeeds(node: Node) -> None:
    await node.unmount()
    assert node.faults.log == []


async def test_a_volume_whose_mount_of_the_node_is_gone_is_mounted_again_for_the_next_pod(node: Node) -> None:
    await node.mount("u1")
    del node.mounts.mounted[target().global_directory]  # an administrator has unmounted it
    with pytest.raises(Unavailable, match="nothing is mounted on"):
        await node.mount("u2")
    await node.mount("u2")
    assert node.mounts.mounted.keys() >= {target("u2").path, target().global_directory}
    await node.unmount("u1")
    await node.unmount("u2")
    await until(lambda: node.is_clean)


async def test_two_pods_share_the_mount_of_the_node_and_the_last_one_detaches(node: Node) -> None:
    await node.mount("u1")
    await node.mount("u2")
    assert node.faults.log == [*MAKING, "take", "bind", "note"]
    assert [len(one.holders) for one in node.operations.volumes()] == [2]
    await node.unmount("u1")
    assert node.backend.attached == {"pv-1"}
    assert [one.pod_uid for one in node.book.entries["pv-1"]] == ["u2"]
    await node.unmount("u2")
    await until(lambda: node.is_clean)


async def test_a_pod_that_writes_makes_a_read_only_mount_writable(node: Node) -> None:
    node.device.is_blank = False
    await node.mount("u1", read_only=True)
    assert node.mounts.mounted[target("u1").global_directory].is_read_only
    await node.mount("u2")
    assert "remount" in node.faults.log
    assert node.mounts.mounted[target("u1").path].is_read_only
    assert not node.mounts.mounted[target("u2").path].is_read_only


async def test_a_directory_is_not_looked_at_and_not_formatted(tmp_path: Path) -> None:
    node = Node(tmp_path / "volumes", type=SourceType.DIRECTORY)
    await node.mount()
    assert node.faults.log == ["take", "attach", "note", "mount", "bind", "note"]
    await node.operations.close(0)


@pytest.mark.parametrize("step", ["take", "attach", "look", "format", "mount", "bind"])
async def test_a_failed_mount_leaves_nothing_behind(node: Node, step: str) -> None:
    node.faults.fail(step)
    with pytest.raises(Unavailable, match=f"{step} failed"):
        await node.mount()
    await until(lambda: node.is_clean)
    await node.mount()
    assert target().path in node.mounts.mounted


async def test_a_refused_mount_does_nothing_and_names_the_holder(node: Node) -> None:
    node.book.entries["pv-1"] = [holder("u9", node="node-b")]
    with pytest.raises(Conflict, match="pod default/pod-u9 on node node-b"):
        await node.mount()
    assert node.faults.log == ["take"]


async def test_a_mount_whose_entry_disappears_meanwhile_is_undone(node: Node) -> None:
    mounting, gate = await node.reach("mount", node.mount())
    node.book.entries.clear()
    gate.set()
    with pytest.raises(Conflict, match="has no entry"):
        await mounting
    await until(lambda: node.is_clean)


async def test_records_that_do_not_answer_a_note_do_not_fail_a_mount(node: Node) -> None:
    node.faults.fail("note", forever=True)
    await node.mount()
    assert target().path in node.mounts.mounted


async def test_what_cannot_be_undone_is_reported_kept_and_repeated(node: Node) -> None:
    node.faults.fail("mount")
    node.faults.fail("detach", Unavailable("device is in use"), forever=True)
    with pytest.raises(Unavailable, match=r"mount failed; undoing the mount failed too.*device is in use"):
        await node.mount()
    assert node.book.entries["pv-1"] != []  # the entry stays with the device
    node.faults.repair("detach")
    await node.clock.run_for(LAST_RETRY_SECONDS)
    await until(lambda: node.is_clean)


async def test_a_failed_detach_fails_the_unmount_and_keeps_the_entry(node: Node) -> None:
    await node.mount()
    node.faults.fail("detach", Unavailable("device is in use"))
    with pytest.raises(Unavailable, match="device is in use"):
        await node.unmount()
    assert node.book.entries["pv-1"] != []
    await node.unmount()
    await until(lambda: node.is_clean)


async def test_an_unmount_succeeds_while_the_records_do_not_answer(node: Node) -> None:
    await node.mount()
    node.faults.fail("release", forever=True)
    await node.unmount()
    assert not node.mounts.mounted
    assert not node.backend.attached
    assert len(node.store.load_all()) == 1
    node.faults.repair("release")
    await node.clock.run_for(LAST_RETRY_SECONDS)
    await until(lambda: node.is_clean)


async def test_a_mount_over_its_deadline_says_what_it_is_doing_and_a_repeated_call_joins_it(
    hasty: Node,
) -> None:
    _, gate = hasty.faults.pause("format")
    with pytest.raises(TimedOut, match="pv-1: still formatting it"):
        await hasty.mount()
    again = call(hasty.mount())
    gate.set()
    await again
    assert hasty.faults.log == MAKING


async def test_a_mount_that_no_call_waits_for_stops_before_the_pods_mount_and_is_undone_later(
    node: Node,
) -> None:
    mounting, gate = await node.reach("look", node.mount())
    mounting.cancel()
    await asyncio.wait((mounting,))
    gate.set()
    await until(lambda: "mount" in node.faults.log)
    assert target().path not in node.mounts.mounted
    await node.clock.run_for(ABANDONED_SECONDS + 1)
    await until(lambda: node.is_clean)
    assert "bind" not in node.faults.log


async def test_a_repeated_call_finishes_a_mount_that_was_left(node: Node) -> None:
    mounting, gate = await node.reach("look", node.mount())
    mounting.cancel()
    await asyncio.wait((mounting,))
    gate.set()
    await until(lambda: "mount" in node.faults.log)
    await node.clock.run_for(ABANDONED_SECONDS / 2)
    await node.mount()
    assert node.faults.log == MAKING


async def test_a_mount_whose_last_step_has_begun_is_not_given_up(node: Node) -> None:
    mounting, gate = await node.reach("bind", node.mount())
    await asyncio.wait((mounting,), timeout=0.3)  # longer than the deadline of the call
    assert not mounting.done()
    gate.set()
    await mounting
    assert target().path in node.mounts.mounted


async def test_an_unmount_during_a_mount_wins(node: Node) -> None:
    mounting, gate = await node.reach("look", node.mount())
    unmounting = call(node.unmount())
    await asyncio.sleep(0)
    gate.set()
    await unmounting
    with pytest.raises(Unavailable, match="unmounted meanwhile"):
        await mounting
    await until(lambda: node.is_clean)


async def test_a_hanging_unmount_of_one_volume_does_not_disturb_another(hasty: Node) -> None:
    await hasty.mount()
    unmounting, gate = await hasty.reach("unmount", hasty.unmount())
    await hasty.mount(of=volume("pv-2"))
    with pytest.raises(TimedOut, match="pv-1: still unmounting it"):
        await unmounting
    gate.set()
    await hasty.unmount()
    assert hasty.backend.attached == {"pv-2"}


async def test_a_new_pod_gets_the_volume_while_the_last_one_cannot_be_detached(node: Node) -> None:
    await node.mount("u1")
    node.faults.fail("unmount", Unavailable("target is busy"), forever=True)
    with pytest.raises(Unavailable, match="target is busy"):
        await node.unmount("u1")
    await node.mount("u2")
    assert [one.pod_uid for one in node.book.entries["pv-1"]] == ["u2"]
    node.faults.repair("unmount")
    await node.unmount("u2")
    await until(lambda: node.is_clean)


async def test_two_volumes_with_one_name_are_kept_apart(node: Node) -> None:
    await node.mount("u1")
    with pytest.raises(Conflict, match="give each volume a name"):
        await node.mount("u2", of=volume(image="another"))


async def test_a_second_volume_at_one_target_is_refused(node: Node) -> None:
    await node.mount("u1")
    other = request("u1", of=volume("pv-2"))
    with pytest.raises(Conflict, match="volume pv-1 is mounted on"):
        await node.operations.mount(other, target("u1"))


async def test_another_access_of_a_mounted_pod_is_refused(node: Node) -> None:
    await node.mount("u1")
    with pytest.raises(Conflict, match="another access"):
        await node.mount("u1", read_only=True)


async def test_a_mount_that_was_removed_by_hand_is_made_again(node: Node) -> None:
    await node.mount()
    del node.mounts.mounted[target().path]
    await node.mount()
    assert target().path in node.mounts.mounted
    await node.unmount()
    await until(lambda: node.is_clean)


async def test_secrets_reach_the_backend_only(node: Node, tmp_path: Path) -> None:
    await node.mount()
    assert node.backend.secrets == {"key": b"hunter2"}
    files = [path.read_text() for path in (tmp_path / "volumes").iterdir()]
    assert files
    assert not any("hunter2" in text or "aHVudGVyMg" in text for text in files)
    assert "hunter2" not in repr(request())


# --- drop ---


async def test_a_volume_is_dropped_from_all_pods(node: Node) -> None:
    await node.mount("u1")
    await node.mount("u2")
    await node.operations.drop(volume(), why="its cluster is being deleted")
    assert node.is_clean


async def test_a_forced_drop_takes_the_storage_away_before_it_unmounts(node: Node) -> None:
    await node.mount()
    node.faults.log.clear()
    await node.operations.drop(volume(), why="another node has it", force=True)
    assert node.faults.log == [
        *("force detach", "lazy unbind", "force detach", "lazy unmount"),
        *("force detach", "release"),
    ]
    assert node.is_clean


async def test_a_forced_drop_of_a_volume_of_a_server_waits_for_the_processes_that_write(
    tmp_path: Path,
) -> None:
    node = Node(tmp_path, type=SourceType.REMOTE)
    node.backend.mount_options = ("nosharecache",)
    await node.mount()
    node.faults.log.clear()
    node.faults.fail("stop writers", Unavailable("a process has a file open"))
    with pytest.raises(Unavailable, match="a process has a file open"):
        await node.operations.drop(volume(), why="another node has it", force=True)
    assert "lazy unmount" not in node.faults.log
    await node.operations.drop(volume(), why="another node has it", force=True)
    assert node.is_clean
    await node.operations.close(0)


async def test_a_drop_of_a_volume_without_a_journal_detaches_what_is_there(node: Node) -> None:
    node.backend.attached.add("pv-1")
    await node.operations.drop(volume(), why="a test")
    assert node.is_clean
    await node.operations.drop(volume(), why="a test")


async def test_a_failed_drop_names_the_step_and_a_repeated_one_continues(node: Node) -> None:
    await node.mount()
    node.faults.fail("detach", Unavailable("device is in use"))
    with pytest.raises(Unavailable, match="device is in use"):
        await node.operations.drop(volume(), why="a test")
    await node.operations.drop(volume(), why="a test")
    assert node.is_clean


async def test_a_mount_after_a_forced_drop_begins_at_the_first_step(node: Node) -> None:
    await node.mount()
    dropping, gate = await node.reach("lazy unbind", node.operations.drop(volume(), why="a test", force=True))
    mounting = call(node.mount("u2"))
    await asyncio.sleep(0)
    node.faults.log.clear()
    gate.set()
    await asyncio.wait((dropping, mounting))
    assert mounting.exception() is None
    assert node.faults.log[-7:] == ["take", "attach", "note", "look", "mount", "bind", "note"]


# --- restarts ---


async def test_a_mounted_volume_stays_over_a_restart_of_the_agent(node: Node) -> None:
    await node.mount()
    node.faults.log.clear()
    await node.restart()
    assert node.faults.log == []
    assert [one.volume.name for one in node.operations.volumes()] == ["pv-1"]
    await node.mount()
    assert node.faults.log == []
    await node.unmount()
    await until(lambda: node.is_clean)


@pytest.mark.parametrize("step", ["take", "attach", "look", "format", "mount", "bind"])
async def test_a_mount_that_was_in_progress_is_undone_at_the_start(node: Node, step: str) -> None:
    await node.interrupt(step, node.mount())
    await node.restart()
    await until(lambda: node.is_clean)


@pytest.mark.parametrize("step", ["unbind", "unmount", "detach", "release"])
async def test_an_unmount_that_was_in_progress_is_finished_at_the_start(node: Node, step: str) -> None:
    await node.mount()
    await node.interrupt(step, node.unmount())
    await node.restart()
    await until(lambda: node.is_clean)


async def test_an_interrupted_format_is_finished_while_the_entry_is_ours(node: Node) -> None:
    await node.interrupt("format", node.mount())
    await node.restart()
    assert not node.device.is_blank
    await until(lambda: node.is_clean)


async def test_an_interrupted_format_is_not_finished_if_the_lock_was_broken(node: Node) -> None:
    await node.interrupt("format", node.mount())
    node.book.entries["pv-1"] = [holder("u9", node="node-b")]
    await node.restart()
    assert node.faults.log.count("format") == 1
    assert node.backend.attached == set()


async def test_after_a_reboot_entries_are_released_and_nothing_is_unmounted(node: Node) -> None:
    await node.mount()
    node.faults.log.clear()
    await node.restart(boot_id="boot-2")
    assert node.faults.log == ["detach", "release"]
    await until(lambda: node.is_clean)


async def test_a_mount_that_disappeared_while_the_agent_was_away_is_removed_completely(node: Node) -> None:
    await node.mount()
    del node.mounts.mounted[target().path]
    await node.restart()
    await until(lambda: node.is_clean)


async def test_journals_are_rebuilt_from_the_mount_table(node: Node, tmp_path: Path) -> None:
    await node.mount()
    (path,) = (tmp_path / "volumes").glob("*.json")
    path.write_text("{ half a jour")
    await node.restart()
    assert (tmp_path / "volumes" / "pv-1.json.damaged").exists()
    (one,) = node.operations.volumes()
    assert (one.volume.backend, one.device, one.holders[0].key) == (
        "model",
        "/dev/model0",
        (NODE, BOOT, target().path),
    )
    await node.unmount()
    assert not node.mounts.mounted
    assert not node.backend.attached
    assert node.book.entries["pv-1"] == []


async def test_a_mount_without_a_journal_is_unmounted_and_its_entry_released(node: Node) -> None:
    await node.mount()
    (journal,) = node.store.load_all()
    await node.operations.close(0)
    node.store.remove(journal.volume.name)
    node.start()
    await node.unmount()
    await until(lambda: node.is_clean)


async def test_a_mount_of_an_unknown_device_is_unmounted(node: Node) -> None:
    node.mounts.add(target().path, "/dev/foreign0", False)
    await node.unmount()
    assert not node.mounts.mounted


async def test_a_start_does_not_wait_for_a_volume_that_hangs(node: Node) -> None:
    await node.mount("u1")
    await node.mount(of=volume("pv-2"))
    await node.operations.close(0)
    del node.mounts.mounted[target().path]
    _, gate = node.faults.pause("unmount")
    node.recovery_seconds = 0.05
    await node.restart()
    assert {one.volume.name for one in node.operations.volumes()} == {"pv-1", "pv-2"}
    gate.set()


async def test_an_entry_of_a_use_that_is_not_taken_is_not_listed(node: Node) -> None:
    await node.mount("u1")
    mounting, gate = await node.reach("take", node.mount("u2"))
    (one,) = node.operations.volumes()
    assert [held.pod_uid for held in one.holders] == ["u1", "u2"]  # the entry may have been written
    gate.set()
    await mounting


async def test_a_device_that_another_volume_has_is_left_to_it(node: Node) -> None:
    """Agents of earlier versions have attached two volumes of one image; a crash repeats a detach, too."""
    node.is_one_device = True
    one, other = volume("pv-1"), volume("pv-2")
    await node.mount("u1", of=one)
    await node.mount("u2", of=other)
    await node.unmount("u2", "pv-2")
    await node.operations.drop(other, why="its lock was broken", force=True)
    assert "detach" not in node.faults.log
    assert "force detach" not in node.faults.log
    await node.unmount("u1", "pv-1")
    assert node.faults.log.count("detach") == 1


async def test_a_volume_that_is_refused_detaches_nothing_after_a_crash(node: Node) -> None:
    task, _ = await node.reach("take", node.mount())
    del node.faults.gates["take"]
    await node.restart()
    assert "detach" not in node.faults.log
    assert node.is_clean
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
