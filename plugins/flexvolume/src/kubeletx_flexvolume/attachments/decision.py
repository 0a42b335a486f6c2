"""`decide`: may a pod use a volume, given the entries of the volume's record? A pure function.

    is the entry there already?  ──yes──► AlreadyEntered
    which entries exclude it? ──none──► Enter
    is there a proof against each of them?
        not searched for yet ──► NeedsProof, then decide again
        yes ──► BreakLock       no ──► RefuseEntry, which names the holder

    ReadWriteOnce     excludes entries of other nodes; with policy seed, entries of other pods too
    ReadWriteOncePod  excludes entries of other pods
    ReadOnlyMany      excludes writers, and is not for writers
    ReadWriteMany     excludes nothing

A volume with several modes follows the one that excludes the fewest entries. An entry keeps the modes that the volume had
for its holder, and these must allow the new one, too. An entry of another volume, which has the same image, is excluded
by every mode, and so is an entry for another pod with the same mount directory. Entries of this node with another boot
ID are always removed: the node has restarted since, so none of its devices is left. A pod has one entry for each of its
mount directories.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence

import msgspec

from ..values import AccessMode
from .proofs import OUT_OF_SERVICE, Proofs
from .record import MAX_ENTRIES, AttachmentEntry, Entries


class BreakPolicy(enum.Enum):
    """Rule for breaking the lock of another holder."""

    SAFE = "safe"
    """Only with a proof that the holder no longer writes."""
    SEED = "seed"
    """Also for a pod of a StatefulSet with the same namespace and name. ReadWriteOnce is one pod."""


class Enter(msgspec.Struct, frozen=True, tag=True):
    """Decision: add the entry."""


class AlreadyEntered(msgspec.Struct, frozen=True, tag=True):
    """Decision: the record has the entry; `entry`: as it is stored."""

    entry: AttachmentEntry


class RefuseEntry(msgspec.Struct, frozen=True, tag=True):
    """Decision: the volume is in use. `reason`: names the holder and says what to do."""

    reason: str


class BreakLock(msgspec.Struct, frozen=True, tag=True):
    """Decision: remove `entries`, whose holders are gone, and add the entry with this `reason`."""

    entries: Entries
    reason: str


class NeedsProof(msgspec.Struct, frozen=True, tag=True):
    """Decision: search for proofs against `entries`, then decide again."""

    entries: Entries


Decision = Enter | AlreadyEntered | RefuseEntry | BreakLock | NeedsProof


def decide(
    name: str,
    entries: Sequence[AttachmentEntry],
    wanted: AttachmentEntry,
    *,
    modes: Sequence[AccessMode],
    policy: BreakPolicy = BreakPolicy.SAFE,
    proofs: Proofs,
) -> Decision:
    """Decide about the entry `wanted` of this node. `name`: of the volume, for the refusal.

    `entries`: of the volume's record, and of the records of its image. `modes`: access modes of the volume; none:
    ReadWriteOnce. `proofs`: results of the searches so far, by the key of the entry.
    """
    own = [entry for entry in entries if is_of_same_use(entry, wanted)]
    if own and own[0].read_only == wanted.read_only:
        return AlreadyEntered(own[0])
    others = [entry for entry in entries if entry not in own]
    before_restart = [one for one in others if one.node == wanted.node and one.boot_id != wanted.boot_id]
    present = [one for one in others if one not in before_restart]
    excluded = _excluded(present, wanted, modes or (AccessMode.READ_WRITE_ONCE,), policy)
    if excluded is None:
        return RefuseEntry(_read_only_refusal(name))
    held = [entry for entry in excluded if entry.key in proofs and not proofs[entry.key].is_gone]
    if held:
        return RefuseEntry(_refusal(name, held, wanted, modes, proofs))
    unknown = tuple(entry for entry in excluded if entry.key not in proofs)
    if unknown:
        return NeedsProof(unknown)
    if not before_restart and not excluded:
        return Enter() if len(entries) < MAX_ENTRIES else RefuseEntry(_full_refusal(name))
    return BreakLock((*before_restart, *excluded), _reason(before_restart, excluded, proofs))


def is_of_same_use(one: AttachmentEntry, wanted: AttachmentEntry) -> bool:
    """Return True if both entries are of one volume, pod and mount directory."""
    is_same_volume = one.volume_name in ("", wanted.volume_name)
    return is_same_volume and (one.key, one.pod_uid) == (wanted.key, wanted.pod_uid)


def _excluded(
    present: Sequence[AttachmentEntry],
    wanted: AttachmentEntry,
    modes: Sequence[AccessMode],
    policy: BreakPolicy,
) -> list[AttachmentEntry] | None:
    """Return the entries that must go for `wanted` to enter; None if no mode allows `wanted` at all."""

    def excludes(one: AttachmentEntry) -> bool:
        """Return True if `one` excludes `wanted` for another reason than the modes of `wanted`."""
        if one.key == wanted.key or one.volume_name not in ("", wanted.volume_name):
            return True
        return bool(one.modes) and all(_excluded_by(mode, [wanted], one, policy) != [] for mode in one.modes)

    results = [_excluded_by(mode, present, wanted, policy) for mode in modes]
    possible = [result for result in results if result is not None]
    if not possible:
        return None
    fewest = min(possible, key=len)
    return [*fewest, *(one for one in present if one not in fewest and excludes(one))]


def _excluded_by(
    mode: AccessMode, present: Sequence[AttachmentEntry], wanted: AttachmentEntry, policy: BreakPolicy
) -> list[AttachmentEntry] | None:
    match mode:
        case AccessMode.READ_WRITE_MANY:
            return []
        case AccessMode.READ_ONLY_MANY:
            return None if not wanted.read_only else [one for one in present if not one.read_only]
        case AccessMode.READ_WRITE_ONCE if policy is BreakPolicy.SAFE:
            return [one for one in present if one.node != wanted.node]
        case _:
            return [one for one in present if (one.node, one.pod_uid) != (wanted.node, wanted.pod_uid)]


def _reason(
    before_restart: Sequence[AttachmentEntry], excluded: Sequence[AttachmentEntry], proofs: Proofs
) -> str:
    parts = [f"{one}: the node has restarted since" for one in before_restart]
    parts += [f"{one}: {proofs[one.key].why}" for one in excluded]
    more = len(parts) - 3
    return "removed the entry of " + "; ".join(parts[:3]) + (f"; and {more} more" if more > 0 else "")


def _read_only_refusal(name: str) -> str:
    return (
        f"volume {name} is {AccessMode.READ_ONLY_MANY.value}, so no pod can write to it: "
        "set readOnly in the pod's volume, or give the PersistentVolume another access mode"
    )


def _full_refusal(name: str) -> str:
    return f"volume {name} is attached for {MAX_ENTRIES} pods, which is the limit: end one of them first"


def _refusal(
    name: str,
    held: Sequence[AttachmentEntry],
    wanted: AttachmentEntry,
    modes: Sequence[AccessMode],
    proofs: Proofs,
) -> str:
    first = held[0]
    words = ",".join(mode.value for mode in first.modes or modes) or AccessMode.READ_WRITE_ONCE.value
    more = f" and {len(held) - 1} more" if len(held) > 1 else ""
    since = f" since {first.since}" if first.since else ""
    why = proofs[first.key].why
    other = first.volume_name or name
    if other == name:
        what = f"volume {name} ({words}) is attached for {first}"
    else:
        what = f"volume {name}: its image is attached as volume {other} ({words}) for {first}"
    return f"{what}{more}{since}, and {why}: {_fix(name, other, first, wanted)}"


def _fix(name: str, other: str, held: AttachmentEntry, wanted: AttachmentEntry) -> str:
    if other != name:
        return f"give both the same name with option name, or {_fix(other, other, held, wanted)}"
    if held.node == wanted.node:
        return "wait until that pod has ended, or delete it"
    return (
        f"wait until that pod has ended, or delete it. If node {held.node} is down and stays down, delete its Node object "
        f"or give it the taint {OUT_OF_SERVICE}=nodeshutdown:NoExecute; 'kubeletx-flexvolume release {name} --node "
        f"{held.node} --yes' removes the entry without a proof"
    )
