"""Proofs that a holder is gone: where they come from, in which order, and what is not a proof."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from kubeletx_flexvolume.attachments.decision import BreakPolicy
from kubeletx_flexvolume.attachments.fencing import FENCE_SECONDS, ProofSearch
from kubeletx_flexvolume.attachments.node import NodeContext
from kubeletx_flexvolume.attachments.proofs import Proof, StorageNode, proof_from_facts
from kubeletx_flexvolume.attachments.record import AttachmentEntry
from kubeletx_flexvolume.backends.backend import FenceResult

from kubeletx.api import Conflict
from plugins.flexvolume.tests.attachments.attachment_model import (
    LocalDouble,
    NodeModel,
    StorageModel,
    entry,
    holder,
    volume,
)

CUT_OFF = FenceResult(fenced=True, why="its client is on the blocklist of the storage")


@pytest.fixture
def model() -> StorageModel:
    return StorageModel("n1", "n2")


async def search(
    model: StorageModel,
    present: AttachmentEntry,
    *,
    policy: BreakPolicy = BreakPolicy.SAFE,
    local: LocalDouble | None = None,
    fence_seconds: float = FENCE_SECONDS,
    **options: Any,
) -> Proof:
    here = local or LocalDouble()
    context = NodeContext(
        node="n2",
        boot_id="n2-boot",
        stores=model.stores,
        local=lambda: here,
        backends={"loop": model.storage},
        policy=policy,
    )
    wanted = holder("n2", present.pod)
    found = await ProofSearch(context, fence_seconds=fence_seconds).search(
        volume(**options), wanted, [present]
    )
    return found[present.key]


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"exists": False}, "does not exist any more"),
        ({"boot_id": "later"}, "has restarted since (its boot ID is later)"),
        ({"boot_id": "later", "uid": "other"}, "has restarted since"),
        ({"boot_id": "", "uid": "other"}, "was made again (its UID is other)"),
        ({"out_of_service": True}, "has the taint node.kubernetes.io/out-of-service"),
        ({"exists": True}, ""),
        ({"ready": False}, ""),
        ({"boot_id": ""}, ""),
        ({"uid": "other"}, ""),
    ],
)
def test_facts_about_a_node(facts: dict[str, Any], words: str) -> None:
    """A node that was made again and shows the boot of the entry still runs the kernel that has the device."""
    known = {"name": "n1", "uid": "n1-uid", "boot_id": "n1-boot", "ready": True, **facts}
    proof = proof_from_facts(entry("n1"), StorageNode(**known))
    assert (words in proof) if words else proof == ""


async def test_a_node_that_is_ready_keeps_its_volume_and_is_not_fenced(model: StorageModel) -> None:
    assert model.pods is not None
    model.pods.given_up = {"web-0"}
    model.storage.result = CUT_OFF
    assert await search(model, entry("n1")) == Proof(is_gone=False, why="its node is ready")
    assert model.storage.fenced == []


async def test_a_pod_that_is_not_given_up_is_not_fenced(model: StorageModel) -> None:
    model.nodes.change("n1", ready=False)
    model.storage.result = CUT_OFF
    found = await search(model, entry("n1"))
    assert not found.is_gone
    assert "its pod is not being deleted" in found.why
    assert model.storage.fenced == []


async def test_a_lost_node_whose_pod_is_given_up_is_fenced(model: StorageModel) -> None:
    assert model.pods is not None
    model.nodes.change("n1", ready=False)
    model.pods.given_up = {"web-0"}
    model.storage.result = CUT_OFF
    assert await search(model, entry("n1")) == Proof(is_gone=True, why=CUT_OFF.why)
    assert model.storage.fenced == [("pv-1", "n1")]


async def test_a_storage_that_cannot_fence_says_why(model: StorageModel) -> None:
    assert model.pods is not None
    model.nodes.change("n1", ready=False)
    model.pods.given_up = {"web-0"}
    found = await search(model, entry("n1"))
    assert not found.is_gone
    assert "it cannot be cut off: this storage cannot cut off a node" in found.why


async def test_without_a_cluster_a_silent_node_is_fenced(model: StorageModel) -> None:
    model.pods = None
    model.storage.result = CUT_OFF
    assert not (await search(model, entry("n1"))).is_gone
    model.nodes.change("n1", ready=False)
    assert (await search(model, entry("n1"))).is_gone


async def test_a_look_up_that_fails_is_not_a_proof(model: StorageModel) -> None:
    model.nodes.silent = True
    found = await search(model, entry("n1"))
    assert not found.is_gone
    assert "a look-up failed (the API server does not answer)" in found.why


async def test_a_backend_that_does_not_end_is_not_a_proof(model: StorageModel) -> None:
    assert model.pods is not None
    model.nodes.change("n1", ready=False)
    model.pods.given_up = {"web-0"}

    async def hang(*_: Any) -> FenceResult:
        await asyncio.Event().wait()
        return CUT_OFF

    model.storage.fence = hang  # type: ignore[method-assign]
    found = await search(model, entry("n1"), fence_seconds=0.01)
    assert not found.is_gone
    assert "did not fence it within 0.01 s" in found.why


async def test_an_unknown_backend_is_not_a_proof(model: StorageModel) -> None:
    assert model.pods is not None
    model.nodes.change("n1", ready=False)
    model.pods.given_up = {"web-0"}
    present = entry("n1", volume=volume().__class__(name="pv-1", backend="rbd", image="i"))
    found = await search(model, present)
    assert (found.is_gone, "backend 'rbd' is not set up here" in found.why) == (False, True)


# --- entries of this node ---


async def test_an_own_entry_without_journal_and_device_is_gone(model: StorageModel) -> None:
    found = await search(model, entry("n2", "a"))
    assert found == Proof(is_gone=True, why="its agent finds no device of it")


async def test_an_own_entry_with_a_journal_or_a_device_is_not_gone(model: StorageModel) -> None:
    local = LocalDouble()
    local.mount(volume(), holder("n2", "a"))
    assert not (await search(model, entry("n2", "a"), local=local)).is_gone
    model.storage.found = {"pv-1"}
    found = await search(model, entry("n2", "a"))
    assert (found.is_gone, found.why) == (False, "its device /dev/loop7 exists")


async def test_an_own_backend_that_does_not_answer_is_not_a_proof(model: StorageModel) -> None:
    model.storage.silent = True
    found = await search(model, entry("n2", "a"))
    assert (found.is_gone, "losetup does not answer" in found.why) == (False, True)


# --- policy seed ---


async def test_policy_seed_breaks_for_pods_of_stateful_sets_only(model: StorageModel) -> None:
    assert model.pods is not None
    assert not (await search(model, entry("n1"), policy=BreakPolicy.SEED)).is_gone
    model.pods.stateful = {"web-0"}
    found = await search(model, entry("n1"), policy=BreakPolicy.SEED)
    assert (found.is_gone, "policy seed" in found.why) == (True, True)
    assert not (await search(model, entry("n1"))).is_gone


async def test_policy_seed_without_a_cluster_asks_for_the_option(model: StorageModel) -> None:
    model.pods = None
    assert not (await search(model, entry("n1"), policy=BreakPolicy.SEED)).is_gone
    options = {"parameters": {"statefulSet": "true"}}
    assert (await search(model, entry("n1"), policy=BreakPolicy.SEED, **options)).is_gone


async def test_policy_seed_knows_a_pod_by_its_name(model: StorageModel) -> None:
    assert model.pods is not None
    model.pods.stateful = {"web-1"}
    other = NodeModel(model, "n2", BreakPolicy.SEED)
    await NodeModel(model, "n1", BreakPolicy.SEED).take(pod="web-0")
    with pytest.raises(Conflict, match="default/web-0 on node n1"):
        await other.take(pod="web-1")
    model.pods.stateful = {"web-0"}
    taken = await other.take(pod="web-0", pod_uid="made-again")
    assert "policy seed" in taken.reason
    assert [one.volume_name for one in await model.lists.of("n1")] == ["pv-1"]
