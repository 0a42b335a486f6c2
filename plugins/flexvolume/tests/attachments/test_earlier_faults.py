"""Faults of the first implementation of the design document, each by its number: D1 to D12."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path, PurePosixPath

import pytest
from kubeletx_flexvolume.agent.paths import parse_target
from kubeletx_flexvolume.attachments.record import is_image_record
from kubeletx_flexvolume.driver import program
from kubeletx_flexvolume.host.options import FS_GROUPS
from kubeletx_flexvolume.values import HolderStatus

from kubeletx.api import Conflict, InvalidPod, TimedOut
from kubeletx_testing.apiserver import ApiServerDouble
from kubeletx_testing.waiting import until
from plugins.flexvolume.tests.agent.test_background import AgentModel
from plugins.flexvolume.tests.agent.test_options import parse
from plugins.flexvolume.tests.agent.test_paths import GOOD, ROOTS
from plugins.flexvolume.tests.attachments.attachment_model import (
    RWOP,
    RWX,
    NodeModel,
    StorageModel,
    entry,
    holder,
    volume,
)
from plugins.flexvolume.tests.attachments.cluster_model import add_node, set_up
from plugins.flexvolume.tests.cleanup.test_cleaner import OF_MAIN, CleanerModel, cluster


@pytest.fixture
def model() -> StorageModel:
    return StorageModel("n1", "n2", "n3")


async def test_d1_a_volume_that_is_being_detached_is_not_free(model: StorageModel) -> None:
    one, other = NodeModel(model, "n1"), NodeModel(model, "n2")
    taken = await one.take()
    await one.book.note(volume(), taken, device="/dev/loop0", status=HolderStatus.DETACHING)
    with pytest.raises(Conflict):
        await other.take(pod="b")


async def test_d2_a_release_that_fails_is_an_error(model: StorageModel) -> None:
    node = NodeModel(model)
    taken = await node.take()
    model.records.lose_writes = 1000
    with pytest.raises(TimedOut):
        await node.book.release(volume(), taken)
    assert await node.book.holds(volume(), taken)


async def test_d3_of_several_entries_only_the_own_one_goes(model: StorageModel) -> None:
    shared, node = volume("pv-1", RWX), NodeModel(model, "n1")
    taken = await node.take(shared, "mine")
    await node.take(shared, "my-neighbour")
    await NodeModel(model, "n2").take(shared, "elsewhere")
    await node.book.release(shared, taken)
    assert await model.holders() == ["n1/my-neighbour", "n2/elsewhere"]


async def test_d4_an_entry_that_is_added_before_the_deletion_is_not_lost(model: StorageModel) -> None:
    shared, one, other = volume("pv-1", RWX), NodeModel(model, "n1"), NodeModel(model, "n2")
    taken = await one.take(shared, "a")
    model.records.before = lambda: other.take(shared, "b")
    await one.book.release(shared, taken)
    assert await model.holders() == ["n2/b"]


async def test_d5_two_pods_of_a_node_at_the_same_time_do_not_both_win(model: StorageModel) -> None:
    node, single = NodeModel(model), volume("pv-1", RWOP)
    model.storage.found = {"pv-1"}

    async def attempt(pod: str) -> bool:
        try:
            await node.take(single, pod)
        except Conflict:
            return False
        return True

    assert sorted(await asyncio.gather(attempt("a"), attempt("b"))) == [False, True]


@pytest.mark.parametrize("key", FS_GROUPS)
def test_d6_the_fs_group_is_read_by_the_key_of_every_kubelet(key: str) -> None:
    assert parse(**{key.replace("kubernetes.io/", "__"): "2000"}).fs_group == 2000


async def test_d7_a_pod_that_is_force_deleted_on_a_cut_off_node_keeps_its_volume(model: StorageModel) -> None:
    assert model.pods is not None
    await NodeModel(model, "n1").take()
    model.nodes.change("n1", ready=False)
    model.pods.given_up = {"web-0"}
    with pytest.raises(Conflict, match="cannot be cut off"):
        await NodeModel(model, "n2").take()


async def test_d8_a_node_whose_lock_was_broken_removes_the_device(
    model: StorageModel, tmp_path: Path
) -> None:
    node = NodeModel(model, "n1")
    node.local.mount(volume(), await node.take())
    facts = model.nodes.known.pop("n1")
    await NodeModel(model, "n2").take()
    model.nodes.known["n1"] = facts

    await node.reconciler(tmp_path / "store").check()
    assert [(name, force) for name, _, force in node.local.dropped] == [("pv-1", True)]
    assert await model.holders() == ["n2/web-0"]


async def test_d9_a_volume_without_an_object_is_released_without_a_look_up(
    api: ApiServerDouble, tmp_path: Path
) -> None:
    kubeconfig = set_up(api)
    add_node(api.admin, "n1")
    one = AgentModel("n1", tmp_path / "n1", storage_kubeconfig=kubeconfig)
    await one.made.before_serving()
    inline = volume("inline-volume")
    await one.made.book.take(inline, holder("n1"))
    api.requests.clear()
    await one.made.book.release(inline, holder("n1"))
    names = [PurePosixPath(record.path).name for record in api.requests.all()]
    assert {name for name in names if not is_image_record(name)} == {"inline-volume"}
    assert {PurePosixPath(record.path).parent.name for record in api.requests.all()} == {"volumeattachments"}
    await one.stop()


def test_d10_a_target_that_ends_in_a_slash_is_the_same_without_it() -> None:
    for end in ("/", "//"):
        assert parse_target(GOOD + end, ROOTS) == parse_target(GOOD, ROOTS)
    for end in ("/.", "/..", "/pv-1/"):
        with pytest.raises(InvalidPod):
            parse_target(GOOD + end, ROOTS)


@pytest.mark.parametrize("words", [[], ["mount"], ["mount", GOOD], ["unmount"], ["unmount", GOOD, "{}"]])
def test_d11_a_call_without_its_arguments_is_answered_with_a_failure(
    tmp_path: Path, words: list[str]
) -> None:
    text, code = program.main([str(tmp_path / "storage"), *words])
    answer = json.loads(text)
    assert (answer["status"], code) == (("Failure", 1) if words else ("Not supported", 0))
    assert not words or "arguments" in answer["message"]


async def test_d12_a_clean_up_leaves_the_entries_of_other_nodes(tmp_path: Path) -> None:
    here = CleanerModel(tmp_path / "cleanup.json")
    await here.model.put(entry("n1"), entry("n2", "b"))
    here.node.local.mount(volume(**OF_MAIN), here.node.holder())
    async with here.running():
        here.cleaner.on_cluster(cluster())
        await until(lambda: "RemovedAttachment" in here.reasons())
    assert await here.model.holders() == ["n2/b"]
