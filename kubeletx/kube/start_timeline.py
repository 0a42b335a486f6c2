"""The start of a pod: the agent's actions until it is ready, their bars for a picture, and one line. Pure.

``GET /v1/pods/NAMESPACE/NAME/history`` of the admin socket answers with these values.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Final, NamedTuple

import msgspec

from kubeletx.kube.text.human import human_seconds

BRIEF_SECONDS: Final = 0.1
"""Volumes, images and hooks that took less, without a failure, are left out of the line."""
_KINDS: Final = {
    "bind": "bind",
    "prepare volumes": "volumes",
    "ensure image": "image",
    "create sandbox": "sandbox",
    "start unit": "container",
    "start machine": "machine",
    "run post start": "hook",
}
_ALWAYS: Final = {"bind": "bound", "sandbox": "sandbox", "container": "started", "machine": "started"}
"""Kinds that the line always has, with their words."""


_Moment = Annotated[datetime, msgspec.Meta(tz=True)]


class PodAction(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Consecutive runs of one action of the agent on a pod, such as ``start unit web``, all with the same result.

    `count`: number of runs. `at`: end of the last run, in UTC. `seconds`: duration of the last run. `reason`: why it
    failed, in one word, such as ErrImagePull; empty if it did not fail.
    """

    at: _Moment
    action: str
    result: str
    seconds: Annotated[float, msgspec.Meta(ge=0)]
    reason: str = ""
    count: int = 1


class PodStart(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The start of a pod: its actions in the order in which they ended, and times in UTC.

    `seen_at`: when the agent first saw the pod. `running_at`, `ready_at`: first published status with phase Running, and
    with condition Ready; None before. `ended_at`: the pod ended before it was ready.
    """

    seen_at: _Moment
    running_at: _Moment | None = None
    ready_at: _Moment | None = None
    ended_at: _Moment | None = None
    steps: tuple[PodAction, ...] = ()

    @property
    def over_at(self) -> datetime | None:
        """Time when the pod was ready or had ended; None: not yet."""
        return self.ready_at or self.ended_at


class StartBar(NamedTuple):
    """One bar: what took from `start` until `end`, in seconds since the agent first saw the pod.

    `label`: bind, volumes, image, sandbox, container, machine, hook or ready, with the container's name, such as ``image
    web``; attempts of one thing have the same label. `reason`: why it failed, in one word; empty if it did not.
    `is_open`: it has not ended yet.
    """

    label: str
    start: float
    end: float
    reason: str = ""
    is_open: bool = False


def start_bars(start: PodStart, now: datetime) -> list[StartBar]:
    """Return the bars of a start, the earliest first; the last one is from phase Running until the pod is ready.

    `now`: end of the last bar of a pod that is not ready yet. A pod that ended without being ready has no failed bar
    for that: its containers may have done their work.
    """

    def offset(at: datetime) -> float:
        return max(0.0, (at - start.seen_at).total_seconds())

    bars = []
    for step in start.steps:
        words = next((words for words in _KINDS if f"{step.action} ".startswith(f"{words} ")), "")
        label, end = _KINDS.get(words, "") + step.action[len(words) :], offset(step.at)
        bars.append(StartBar(label, max(0.0, end - step.seconds), end, step.reason))
    bars.sort(key=lambda bar: bar.start)
    if start.running_at is not None:
        label = "running" if start.ended_at else "ready"
        end = max(offset(start.running_at), offset(start.over_at or now))
        bars.append(StartBar(label, offset(start.running_at), end, is_open=start.over_at is None))
    return bars


def start_line(start: PodStart, now: datetime) -> str:
    """Return the start in one line, such as ``bound 2 ms, sandbox 110 ms, started 20 ms, ready 1.1 s``.

    Each time is from the first attempt until the last one's end, the last time since the agent first saw the pod.
    """
    bars, parts = start_bars(start, now), []
    for kind in _KINDS.values():
        mine = [bar for bar in bars if bar.label.partition(" ")[0] == kind]
        if not mine:
            continue
        last = max(mine, key=lambda bar: bar.end)
        took = last.end - min(bar.start for bar in mine)
        if last.reason:
            parts.append(f"{last.label} failed ({last.reason})")
        elif took >= BRIEF_SECONDS or kind in _ALWAYS:
            parts.append(f"{_ALWAYS.get(kind, kind)} {human_seconds(took)}")
    word = "ready" if start.ready_at else "ended after" if start.ended_at else "not ready after"
    total = ((start.over_at or now) - start.seen_at).total_seconds()
    return ", ".join([*parts, f"{word} {human_seconds(total)}"])
