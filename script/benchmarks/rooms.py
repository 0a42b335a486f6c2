"""Memory and time of imports by package, for an agent with one containerd, no cluster and no pods.

Three agents are started: one under tracemalloc, one that records which modules are used, one with ``-X
importtime``. A room is a package of the host (``kubeletx.pods``), a plugin, another distribution, or Python's
library. A module counts as used if a function of it is called outside imports. Modules that hold only types
therefore count as not used, so a room is judged by the total of its modules.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import msgspec

from kubeletx_testing.lab import LabError, PrivateAgent
from kubeletx_testing.lab.tools import daemon_environment

from .import_watch import Imported
from .lab import ROOT, BenchLab, is_open, wait_ready
from .model import Figure, Result, Sizes, figure, now, number

LIBRARY: Final = "Python's library"
IDLE_SECONDS: Final = 5.0
_KIB: Final = 1024
_TIMED: Final = re.compile(r"^import time: +(\d+) \| +\d+ \| +(\S+)$", re.MULTILINE)


class Room(msgspec.Struct):
    """Totals over the modules of one room.

    `kept_kib`: memory that tracemalloc counts; `unused_kib`: the part of modules that are not used. `resident_kib`:
    growth of the process. `milliseconds`: import time.
    """

    modules: float = 0
    used_modules: float = 0
    kept_kib: float = 0.0
    unused_kib: float = 0.0
    resident_kib: float = 0.0
    milliseconds: float = 0.0


def rooms(bench: BenchLab, _sizes: Sizes) -> Result:
    """Measure memory and import time of every room of an idle agent."""
    agent = bench.agent()
    try:
        traced = _watched(agent, "traced")
        resident = _watched(agent, "resident")
        seconds = _timed(agent)
    finally:
        agent.remove_files()
    by_name = by_room(traced, resident, seconds)
    return Result(
        name="rooms",
        figures=room_figures(by_name),
        series={name: list(msgspec.structs.astuple(room)) for name, room in by_name.items()},
        notes=("without cluster and pods",),
        measured_at=now(),
    )


def by_room(
    traced: Iterable[Imported], resident: Iterable[Imported], seconds: Mapping[str, float]
) -> dict[str, Room]:
    """Add up the modules of each room; the room that keeps most memory comes first.

    `seconds`: import time of each module, without inner imports.
    """
    kept = {module.name: module.self_bytes / _KIB for module in traced}
    by_name: dict[str, Room] = defaultdict(Room)
    for measured in resident:
        room = by_name[room_of(measured.name)]
        room.modules += 1
        room.kept_kib += kept.get(measured.name, 0.0)
        room.resident_kib += measured.self_bytes / _KIB
        room.milliseconds += seconds.get(measured.name, 0.0) * 1000
        if measured.is_used:
            room.used_modules += 1
        else:
            room.unused_kib += kept.get(measured.name, 0.0)
    return dict(sorted(by_name.items(), key=lambda item: item[1].kept_kib, reverse=True))


def room_of(module: str) -> str:
    """Name of the room that a module belongs to."""
    first, _, rest = module.partition(".")
    if first in sys.stdlib_module_names or first.startswith("_sysconfigdata"):
        return LIBRARY
    return f"{first}.{rest.partition('.')[0]}" if first == "kubeletx" and rest else first


def room_figures(by_name: Mapping[str, Room]) -> tuple[Figure, ...]:
    """Figures of the memory that imports keep: of kubeletx, of other distributions and of Python's library."""
    parts = {"kubeletx": 0.0, "other distributions": 0.0, LIBRARY: 0.0}
    for name, room in by_name.items():
        part = (
            name if name == LIBRARY else "kubeletx" if name.startswith("kubeletx") else "other distributions"
        )
        parts[part] += room.kept_kib
    return tuple(
        figure(f"memory of imports, {part}", "MiB", kib / _KIB, digits=2) for part, kib in parts.items()
    )


def rooms_markdown(result: Result) -> str:
    """Format the rooms that keep 100 KiB or more as a Markdown table."""
    by_name = {name: Room(*values) for name, values in result.series.items()}
    lines = [
        "| room | modules | used | kept | of it not used | resident | import |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {name} | {room.modules:g} | {room.used_modules:g} | {number(room.kept_kib)} KiB "
        f"| {number(room.unused_kib)} KiB | {number(room.resident_kib)} KiB | {number(room.milliseconds)} ms |"
        for name, room in by_name.items()
        if room.kept_kib >= 100
    ]
    return "\n".join(lines)


def _watched(agent: PrivateAgent, mode: str) -> list[Imported]:
    out = agent.lab.base_dir / f"imports-{mode}.json"
    command = [sys.executable, "-m", "script.benchmarks.import_watch", str(out), mode, *agent.argv()[1:]]
    _run_idle(agent, command, {})
    return msgspec.json.decode(out.read_bytes(), type=list[Imported])


def _timed(agent: PrivateAgent) -> dict[str, float]:
    """Run an idle agent; returns the seconds of each module's import, without inner imports."""
    text = _run_idle(agent, agent.argv(), {"PYTHONPROFILEIMPORTTIME": "1"})
    return {name: int(microseconds) / 1e6 for microseconds, name in _TIMED.findall(text)}


def _run_idle(agent: PrivateAgent, argv: list[str], env: Mapping[str, str]) -> str:
    """Start the agent with this command line, leave it idle, and end it; returns what it printed."""
    log = agent.lab.base_dir / "imports.log"
    agent.root_dir.mkdir(parents=True, exist_ok=True)
    agent.socket_path.unlink(missing_ok=True)
    with log.open("wb") as file:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            cwd=ROOT,
            env={**daemon_environment(), **env},
            start_new_session=True,
        )
    try:
        deadline = time.monotonic() + 60
        while not is_open(agent.socket_path):
            if process.poll() is not None or time.monotonic() > deadline:
                raise LabError(f"the agent did not start; its log says:\n{_end(log)}")
            time.sleep(0.05)
        wait_ready(agent)
        time.sleep(IDLE_SECONDS)
    finally:
        process.terminate()
        process.wait(30)
    return log.read_text(errors="replace")


def _end(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").split("\n")[-20:])
