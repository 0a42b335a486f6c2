"""Whether the node is short of memory, disk or process ids, by the hard eviction thresholds.

The rule is pure: `exceeded` compares signals with thresholds, `step` keeps a pressure for some minutes after it
ended, so that the condition does not flap. `PressureMonitor` reads the signals from the kernel. Memory counts as
available when the kernel says so (MemAvailable). Source: kubelet, pkg/kubelet/eviction.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from ..api import InvalidConfig
from ..kube import quantity
from .readiness import Pressure

TRANSITION_SECONDS = 300.0
"""How long a pressure is reported after it was last seen (evictionPressureTransitionPeriod)."""

_MEMORY = frozenset({"memory.available"})
_DISK = frozenset(
    f"{fs}.{what}" for fs in ("nodefs", "imagefs", "containerfs") for what in ("available", "inodesFree")
)
_PIDS = frozenset({"pid.available"})
SIGNALS = _MEMORY | _DISK | _PIDS


class Signal(msgspec.Struct, frozen=True, kw_only=True):
    """One measured amount: what is available of what there is."""

    available: int
    capacity: int


class SeenAt(msgspec.Struct, frozen=True, kw_only=True):
    """Monotonic times at which each pressure was last seen; None: never."""

    memory: float | None = None
    disk: float | None = None
    pids: float | None = None


def check_thresholds(thresholds: Mapping[str, str]) -> None:
    """Raises InvalidConfig for an unknown signal or an amount that makes no sense."""
    for name, text in thresholds.items():
        if name not in SIGNALS:
            raise InvalidConfig(
                field=f"evictionHard.{name}",
                problem="is not a known signal",
                fix=f"use one of {', '.join(sorted(SIGNALS))}",
            )
        try:
            _threshold(text, 1)
        except ValueError:
            raise InvalidConfig(
                field=f"evictionHard.{name}", problem=f"{text!r} is no amount", fix="write 100Mi or 10%"
            ) from None


def exceeded(signals: Mapping[str, Signal], thresholds: Mapping[str, str]) -> frozenset[str]:
    """Names of the signals that are below their threshold; what was not measured never is."""
    return frozenset(
        name
        for name, text in thresholds.items()
        if (signal := signals.get(name)) is not None and signal.available < _threshold(text, signal.capacity)
    )


def step(seen: SeenAt, short_of: frozenset[str], *, mono: float) -> SeenAt:
    """What is remembered after one look."""
    return SeenAt(
        memory=mono if short_of & _MEMORY else seen.memory,
        disk=mono if short_of & _DISK else seen.disk,
        pids=mono if short_of & _PIDS else seen.pids,
    )


def pressure(seen: SeenAt, *, mono: float, hold_seconds: float = TRANSITION_SECONDS) -> Pressure:
    """The conditions to report: true from the first sight until `hold_seconds` after the last."""

    def holds(at: float | None) -> bool:
        return at is not None and (at == mono or mono - at < hold_seconds)

    return Pressure(memory=holds(seen.memory), disk=holds(seen.disk), pids=holds(seen.pids))


class PressureMonitor:
    """Looks when asked; a look takes some ten microseconds."""

    def __init__(self, root_dir: Path, thresholds: Mapping[str, str], *, proc: Path = Path("/proc")) -> None:
        """`root_dir`: its filesystem is the node's (nodefs). Raises InvalidConfig for bad thresholds."""
        check_thresholds(thresholds)
        self._root_dir = root_dir
        self._thresholds = dict(thresholds)
        self._proc = proc
        self._seen = SeenAt()

    def look(self, *, mono: float, image_mounts: Sequence[str] = ()) -> Pressure:
        """Read the signals now. `image_mounts`: filesystems of local image stores."""
        signals = read_signals(self._root_dir, image_mounts, proc=self._proc)
        self._seen = step(self._seen, exceeded(signals, self._thresholds), mono=mono)
        return pressure(self._seen, mono=mono)


def read_signals(
    root_dir: Path, image_mounts: Sequence[str] = (), *, proc: Path = Path("/proc")
) -> dict[str, Signal]:
    """What can be measured, by signal; of several image filesystems the fullest counts."""
    found: dict[str, Signal] = {}
    meminfo = _meminfo(proc / "meminfo")
    if "MemAvailable" in meminfo and "MemTotal" in meminfo:
        found["memory.available"] = Signal(available=meminfo["MemAvailable"], capacity=meminfo["MemTotal"])
    for prefix, paths in (("nodefs", [str(root_dir)]), ("imagefs", list(image_mounts))):
        for name, signal in _fullest(paths).items():
            found[f"{prefix}.{name}"] = signal
    pids = _pids(proc)
    if pids is not None:
        found["pid.available"] = pids
    return found


def _fullest(paths: Sequence[str]) -> dict[str, Signal]:
    found: dict[str, Signal] = {}
    for path in paths:
        try:
            disk = os.statvfs(path)
        except OSError:
            continue
        space = Signal(available=disk.f_bavail * disk.f_frsize, capacity=disk.f_blocks * disk.f_frsize)
        inodes = Signal(available=disk.f_favail, capacity=disk.f_files)
        for name, signal in (("available", space), ("inodesFree", inodes)):
            if signal.capacity > 0 and (name not in found or _share(signal) < _share(found[name])):
                found[name] = signal
    return found


def _share(signal: Signal) -> float:
    return signal.available / signal.capacity


def _meminfo(path: Path) -> dict[str, int]:
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return {}
    pairs = (line.partition(":") for line in lines)
    return {name: int(rest.split()[0]) * 1024 for name, _, rest in pairs if name.startswith("Mem")}


def _pids(proc: Path) -> Signal | None:
    try:
        limits = [int((proc / "sys/kernel" / name).read_text()) for name in ("pid_max", "threads-max")]
        running = int((proc / "loadavg").read_text().split()[3].partition("/")[2])
    except (OSError, ValueError, IndexError):
        return None
    return Signal(available=max(0, min(limits) - running), capacity=min(limits))


def _threshold(text: str, capacity: int) -> int:
    if text.endswith("%"):
        return int(float(text[:-1]) / 100 * capacity)
    return quantity.to_bytes(text)
