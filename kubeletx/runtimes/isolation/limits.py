"""Limits of child processes: their weight for the kernel's OOM killer, and a cgroup of their own."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

_OOM_SCORE: Final = "oom_score_adj"


class ChildCgroup(msgspec.Struct, frozen=True):
    """A cgroup for one child and everything that it starts.

    `join`: makes the cgroup with its limits, and moves a process there. `remove`: ends all processes in it, and removes
    it. Both block, and raise Internal or OSError.
    """

    join: Callable[[int], None]
    remove: Callable[[], None]


def protect_agent(pid: int, proc: Path = Path("/proc")) -> None:
    """Give a new child oom_score_adj 0 if the agent has less, as with -999 of a kubelet: the kernel ends the child first."""
    with contextlib.suppress(OSError, ValueError):  # the child has ended
        if int((proc / "self" / _OOM_SCORE).read_text()) < 0:
            (proc / str(pid) / _OOM_SCORE).write_text("0\n")
