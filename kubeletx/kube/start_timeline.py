"""Computes the bars of a pod's start, for a picture, and the start in one line. Pure.

The start is the field `start` of the admin socket's ``GET /v1/pods/NAMESPACE/NAME/history``; any object with its
fields will do.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from typing import Final, NamedTuple, Protocol

from kubeletx.kube.text.human import human_seconds

BRIEF_SECONDS: Final = 0.1
"""Volumes, images and hooks that took less, without a failure, are left out of the line."""
_KINDS: Final = {
    "bind": "bind",
    "prepare volumes": "volumes",
    "ensure image": "image",
    "create sandbox": "sandbox",
    "start unit": "container",
    "run post start": "hook",
}
_PAST: Final = {"bind": "bound", "container": "started"}
_FAILURE: Final = re.compile(
    r"(?:[a-z ]+, )*([a-z]+ failed|rejected|waits|cancelled|hook noted(?=:))(?:: (\w+))?"
)


class StartAction(Protocol):
    """One action of the start. `action`, such as ``start unit web``, took `seconds` and ended at `at`."""

    @property
    def at(self) -> datetime: ...
    @property
    def action(self) -> str: ...
    @property
    def result(self) -> str: ...
    @property
    def seconds(self) -> float: ...


class StartRecord(Protocol):
    """The start of a pod. `seen_at`: when the agent first saw it; None in the other times: not yet, or never."""

    @property
    def seen_at(self) -> datetime: ...
    @property
    def running_at(self) -> datetime | None: ...
    @property
    def ready_at(self) -> datetime | None: ...
    @property
    def ended_at(self) -> datetime | None: ...
    @property
    def steps(self) -> Sequence[StartAction]: ...


class StartBar(NamedTuple):
    """One bar: what took from `start` until `end`, in seconds since the agent first saw the pod.

    `kind`: bind, volumes, image, sandbox, container, hook, ready, or other. `label`: the kind with the container's name,
    such as ``image web``; attempts of one thing have the same label. `reason`: one word, such as ErrImagePull; empty
    unless it `failed`. `is_open`: it has not ended yet.
    """

    kind: str
    label: str
    start: float
    end: float
    failed: bool = False
    reason: str = ""
    is_open: bool = False


def start_bars(start: StartRecord, now: datetime) -> list[StartBar]:
    """Return the bars of a start, the earliest first; the last one is from phase Running until the pod is ready.

    `now`: end of the last bar of a pod that is not ready yet. A pod that ended without being ready has no failed bar
    for that: its containers may have done their work.
    """

    def offset(at: datetime) -> float:
        return max(0.0, (at - start.seen_at).total_seconds())

    bars = [_bar(step, offset(step.at)) for step in start.steps]
    bars.sort(key=lambda bar: bar.start)
    if start.running_at is not None:
        over_at = start.ready_at or start.ended_at
        end = max(offset(start.running_at), offset(over_at or now))
        label = "running" if start.ended_at and not start.ready_at else "ready"
        bars.append(StartBar("ready", label, offset(start.running_at), end, is_open=over_at is None))
    return bars


def start_line(start: StartRecord, now: datetime) -> str:
    """Return the start in one line, such as ``bound 2 ms, sandbox 110 ms, started 20 ms, ready 1.1 s``.

    Each time is from the first attempt until the last one's end, the last time since the agent first saw the pod.
    """
    bars = start_bars(start, now)
    parts = []
    for kind in _KINDS.values():
        mine = [bar for bar in bars if bar.kind == kind]
        if not mine:
            continue
        last = max(mine, key=lambda bar: bar.end)
        took = last.end - min(bar.start for bar in mine)
        if last.failed:
            parts.append(f"{last.label} failed{f' ({last.reason})' if last.reason else ''}")
        elif took >= BRIEF_SECONDS or kind in ("bind", "sandbox", "container"):
            parts.append(f"{_PAST.get(kind, kind)} {human_seconds(took)}")
    over_at = start.ready_at or start.ended_at
    word = "ready" if start.ready_at else "ended after" if start.ended_at else "not ready after"
    total = human_seconds(max(0.0, ((over_at or now) - start.seen_at).total_seconds()))
    return ", ".join([*parts, f"{word} {total}"])


def _bar(step: StartAction, end: float) -> StartBar:
    words = next((words for words in _KINDS if (step.action + " ").startswith(words + " ")), "")
    kind = _KINDS.get(words, "other")
    label = (kind + step.action[len(words) :]) if words else step.action
    failure = _FAILURE.match(step.result)
    reason = ""
    if failure is not None:
        what, reason = failure[1], failure[2] or ""
        if what == "hook noted":  # its message is the hook's output, which may have secrets
            reason = "PostStartHookError"
        elif what == "cancelled":
            reason = what
    return StartBar(kind, label, max(0.0, end - step.seconds), end, failure is not None, reason)
