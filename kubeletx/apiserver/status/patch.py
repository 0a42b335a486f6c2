"""`status_patch`: the patch that makes a pod's status in the API server equal to this node's. Pure.

It is a strategic merge patch with only what differs. Conditions are merged by type: those of other owners stay, those
of this node that the new status lacks are deleted by type. Address lists are replaced as a whole, since merging by
address keeps old ones. Fields of other owners (resource claims, nominated node) are never touched.

Source: core/v1 PodStatus (patchStrategy tags); kubelet, pkg/util/pod PatchPodStatus.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from kubeletx.api.names import DISRUPTION_TARGET
from kubeletx.kube.types.core import PodCondition, PodStatus
from kubeletx.pods import OURS

_OTHERS = frozenset({"nominatedNodeName", "resourceClaimStatuses", "resize", "extendedResourceClaimStatus"})
_REPLACED = frozenset({"podIPs", "hostIPs"})


def status_patch(current: PodStatus, wanted: PodStatus) -> dict[str, Any] | None:
    """Return the strategic merge patch that changes the status `current` to `wanted`; None if nothing differs."""
    before, after = _plain(current), _plain(wanted)
    patch: dict[str, Any] = {}
    for field in sorted((before.keys() | after.keys()) - _OTHERS - {"conditions"}):
        if before.get(field) == after.get(field):
            continue
        value = after.get(field)
        if field in _REPLACED and value:
            value = [*value, {"$patch": "replace"}]
        patch[field] = value
    conditions = _conditions(current.conditions, wanted.conditions)
    if conditions:
        patch["conditions"] = conditions
    return patch or None


def _conditions(current: tuple[PodCondition, ...], wanted: tuple[PodCondition, ...]) -> list[dict[str, Any]]:
    known = {condition.type: condition for condition in current}
    ours = {condition.type: condition for condition in wanted if _is_ours(condition, known)}
    changed = [
        _condition(condition, known.get(condition.type))
        for condition in ours.values()
        if known.get(condition.type) != condition
    ]
    gone = sorted(type_ for type_ in known.keys() - ours.keys() if type_ in OURS)
    return changed + [{"$patch": "delete", "type": type_} for type_ in gone]


def _is_ours(condition: PodCondition, known: Mapping[str, PodCondition]) -> bool:
    """Return True if this node may write the condition.

    The node may write DisruptionTarget only if the pod in the API server does not have that condition yet.
    `known`: the pod's conditions in the API server, by type.
    """
    if condition.type == DISRUPTION_TARGET:
        return condition.type not in known
    return condition.type in OURS


def _condition(wanted: PodCondition, before: PodCondition | None) -> dict[str, Any]:
    """Convert the condition to JSON values, with None for fields that only `before` has."""
    value: dict[str, Any] = _plain(wanted)
    if before is not None:
        value.update(dict.fromkeys(_plain(before).keys() - value.keys()))
    return value


def _plain(value: msgspec.Struct) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(value))
    return plain
