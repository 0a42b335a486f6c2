"""Kills an agent by itself, with SIGKILL, at a chosen access to a file of the kernel: no clock and no chance is involved.

`KillPoint` gives the environment of the agent: its interpreter loads a ``sitecustomize`` module with an audit hook that
sees every file that is opened. Once a point is armed, the hook counts the openings for writing of the files that the
point names, and kills the process before the last of them, or before the first reading that follows it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

_HOOK = """
import json, os, signal, sys

POINT = {point!r}
counts = {{"written": 0}}

def hook(event, args):
    if event != "open" or isinstance(args[0], int):
        return
    path = os.fsdecode(args[0])
    if path == POINT or not any(word in path for word in WORDS) or not os.access(POINT, os.F_OK):
        return
    with open(POINT) as file:
        point = json.load(file)
    if not any(path.endswith(word) or word.endswith("/") and word in path for word in point["files"]):
        return
    if args[2] & os.O_ACCMODE:
        counts["written"] += 1
        is_it = not point["is_after"] and counts["written"] == point["number"]
    else:
        is_it = point["is_after"] and counts["written"] >= point["number"]
    if is_it:
        os.unlink(POINT)
        os.kill(os.getpid(), signal.SIGKILL)

WORDS = ("freezer.state", "cgroup.freeze", "memory.force_empty", "memory.reclaim", "hibernated/")
sys.addaudithook(hook)
"""

FREEZER = ("freezer.state", "cgroup.freeze", "cgroup.events")
RECLAIM = ("memory.force_empty", "memory.reclaim")
RECORD = ("/hibernated/",)


class KillPoint(NamedTuple):
    """A moment at which an agent kills itself.

    `files`: ends of the paths of the files. `number`: the number of the opening for writing, from 1. `is_after`: kill at
    the first reading after it, else before it.
    """

    files: tuple[str, ...]
    number: int
    is_after: bool = False


class KillPoints:
    """Arms an agent that was started with `env`."""

    def __init__(self, directory: Path) -> None:
        """`directory`: made here; holds the hook and the armed point."""
        directory.mkdir()
        self._file = directory / "point.json"
        (directory / "sitecustomize.py").write_text(_HOOK.format(point=str(self._file)))
        self.env = {"PYTHONPATH": str(directory)}

    def arm(self, point: KillPoint) -> None:
        """Kill the agent at this point from now on; it is disarmed then."""
        temporary = self._file.with_suffix(".new")
        temporary.write_text(json.dumps(point._asdict()))
        temporary.rename(self._file)

    @property
    def is_armed(self) -> bool:
        """True until the agent has killed itself."""
        return self._file.exists()
