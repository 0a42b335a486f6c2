"""Benchmarks of the storage agent's mounts and unmounts, one volume alone and many at once, beside the same by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from .model import Figure, Result, Sizes, median, now
from .storage_child import AGENT, CHECKED, DRIVER, FLOOR, StorageTimes, in_private_namespace

AGENT_MS: Final = 20.0
DRIVER_MS: Final = 70.0
SHARE: Final = 0.8
_NOTES: Final = (
    "formatted ext4 images on loop devices; journals and records are on disk before each step",
    "floor: losetup, mount and a bind mount, or the reverse, by subprocess.run",
)


def storage_mount(sizes: Sizes) -> Result:
    """Measure mounts and unmounts of one volume, one after the other."""
    return mount_result(in_private_namespace(1, sizes.mounts))


def storage_many(sizes: Sizes) -> Result:
    """Measure mounts and unmounts of many volumes at once."""
    return many_result(in_private_namespace(sizes.volumes, sizes.runs), sizes.volumes)


def mount_result(times: StorageTimes) -> Result:
    """Figures for one volume."""
    checked = [over - plain for over, plain in zip(times.mount[CHECKED], times.mount[FLOOR], strict=True)]
    return Result(
        name="storage-mount",
        figures=(
            _over("mount of a volume by the storage agent", times.mount[AGENT], times.mount[FLOOR], AGENT_MS),
            _over("mount of a volume through the driver", times.mount[DRIVER], times.mount[FLOOR], DRIVER_MS),
            _over(
                "unmount of a volume by the storage agent",
                times.unmount[AGENT],
                times.unmount[FLOOR],
                AGENT_MS,
            ),
            _over(
                "unmount of a volume through the driver",
                times.unmount[DRIVER],
                times.unmount[FLOOR],
                DRIVER_MS,
            ),
            Figure(
                label="blkid and fsck before a mount, by hand",
                value=round(median(checked) * 1000, 1),
                unit="ms",
            ),
        ),
        series=_series(times),
        notes=_NOTES,
        measured_at=now(),
    )


def many_result(times: StorageTimes, volumes: int) -> Result:
    """Figures for `volumes` volumes at once."""
    rates = {side: [volumes / one for one in seconds] for side, seconds in times.mount.items()}
    ends = {side: [volumes / one for one in seconds] for side, seconds in times.unmount.items()}
    cpu = {side: [one * 1000 / volumes for one in seconds] for side, seconds in times.cpu.items()}
    return Result(
        name="storage-many",
        figures=(
            _rate(f"mounts of {volumes} volumes at once", rates[AGENT], rates[CHECKED], SHARE),
            _rate(
                f"mounts of {volumes} volumes at once, beside losetup, mount and bind alone",
                rates[AGENT],
                rates[FLOOR],
            ),
            _rate(f"mounts of {volumes} volumes at once, through the driver", rates[DRIVER], rates[CHECKED]),
            _rate(f"unmounts of {volumes} volumes at once", ends[AGENT], ends[FLOOR]),
            Figure(
                label=f"CPU of mount and unmount, for each of {volumes} volumes",
                value=median(cpu[AGENT]),
                unit="ms",
                floor=median(cpu[CHECKED]),
                ratio=median(cpu[AGENT]) / median(cpu[CHECKED]),
                samples=tuple(cpu[AGENT]),
            ),
        ),
        series=_series(times),
        notes=(*_NOTES, "the floor also runs blkid and fsck, as the agent does; a thread for each volume"),
        measured_at=now(),
    )


def _over(label: str, ours: Sequence[float], floors: Sequence[float], allowed: float) -> Figure:
    """Figure in milliseconds for seconds of a call. `allowed`: the goal, in milliseconds over the floor."""
    value, floor = median(ours) * 1000, median(floors) * 1000
    return Figure(
        label=label,
        value=round(value, 1),
        unit="ms",
        goal=f"≤ floor + {allowed:g} ms",
        is_met=value - floor <= allowed,
        floor=round(floor, 1),
        ratio=value / floor,
        samples=tuple(one * 1000 for one in ours),
    )


def _rate(label: str, ours: Sequence[float], floors: Sequence[float], share: float | None = None) -> Figure:
    """Figure for volumes per second. `share`: the goal, as a share of the floor."""
    ratio = median(ours) / median(floors)
    return Figure(
        label=label,
        value=median(ours),
        unit="volumes/s",
        goal="" if share is None else f"≥ {share:g} x floor",
        is_met=None if share is None else ratio >= share,
        floor=median(floors),
        ratio=ratio,
        samples=tuple(ours),
    )


def _series(times: StorageTimes) -> dict[str, list[float]]:
    return {
        f"{side} {verb}": seconds
        for verb, by_side in (("mount", times.mount), ("unmount", times.unmount))
        for side, seconds in by_side.items()
    }
