"""Sentences and numbers for people: the verdict on the node, usage of pods. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from kubeletx.api import names
from kubeletx.kube.types.core import Pod, PodCondition
from kubeletx.kube.types.node import Node, NodeCondition

from .values import field

MEBIBYTE = 1024 * 1024
TONES: Mapping[str, str] = {
    **dict.fromkeys(("Running", "Ready"), "good"),
    **dict.fromkeys(("Completed", "Succeeded", "Standby", "Hibernated"), "rest"),
    **dict.fromkeys(("Pending", "ContainerCreating", "PodInitializing", "Terminating", "Unknown"), "wait"),
}
"""Tone (colour) of a word of state; a word that is not here is bad."""


class Verdict(msgspec.Struct, frozen=True):
    """The node's state in one sentence. `tone`: good, wait or bad. `since`: begin of the newest part; None or empty if unknown."""

    tone: str
    text: str
    since: datetime | str | None = None


def tone(word: str) -> str:
    """Return the tone of a word of state: good, rest, wait or bad."""
    return TONES.get(word, "wait" if word.startswith("Init:") and "/" in word else "bad")


def verdict(node: Node, runtimes: Iterable[Mapping[str, Any]], problem: str) -> Verdict:
    """Return the verdict on the node. `problem`: why the agent does not answer; empty while it does."""
    if problem:
        return Verdict("bad", f"The agent does not answer: {problem}. The page shows what it said last.")
    ready = next((each for each in node.status.conditions if each.type == "Ready"), None)
    if ready is None:
        return Verdict("wait", "The agent has not reported the node's state yet.")
    since = ready.last_transition_time
    if ready.status != "True":
        return Verdict("bad", f"Not ready: {ready.message or ready.reason or 'no reason is given'}.", since)
    worries = [*_worries(node.status.conditions)]
    away = {
        field(each, "name", ""): field(each, "since", "")
        for each in runtimes
        if each.get("status") != "Ready"
    }
    if away:
        worries.append((f"{listing([*away])} not ready", max(away.values())))
    if node.spec.unschedulable:
        worries.append(("it takes no new pods (cordoned)", ""))
    if worries:
        text = "; ".join(text for text, _ in worries)
        return Verdict("wait", f"Ready, but {text}.", max(at for _, at in worries))
    return Verdict("good", "Ready, and all runtimes answer.", since)


_SHOULD_BE_FALSE = {
    "MemoryPressure": "memory is short",
    "DiskPressure": "disk space is short",
    "PIDPressure": "process IDs are short",
    f"{names.OWN_PREFIX}MaintenanceMode": "it is in maintenance mode",
}


def _worries(conditions: Iterable[NodeCondition]) -> Iterable[tuple[str, str]]:
    """Yield what is not as it should be, and since when, as RFC 3339; empty: unknown."""
    for condition in conditions:
        since = condition.last_transition_time.isoformat() if condition.last_transition_time else ""
        if condition.status == "True" and condition.type in _SHOULD_BE_FALSE:
            yield _SHOULD_BE_FALSE[condition.type], since
        elif condition.status == "False" and "/Healthy-" in condition.type:
            yield f"health check {condition.type.partition('/Healthy-')[2]} fails", since
        elif condition.status == "False" and condition.type.endswith("/EdgeHealthy"):
            yield "a health check of the edge guardian fails", since


def listing(words: Sequence[str]) -> str:
    """Return the begin of a sentence about these words, such as ``one is`` or ``one and two are``."""
    return f"{words[0]} is" if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]} are"


def condition(pod: Pod, type_: str, status: str = "") -> PodCondition | None:
    """Return the condition of this type; None if the pod has none. `status`: only with this status; empty: any."""
    conditions = pod.status.conditions
    return next((each for each in conditions if each.type == type_ and status in ("", each.status)), None)


def runtime_of(pod: Pod) -> str:
    """Return the runtime of the pod; empty before it has one."""
    return pod.metadata.annotations.get(names.BOUND_RUNTIME, "")


def mib(size: object) -> str:
    """Return a size in MiB with one decimal below 10 MiB, without the unit; a dash for what is no whole number."""
    if not isinstance(size, int) or abs(size) >= 2**63:
        return "\u2013"
    return f"{size / MEBIBYTE:.1f}" if size < 10 * MEBIBYTE else f"{size / MEBIBYTE:.0f}"


_FREED = re.compile(r"memory: ([0-9.]+) MiB before, ([0-9.]+) MiB after")


def frozen_memory(pod: Pod) -> str:
    """Return the memory of a frozen pod, such as ``48.4 \u2192 0.4``, from the message of its condition; empty if it gave none back."""
    known = condition(pod, names.STANDBY_CONDITION, "True")
    freed = _FREED.search(known.message or "") if known is not None else None
    return f"{freed[1]} \u2192 {freed[2]}" if freed else ""


_HARMFUL = re.compile(
    "[\\x00-\\x08\\x0b\\x0c\\x0e-\\x1f\\x7f-\\x9f\\u061c\\u200e\\u200f\\u2028-\\u202e\\u2066-\\u2069\\ud800-\\udfff]"
)


def visible(text: str) -> str:
    """Return the text with visible signs for control characters, changes of direction and lone surrogates."""
    return _HARMFUL.sub(lambda match: _sign(ord(match[0])), text)


def _sign(code: int) -> str:
    return chr(0x2400 + code) if code < 0x20 else f"\\u{code:04x}"
