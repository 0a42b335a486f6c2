"""Taints of the node that a pod must tolerate to run here. Source: kubelet, lifecycle/predicate.go. Pure.

Only taints with effect NoExecute are checked: NoSchedule is the scheduler's business. Static pods are not checked,
since no scheduler places them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kubeletx.kube.types.core import Toleration
from kubeletx.kube.types.node import Taint

from ..model.facts import Rejection

TAINT_TOLERATION: Final = "TaintToleration"
_NO_EXECUTE: Final = "NoExecute"


def check_taints(tolerations: Iterable[Toleration], taints: Iterable[Taint]) -> Rejection | None:
    """Reject a pod that does not tolerate a NoExecute taint of the node; None if it tolerates all."""
    own = tuple(tolerations)
    for taint in taints:
        if taint.effect != _NO_EXECUTE or any(tolerates(toleration, taint) for toleration in own):
            continue
        shown = f"{taint.key}={taint.value}" if taint.value else taint.key
        return Rejection(
            reason=TAINT_TOLERATION,
            message="Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate: "
            f"{shown}:{_NO_EXECUTE}",
        )
    return None


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Return True if the toleration matches the taint. Source: core/v1 Toleration.

    An empty effect matches every effect; an empty key with operator Exists matches every key.
    """
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    wanted, actual = toleration.value or "", taint.value or ""
    match toleration.operator or "Equal":
        case "Exists":
            return True
        case "Equal":
            return bool(toleration.key) and wanted == actual
        case "Lt" | "Gt" as operator if _is_number(wanted) and _is_number(actual):
            return int(actual) < int(wanted) if operator == "Lt" else int(actual) > int(wanted)
    return False


def _is_number(text: str) -> bool:
    digits = text.removeprefix("-")
    return digits.isascii() and digits.isdecimal() and len(digits) < 20
