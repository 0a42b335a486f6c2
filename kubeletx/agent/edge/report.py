"""Report of the agent to the guardian: its contact with a controller, and what is not ready. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from kubeletx.api.names import POD_READY, STANDBY_CONDITION
from kubeletx.health.model import CheckLevel, CheckState, Reach
from kubeletx.kube.types.core import PodStatus
from kubeletx.node.readiness import CheckFacts
from kubeletx.pods import FINAL

MAX_PODS: Final = 200
_BEST_FIRST: Final = (Reach.SUCCESS, Reach.TEMPORARY_FAIL, Reach.FAIL, Reach.UNKNOWN)


class ControllerContact(msgspec.Struct, frozen=True):
    """Contact with one controller. `source`: its kind and address."""

    reach: Reach
    source: str


def best(contacts: Iterable[ControllerContact]) -> ControllerContact:
    """Return the best contact; UNKNOWN without any: the agent has no controller."""
    unknown = ControllerContact(Reach.UNKNOWN, "")
    return min(contacts, key=lambda contact: _BEST_FIRST.index(contact.reach), default=unknown)


def api_contact(
    server: str, *, silent_seconds: float, problem: str, refusal: str, fresh: float
) -> ControllerContact:
    """Return the contact with an API server.

    `silent_seconds`: since the last answered request. `problem`: why it does not answer. `refusal`: error of the last
    heartbeat, empty if it succeeded. `fresh`: seconds for which an answer proves contact.
    """
    if problem or silent_seconds > fresh:
        is_new = not problem and silent_seconds == float("inf")
        return ControllerContact(Reach.UNKNOWN if is_new else Reach.FAIL, f"apiserver {server}")
    return ControllerContact(Reach.TEMPORARY_FAIL if refusal else Reach.SUCCESS, f"apiserver {server}")


def core_contact(address: str, *, is_connected: bool) -> ControllerContact:
    """Return the contact with a FornaxCore."""
    return ControllerContact(Reach.SUCCESS if is_connected else Reach.FAIL, f"fornaxcore {address}")


def pods_by_readiness(
    pods: Iterable[tuple[str, PodStatus | None]], most: int
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return two lists of pod names, at most `most` of each: Ready pods, and pods that have not ended and are not Ready.

    `pods`: name and status; status None: not known yet. Pods in standby count as ready.
    """
    ready: list[str] = []
    not_ready: list[str] = []
    for name, status in pods:
        if status is not None and status.phase in FINAL:
            continue
        true = {c.type for c in status.conditions if c.status == "True"} if status is not None else set()
        (ready if true & {POD_READY, STANDBY_CONDITION} else not_ready).append(name)
    return tuple(ready[:most]), tuple(not_ready[:most])


def topic_check(check: CheckFacts) -> CheckState:
    """Return the result of a plugin's check. A check that only warns is not required."""
    ok = {"True": True, "False": False}.get(check.status)
    level = CheckLevel.REQUIRED
    if check.reason == "CheckWarning":
        ok, level = False, CheckLevel.WANTED
    return CheckState(name=check.name, level=level, ok=ok, message=check.message)
