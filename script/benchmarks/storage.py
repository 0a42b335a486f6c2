"""Benchmarks of the storage agent's mounts and unmounts, one volume alone and many at once, beside the same by hand."""

from __future__ import annotations

from typing import Final

from .model import Result, Sizes, figure, median, now
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


def mount_result(found: StorageTimes) -> Result:
    """Figures for one volume."""
    checked = [over - plain for over, plain in zip(found.mount[CHECKED], found.mount[FLOOR], strict=True)]
    return Result(
        name="storage-mount",
        figures=(
            *(
                figure(
                    f"{verb} of a volume {words}",
                    "ms",
                    [seconds * 1000 for seconds in times[side]],
                    [seconds * 1000 for seconds in times[FLOOR]],
                    over=allowed,
                    digits=1,
                )
                for verb, times in (("mount", found.mount), ("unmount", found.unmount))
                for side, words, allowed in (
                    (AGENT, "by the storage agent", AGENT_MS),
                    (DRIVER, "through the driver", DRIVER_MS),
                )
            ),
            figure("blkid and fsck before a mount, by hand", "ms", median(checked) * 1000, digits=1),
        ),
        series=_series(found),
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
            figure(
                f"mounts of {volumes} volumes at once", "volumes/s", rates[AGENT], rates[CHECKED], share=SHARE
            ),
            figure(
                f"mounts of {volumes} volumes at once, beside losetup, mount and bind alone",
                "volumes/s",
                rates[AGENT],
                rates[FLOOR],
            ),
            figure(
                f"mounts of {volumes} volumes at once, through the driver",
                "volumes/s",
                rates[DRIVER],
                rates[CHECKED],
            ),
            figure(f"unmounts of {volumes} volumes at once", "volumes/s", ends[AGENT], ends[FLOOR]),
            figure(
                f"CPU of mount and unmount, for each of {volumes} volumes", "ms", cpu[AGENT], cpu[CHECKED]
            ),
        ),
        series=_series(times),
        notes=(*_NOTES, "the floor also runs blkid and fsck, as the agent does; a thread for each volume"),
        measured_at=now(),
    )


def _series(times: StorageTimes) -> dict[str, list[float]]:
    return {
        f"{side} {verb}": seconds
        for verb, by_side in (("mount", times.mount), ("unmount", times.unmount))
        for side, seconds in by_side.items()
    }
