"""Patches that make the Node in the API server equal to this machine's: status and labels. Pure.

Conditions are merged by type. Addresses are replaced as a whole, since a node may have two of one type. A newer
heartbeat time is not a difference: it is sent with another change or when the periodic report is due.

Source: core/v1 NodeStatus (patchStrategy tags); kubelet, pkg/kubelet/kubelet_node_status.go.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from kubeletx.api.names import (
    CONTROLLER_ATTACHES,
    PROVIDED_NODE_IP,
    RUNTIME_CONDITION_PREFIX,
    RUNTIME_LABEL_PREFIX,
    RUNTIME_TYPE_PREFIX,
    RUNTIME_VERSION_PREFIX,
)
from kubeletx.kube.types.meta import ObjectMeta
from kubeletx.kube.types.node import NodeCondition, NodeStatus
from kubeletx.node.readiness import HEALTH_CONDITION_PREFIX

_OTHERS = frozenset({"phase", "config"})
_REPLACED = frozenset({"addresses"})
_LISTS = frozenset(
    {"addresses", "declaredFeatures", "images", "runtimeHandlers", "volumesAttached", "volumesInUse"}
)
_ALONG = frozenset({"declaredFeatures"})
"""Fields that older API servers drop: they are sent with other changes, but a difference in them causes no patch."""
_MAPS = frozenset({"capacity", "allocatable"})
_OWN_NOTES = (RUNTIME_TYPE_PREFIX, RUNTIME_VERSION_PREFIX, PROVIDED_NODE_IP, CONTROLLER_ATTACHES)
"""Prefixes of annotations that are removed from the Node when this agent no longer sets them."""
_OWN_CONDITIONS = (RUNTIME_CONDITION_PREFIX, HEALTH_CONDITION_PREFIX)
"""Prefixes of the types of conditions that are removed from the Node when this agent no longer reports them."""
_GIVEN_UP = frozenset({"NodeStatusUnknown", "NodeStatusNeverUpdated"})


def status_patch(
    current: NodeStatus, wanted: NodeStatus, *, heartbeat: datetime, is_due: bool
) -> dict[str, Any] | None:
    """Return the strategic merge patch of ``status``; None if nothing differs and `is_due` is False.

    `heartbeat`: heartbeat time for the conditions. `is_due`: True if the periodic report is due; then a patch with new
    heartbeat times is returned in any case.
    """
    before, after = _plain(current), _plain(wanted)
    patch: dict[str, Any] = {}
    for field in sorted((before.keys() | after.keys()) - _OTHERS - {"conditions"}):
        if before.get(field) == after.get(field):
            continue
        value = after.get(field)
        if value is None and field not in _LISTS:
            continue  # the API server fills in missing values
        if field in _REPLACED and value:
            value = [*value, {"$patch": "replace"}]
        elif field in _MAPS and isinstance(value, dict):
            value = {**dict.fromkeys(before.get(field, {}).keys() - value.keys()), **value}
        patch[field] = value
    known = {condition.type: condition for condition in current.conditions}
    changed = [
        condition for condition in wanted.conditions if not _same(condition, known.get(condition.type))
    ]
    ours = {condition.type for condition in wanted.conditions}
    gone = [type_ for type_ in sorted(known.keys() - ours) if type_.startswith(_OWN_CONDITIONS)]
    if not patch.keys() - _ALONG and not changed and not gone and not is_due:
        return None
    conditions: list[dict[str, Any]] = [
        {"message": None, **_plain(_timed(condition, known.get(condition.type), heartbeat))}
        for condition in wanted.conditions
    ]
    conditions += [{"$patch": "delete", "type": type_} for type_ in gone]
    # the condition Ready stays the last one, as clients expect
    order = [{"type": condition.type} for condition in wanted.conditions]
    return {**patch, "conditions": conditions, "$setElementOrder/conditions": order}


def map_patch(
    current: Mapping[str, str], wanted: Mapping[str, str], own_prefix: str | tuple[str, ...]
) -> dict[str, str | None]:
    """Return the merge patch of labels or annotations; empty if nothing differs.

    Keys with `own_prefix` that are not in `wanted` are removed (value None); other keys of `current` are kept.
    """
    gone = {key: None for key in current if key.startswith(own_prefix) and key not in wanted}
    return {**gone, **{key: value for key, value in wanted.items() if current.get(key) != value}}


def metadata_patch(current: ObjectMeta, wanted: ObjectMeta) -> dict[str, dict[str, str | None]]:
    """Return the merge patch of labels and annotations; empty if nothing differs."""
    labels = map_patch(current.labels, wanted.labels, RUNTIME_LABEL_PREFIX)
    notes = map_patch(current.annotations, wanted.annotations, _OWN_NOTES)
    return {key: value for key, value in (("labels", labels), ("annotations", notes)) if value}


def changes_of(patch: Mapping[str, Any], current: NodeStatus) -> dict[str, Any]:
    """Return the status patch without unchanged conditions, for the log."""
    known = {condition.type: _said(condition) for condition in current.conditions}
    changed = [
        change
        for change in patch.get("conditions", ())
        if known.get(change["type"])
        != (change.get("status"), change.get("reason") or "", change.get("message") or "")
    ]
    return {**patch, "conditions": changed}


def is_given_up(current: NodeStatus, wanted: NodeStatus) -> bool:
    """Return True if conditions differ only because the node controller missed heartbeats and set them to Unknown.

    Source: kubernetes, pkg/controller/nodelifecycle (tryUpdateNodeHealth).
    """
    known = {condition.type: condition for condition in current.conditions}
    differing = [
        known.get(condition.type)
        for condition in wanted.conditions
        if not _same(condition, known.get(condition.type))
    ]
    return bool(differing) and all(
        condition is not None and condition.reason in _GIVEN_UP for condition in differing
    )


def _timed(condition: NodeCondition, known: NodeCondition | None, now: datetime) -> NodeCondition:
    """Return the condition with the times for the patch; `known`: the same condition in the API server.

    The transition time stays as in the API server while the status is the same there.
    """
    since = condition.last_transition_time
    if known is not None and known.last_transition_time is not None:
        if known.status == condition.status:
            since = known.last_transition_time
        elif since is None or since <= known.last_transition_time:
            since = now
    return msgspec.structs.replace(condition, last_heartbeat_time=now, last_transition_time=since)


def _same(condition: NodeCondition, other: NodeCondition | None) -> bool:
    return other is not None and _said(condition) == _said(other)


def _said(condition: NodeCondition) -> tuple[str, str, str]:
    """Return what a condition says; an API server does not store an empty reason or message."""
    return condition.status, condition.reason or "", condition.message or ""


def _plain(value: msgspec.Struct) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(value))
    return plain
