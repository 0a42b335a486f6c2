"""Who may use a volume, by its access modes and the entries of its record."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kubeletx_flexvolume.attachments.decision import (
    AlreadyEntered,
    BreakLock,
    BreakPolicy,
    Decision,
    Enter,
    NeedsProof,
    RefuseEntry,
    decide,
)
from kubeletx_flexvolume.attachments.proofs import Proof, StorageNode, proof_from_facts
from kubeletx_flexvolume.attachments.record import (
    MAX_ENTRIES,
    AttachmentEntry,
    Entries,
    with_entry,
    without,
)
from kubeletx_flexvolume.values import AccessMode

from plugins.flexvolume.tests.attachments.attachment_model import ROX, RWO, RWOP, RWX, entry

GONE = Proof(is_gone=True, why="node n1 does not exist any more")
HERE = Proof(is_gone=False, why="its node is ready")
SEED = BreakPolicy.SEED


def decided(
    present: Sequence[AttachmentEntry],
    wanted: AttachmentEntry,
    *modes: AccessMode,
    policy: BreakPolicy = BreakPolicy.SAFE,
    proof: Proof | None = None,
) -> Decision:
    proofs = {one.key: proof for one in present} if proof is not None else {}
    return decide("pv-1", present, wanted, modes=modes, policy=policy, proofs=proofs)


@pytest.mark.parametrize("mode", list(AccessMode))
def test_a_volume_that_is_free_is_entered(mode: AccessMode) -> None:
    assert decided([], entry(read_only=True), mode) == Enter()


@pytest.mark.parametrize(
    ("mode", "present", "wanted", "allowed"),
    [
        (RWO, entry("n1", "a"), entry("n1", "b"), True),
        (RWO, entry("n1", "a"), entry("n2", "b"), False),
        (RWO, entry("n1", "a", read_only=True), entry("n2", "b", read_only=True), False),
        (RWOP, entry("n1", "a"), entry("n1", "b"), False),
        (RWOP, entry("n1", "a"), entry("n1", "a", mount_dir="/other"), True),
        (RWOP, entry("n1", "a"), entry("n2", "a"), False),
        (ROX, entry("n1", "a", read_only=True), entry("n2", "b", read_only=True), True),
        (ROX, entry("n1", "a"), entry("n2", "b", read_only=True), False),
        (RWX, entry("n1", "a"), entry("n2", "b"), True),
    ],
)
def test_the_access_mode_decides(
    mode: AccessMode, present: AttachmentEntry, wanted: AttachmentEntry, allowed: bool
) -> None:
    assert decided([present], wanted, mode) == (Enter() if allowed else NeedsProof((present,)))
    assert isinstance(decided([present], wanted, mode, proof=HERE), Enter if allowed else RefuseEntry)


@pytest.mark.parametrize(
    ("promised", "wanted", "allowed"),
    [
        (RWO, entry("n1", "b"), True),
        (RWO, entry("n2", "b"), False),
        (RWOP, entry("n1", "b"), False),
        (RWX, entry("n2", "b"), True),
        (ROX, entry("n2", "b"), False),
        (ROX, entry("n2", "b", read_only=True), True),
    ],
)
def test_what_was_promised_to_a_holder_is_not_opened_to_many(
    promised: AccessMode, wanted: AttachmentEntry, allowed: bool
) -> None:
    held = msgspec.structs.replace(entry("n1", "a", read_only=promised is ROX), modes=(promised,))
    decision = decided([held], wanted, RWX, proof=HERE)
    assert isinstance(decision, Enter) == allowed
    assert allowed or f"volume pv-1 ({promised.value}) is attached for" in getattr(decision, "reason", "")


def test_without_modes_a_volume_is_of_one_node() -> None:
    assert decided([entry("n1")], entry("n2", "b")) == NeedsProof((entry("n1"),))


def test_a_writer_is_refused_by_a_volume_for_readers_with_what_to_do() -> None:
    refused = decided([], entry(), ROX)
    assert isinstance(refused, RefuseEntry)
    assert "is ReadOnlyMany" in refused.reason
    assert "set readOnly" in refused.reason


def test_of_several_modes_the_one_that_excludes_the_fewest_counts() -> None:
    readers = [entry("n1", "a", read_only=True), entry("n2", "b", read_only=True)]
    assert decided(readers, entry("n3", "c", read_only=True), RWO, ROX) == Enter()
    assert decided(readers, entry("n3", "c"), RWO, ROX) == NeedsProof(tuple(readers))
    writer = [entry("n1", "a")]
    assert decided(writer, entry("n1", "b"), RWO, ROX) == Enter()


def test_a_refusal_names_the_holder_and_what_to_do() -> None:
    present = entry("n1", "web-0", since="2030-01-01T00:00:00Z")
    refused = decided([present], entry("n2", "other"), RWO, proof=HERE)
    assert isinstance(refused, RefuseEntry)
    words = (
        "volume pv-1 (ReadWriteOnce)",
        "pod default/web-0 on node n1",
        "since 2030-01-01T00:00:00Z",
        "its node is ready",
        "delete its Node object",
        "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute",
        "release pv-1 --node n1 --yes",
    )
    assert [word for word in words if word not in refused.reason] == []


def test_a_refusal_on_the_same_node_asks_for_patience() -> None:
    refused = decided([entry("n1", "a")], entry("n1", "b"), RWOP, proof=HERE)
    assert isinstance(refused, RefuseEntry)
    assert refused.reason.endswith("wait until that pod has ended, or delete it")


def test_a_repeated_take_finds_its_entry() -> None:
    stored = entry("n1", device="/dev/loop0", since="2030-01-01T00:00:00Z")
    assert decided([stored, entry("n2", "b")], entry("n1"), RWO) == AlreadyEntered(stored)


def test_a_reader_that_returns_as_a_writer_is_decided_again() -> None:
    reader, other = entry("n1", read_only=True), entry("n2", "b", read_only=True)
    assert decided([reader, other], entry("n1"), RWO, ROX, proof=HERE) != AlreadyEntered(reader)
    assert isinstance(decided([reader, other], entry("n1"), RWO, ROX, proof=HERE), RefuseEntry)
    assert decided([reader], entry("n1"), RWO) == Enter()


def test_another_pod_in_the_same_directory_is_excluded_by_every_mode() -> None:
    present, wanted = entry("n1", "a", mount_dir="/m"), entry("n1", "b", mount_dir="/m")
    for mode in (RWO, RWX):
        assert decided([present], wanted, mode) == NeedsProof((present,))
    assert isinstance(decided([present], wanted, RWX, proof=HERE), RefuseEntry)


def test_entries_of_this_node_before_its_restart_are_removed() -> None:
    old = entry("n1", "a", boot_id="before")
    broken = decided([old, entry("n1", "c")], entry("n1", "b"), RWO)
    assert isinstance(broken, BreakLock)
    assert broken.entries == (old,)
    assert "default/a on node n1: the node has restarted since" in broken.reason


def test_with_a_proof_the_lock_is_broken_and_the_reason_says_why() -> None:
    present = entry("n1")
    broken = decided([present], entry("n2", "b"), RWO, proof=GONE)
    assert isinstance(broken, BreakLock)
    assert broken.entries == (present,)
    assert broken.reason == (
        "removed the entry of pod default/web-0 on node n1: node n1 does not exist any more"
    )


def test_one_holder_without_proof_keeps_the_volume() -> None:
    present = [entry("n1", "a"), entry("n2", "b")]
    proofs = {present[0].key: GONE, present[1].key: HERE}
    refused = decide("pv-1", present, entry("n3", "c"), modes=(RWO,), proofs=proofs)
    assert isinstance(refused, RefuseEntry)
    assert "default/b on node n2" in refused.reason


def test_with_policy_seed_a_volume_is_of_one_pod() -> None:
    present = entry("n1", "a")
    assert decided([present], entry("n1", "b"), RWO, policy=SEED) == NeedsProof((present,))
    assert decided([present], entry("n1", "a", mount_dir="/x"), RWO, policy=SEED) == Enter()
    assert decided([present], entry("n2", "b"), RWX, policy=SEED) == Enter()


def test_a_record_has_a_limit() -> None:
    full = [entry("n1", f"p{number}") for number in range(MAX_ENTRIES)]
    refused = decided(full, entry("n2", "one-more"), RWX)
    assert isinstance(refused, RefuseEntry)
    assert str(MAX_ENTRIES) in refused.reason


# --- over histories ---


class World:
    """Nodes that take a volume, restart, are cut off and deleted; `writers`: (node, boot) that can write now."""

    def __init__(self, mode: AccessMode) -> None:
        self.mode = mode
        self.entries: Entries = ()
        self.boots = dict.fromkeys(("n1", "n2", "n3"), 1)
        self.facts = {name: self._facts(name) for name in self.boots}
        self.writers: set[tuple[str, str]] = set()
        """Kernels that have the device. Breaking a lock takes it from none of them: that is what a proof is for."""

    def _facts(self, name: str) -> StorageNode:
        return StorageNode(name=name, uid=f"{name}-uid", boot_id=f"{name}-{self.boots[name]}", ready=True)

    def take(self, node: str, pod: str) -> None:
        wanted = entry(node, pod, boot_id=f"{node}-{self.boots[node]}", node_uid=f"{node}-uid")
        if node not in self.facts or proof_from_facts(wanted, self.facts[node]):
            return
        proofs: dict[tuple[str, str, str], Proof] = {}
        for _ in range(2):
            decision = decide("pv", self.entries, wanted, modes=(self.mode,), proofs=proofs)
            if not isinstance(decision, NeedsProof):
                break
            for one in decision.entries:
                facts = self.facts.get(one.node) or StorageNode(name=one.node, exists=False)
                why = proof_from_facts(one, facts)
                proofs[one.key] = Proof(is_gone=bool(why), why=why or "its node is ready")
        if isinstance(decision, BreakLock):
            for one in decision.entries:
                is_old = one.node == node and one.boot_id != wanted.boot_id
                assert is_old or proofs[one.key].is_gone, "no lock is broken without a proof"
            self.entries = without(self.entries, {one.key for one in decision.entries})
        if isinstance(decision, Enter | BreakLock):
            self.entries = with_entry(self.entries, wanted)
            self.writers.add((node, wanted.boot_id))

    def release(self, node: str) -> None:
        boot = f"{node}-{self.boots[node]}"
        self.writers.discard((node, boot))
        gone = [one.key for one in self.entries if (one.node, one.boot_id) == (node, boot)]
        self.entries = without(self.entries, gone)

    def restart(self, node: str) -> None:
        self.writers.discard((node, f"{node}-{self.boots[node]}"))
        self.boots[node] += 1

    def report(self, node: str) -> None:
        """The node's agent writes the Node object, which may be new, or still show the boot before."""
        self.facts[node] = self._facts(node)

    def taint(self, node: str) -> None:
        """An administrator has switched the node off, and says so."""
        self.writers.discard((node, f"{node}-{self.boots[node]}"))
        if node in self.facts:
            self.facts[node] = msgspec.structs.replace(self.facts[node], out_of_service=True)

    def delete(self, node: str) -> None:
        """An administrator has removed the machine, and deletes its object."""
        self.writers.discard((node, f"{node}-{self.boots[node]}"))
        self.facts.pop(node, None)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["take", "take", "take", "release", "restart", "report", "taint", "delete"]),
        st.sampled_from(["n1", "n2", "n3"]),
        st.sampled_from(["a", "b"]),
    ),
    max_size=40,
)


@given(STEPS)
def test_no_history_gives_a_volume_of_one_node_two_writers(steps: list[tuple[str, str, str]]) -> None:
    world = World(RWO)
    for verb, node, pod in steps:
        if verb == "take":
            world.take(node, pod)
        else:
            getattr(world, verb)(node)
        assert len({name for name, _ in world.writers}) <= 1, world.writers
        live = {(one.node, one.boot_id) for one in world.entries}
        assert world.writers <= live, "each writer has an entry"


@given(STEPS)
def test_no_history_gives_a_volume_of_one_pod_two_pods(steps: list[tuple[str, str, str]]) -> None:
    world = World(RWOP)
    for verb, node, pod in steps:
        if verb == "take":
            world.take(node, pod)
        else:
            getattr(world, verb)(node)
        assert len({(one.node, one.pod_uid) for one in world.entries}) <= 1


@given(STEPS, st.sampled_from(list(AccessMode)))
def test_a_decision_is_the_same_for_the_same_facts(
    steps: list[tuple[str, str, str]], mode: AccessMode
) -> None:
    world = World(mode)
    for verb, node, pod in steps:
        if verb == "take":
            world.take(node, pod)
            before = world.entries
            world.take(node, pod)
            assert world.entries == before
        else:
            getattr(world, verb)(node)
