"""History of a pod: its last actions and their results, and the actions of its start. Pure."""

from __future__ import annotations

import re
from collections import deque
from datetime import datetime
from functools import lru_cache
from typing import Final

from msgspec.structs import replace

from kubeletx.kube.start_timeline import PodAction, PodStart
from kubeletx.kube.types.core import PodStatus

from .actions import Action, Look, StartUnit
from .phase import FINAL
from .results import Killed, Nothing, Result, Together

KEPT: Final = 50
"""Number of entries kept per pod. Consecutive runs with equal action and result share one entry."""
START_STEPS: Final = 40
"""Number of actions kept of the start of a pod; later ones are left out."""
TEXT_LENGTH: Final = 200
_WORD: Final = re.compile(r"(?<!^)(?=[A-Z])")


class History:
    """The last `KEPT` actions of one pod with their results, and its start."""

    def __init__(self, seen_at: datetime | None = None) -> None:
        """`seen_at`: when the agent first saw the pod; None: the pod existed before this agent process."""
        self._entries: deque[PodAction] = deque(maxlen=KEPT)
        self.start = PodStart(seen_at=seen_at) if seen_at is not None else None

    @property
    def entries(self) -> tuple[PodAction, ...]:
        return tuple(self._entries)

    def add(
        self,
        action: Action,
        result: Result | None,
        *,
        at: datetime,
        seconds: float,
        is_machine: bool = False,
    ) -> None:
        """Record that an action ended at `at` after `seconds`.

        `result` None: the action was cancelled. `is_machine`: the pod is a virtual machine.
        """
        words = "cancelled" if result is None else describe_result(result)
        described = describe_action(action, is_machine=is_machine)
        entry = PodAction(at=at, action=described, result=words, seconds=seconds, reason=reason_of(result))
        start = self.start
        if start is not None and start.over_at is None and not isinstance(action, Look):
            self.start = replace(start, steps=(*start.steps, entry)[:START_STEPS])
        last = self._entries[-1] if self._entries else None
        if last is not None and (last.action, last.result) == (entry.action, entry.result):
            self._entries[-1] = replace(entry, count=last.count + 1)
        else:
            self._entries.append(entry)

    def published(self, status: PodStatus, at: datetime) -> None:
        """Note in the start that this status of the pod was published."""
        start = self.start
        if start is None or start.over_at is not None:
            return
        if status.phase in FINAL:
            self.start = replace(start, ended_at=at)
        elif status.phase == "Running":
            is_ready = any(each.type == "Ready" and each.status == "True" for each in status.conditions)
            self.start = replace(start, running_at=start.running_at or at, ready_at=at if is_ready else None)

    def last_lines(self) -> list[str]:
        """Return the newest entries as lines of text, oldest first."""
        return [
            f"{entry.action}: {entry.result}" + (f" ({entry.count} times)" if entry.count > 1 else "")
            for entry in self.entries[-5:]
        ]


def describe_action(action: Action, *, is_machine: bool = False) -> str:
    """Describe the action in words, such as ``start unit web``, or ``start machine web`` for a machine's pod."""
    words = "start machine" if is_machine and isinstance(action, StartUnit) else words_of(type(action))
    return f"{words} {getattr(action, 'name', '')}".rstrip()


def reason_of(result: Result | None) -> str:
    """Return in one word why an action failed; empty if it did not. None: it was cancelled."""
    if result is None:
        return "cancelled"
    if isinstance(result, Together):
        return next(filter(None, map(reason_of, result.results)), "")
    return "" if isinstance(result, Killed) else getattr(result, "reason", "")


def describe_result(result: Result) -> str:
    """Describe the result in words, with its reason and message, in at most `TEXT_LENGTH` characters."""
    if isinstance(result, Nothing):
        return "done"
    if isinstance(result, Together):
        text = ", ".join(describe_result(part) for part in result.results)
    else:
        details = [str(getattr(result, field, "") or "") for field in ("reason", "message")]
        text = ": ".join([words_of(type(result)), *filter(None, details)])
    return text if len(text) <= TEXT_LENGTH else text[: TEXT_LENGTH - 3] + "..."


@lru_cache(maxsize=256)
def words_of(kind: type[Action | Result]) -> str:
    """Return the name of the class as words, such as ``start unit``."""
    return _WORD.sub(" ", kind.__name__).lower()
