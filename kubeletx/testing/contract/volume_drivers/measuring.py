"""Contract of volume drivers: their life, and the methods that they declare for each volume."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

from kubeletx.api import Unsupported, VolumeDriver, VolumeRequest, VolumeStats
from kubeletx.linux.mounts import mounts_below, read_mounts

from ..failures import about
from ..shared import NewObject, answer_of
from .base import VolumeDriverBase, Volumes, check_fields, write
from .preparing import has_data


class MeasuringContract(VolumeDriverBase):
    """Tests of `open`, `close`, `stats` and `expand` of a volume driver."""

    async def test_its_factory_does_no_io(self, new_driver: NewObject[VolumeDriver], tmp_path: Path) -> None:
        new_driver()  # what make_driver itself makes
        before = traces(tmp_path)
        new_driver()
        new = sorted(traces(tmp_path) - before)
        assert not new, f"the factory made {', '.join(new)}; do that in `open`"

    @about("open")
    async def test_it_opens_twice(self, volumes: Volumes) -> None:
        driver, request = await volumes.open(), volumes.request()
        await driver.open()
        await volumes.prepare(driver, request)
        await driver.open()
        await volumes.release(driver, request)

    @about("close")
    async def test_it_closes_twice_and_its_volumes_stay(self, volumes: Volumes) -> None:
        driver, request = await volumes.open(), volumes.request()
        path = await volumes.prepare(driver, request)
        await write(path, "one")
        await driver.close()
        await driver.close()
        await has_data(path, "one", "after the driver was closed")
        await volumes.release(await volumes.open(), request)

    @about("stats")
    async def test_statistics_are_plausible(self, volumes: Volumes) -> None:
        driver, request = await volumes.open(), volumes.request()
        ready = await volumes.ready(driver, request)
        await write(Path(ready.path or request.target), "x" * 65536)
        if not ready.capabilities.stats:
            await is_unsupported("stats", driver.stats(request))
            return
        for opened in (driver, await volumes.open()):
            check_stats(await stats_of(opened, request))

    @about("expand")
    async def test_a_volume_is_expanded_and_keeps_its_data(
        self, volumes: Volumes, grow: Callable[[VolumeRequest, int], None]
    ) -> None:
        driver, request = await volumes.open(), volumes.request()
        ready, size = await volumes.ready(driver, request), self.expanded_bytes
        if not ready.capabilities.expand:
            await is_unsupported("expand", driver.expand(request, size))
            return
        path = Path(ready.path or request.target)
        await write(path, "one")
        await asyncio.to_thread(grow, request, size)
        size_now = await expanded(driver, request, size)
        assert size_now >= size, f"expand returned {size_now} bytes, but {size} were requested"
        for opened, wanted in ((driver, size), (await volumes.open(), size), (driver, 1)):
            again = await expanded(opened, request, wanted)
            assert again >= size, f"after a further call for {wanted} bytes the volume has {again}"
        await volumes.prepare(driver, request)
        await has_data(path, "one", "after the volume was expanded")
        await volumes.release(driver, request)


def traces(directory: Path) -> set[str]:
    """Return names of files below the directory, mounts and threads, each in words."""
    files = {f"file {path}" for path in directory.rglob("*")}
    mounts = {f"mount {mount.target}" for mount in mounts_below(read_mounts(), directory)}
    return files | mounts | {f"thread {thread.name}" for thread in threading.enumerate()}


async def is_unsupported(method: str, call: Awaitable[object]) -> None:
    """Fail the test unless the call raises Unsupported, since `prepare` does not declare the method."""
    try:
        answer = await call
    except Unsupported:
        return
    raise AssertionError(f"VolumeCapabilities.{method} is False, but {method} returned {answer}")


async def stats_of(driver: VolumeDriver, request: VolumeRequest) -> VolumeStats:
    """Measure the volume and return the result. Raises PluginFault if a field has a wrong type."""
    stats: VolumeStats = answer_of("stats", await driver.stats(request), VolumeStats)
    check_fields("stats", stats)
    return stats


def check_stats(stats: VolumeStats) -> None:
    """Fail the test if figures are negative, contradict each other, or are all missing."""
    known = {name: value for name in stats.__struct_fields__ if (value := getattr(stats, name)) is not None}
    assert known, "all figures are None"
    assert all(value >= 0 for value in known.values()), f"a figure is negative: {known}"
    for total, parts in (
        ("capacity_bytes", ("used_bytes", "available_bytes")),
        ("inodes", ("inodes_used", "inodes_free")),
    ):
        for part in parts:
            if total in known and part in known:
                assert known[part] <= known[total], f"{part} is larger than {total}: {known}"


async def expanded(driver: VolumeDriver, request: VolumeRequest, size_bytes: int) -> int:
    """Expand the volume and return its size in bytes."""
    size: int = answer_of("expand", await driver.expand(request, size_bytes), int)
    return size
