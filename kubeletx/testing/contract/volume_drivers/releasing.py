"""Contract of volume drivers: a release removes what prepare made, whatever happened before."""

from __future__ import annotations

import asyncio
import contextlib

from kubeletx.api import KubeletxError, Unavailable, VolumeDriver, VolumeRequest
from kubeletx.linux.mounts import mounts_below, read_mounts

from ..calls import plugin_of
from ..failures import about
from .base import VolumeDriverBase, Volumes, lost_journal, read, write
from .preparing import has_data

CUT_SECONDS = (0.0, 0.001, 0.004, 0.016, 0.064)
"""Times after which a call is cancelled."""
LATE_SECONDS = 0.3
"""Time after a release in which nothing of an earlier, cancelled call may appear."""


class ReleasingContract(VolumeDriverBase):
    """Tests of `VolumeDriver.release`."""

    @about("release")
    async def test_a_released_volume_leaves_nothing(self, volumes: Volumes) -> None:
        driver, request = await volumes.open(), volumes.request()
        await write(await volumes.prepare(driver, request), "one")
        await volumes.release(driver, request)
        left = await asyncio.to_thread(lambda: mounts_below(read_mounts(), volumes.directory))
        assert not left, f"after the release of the only volume there is still a mount on {left[0].target}"

    @about("release")
    async def test_a_second_release_succeeds(self, volumes: Volumes) -> None:
        driver, request = await volumes.open(), volumes.request()
        await volumes.prepare(driver, request)
        await volumes.release(driver, request)
        await volumes.release(driver, request)
        await volumes.make_target(request)
        await volumes.release(driver, request)

    @about("release")
    async def test_a_volume_that_was_never_prepared_is_released(self, volumes: Volumes) -> None:
        driver, request = await volumes.open(), volumes.request()
        await volumes.release(driver, request)
        await volumes.make_target(request)
        await volumes.release(driver, request)

    @about("release")
    async def test_a_driver_of_a_restarted_agent_releases_a_volume(self, volumes: Volumes) -> None:
        request = volumes.request()
        await volumes.prepare(await volumes.open(), request)
        await volumes.close()
        await volumes.release(await volumes.open(), request)

    @about("release")
    async def test_a_volume_whose_journal_is_lost_is_released(self, volumes: Volumes) -> None:
        for name, changes in (("one", {}), ("two", {"persistent_volume": "pv-two"})):
            request = volumes.request(name, **changes)
            await volumes.prepare(await volumes.open(), request)
            await volumes.release(await volumes.open(), lost_journal(request))

    @about("release")
    async def test_the_release_of_one_volume_leaves_the_others(self, volumes: Volumes) -> None:
        driver = await volumes.open()
        one, other = volumes.request("one"), volumes.request("one-more")
        for request in (one, other):
            await write(await volumes.prepare(driver, request), request.name)
        await volumes.release(driver, one)
        await has_data(await volumes.prepare(driver, other), "one-more", "after another volume was released")
        await volumes.release(driver, other)

    @about("release")
    async def test_a_released_volume_can_be_prepared_again(self, volumes: Volumes) -> None:
        driver, request = await volumes.open(), volumes.request()
        await write(await volumes.prepare(driver, request), "one")
        await volumes.release(driver, request)
        content = await read(await volumes.prepare(driver, request))
        if self.keeps_data:
            assert content == "one", f"keeps_data is True, but the file has {content!r} instead of 'one'"
        else:
            assert content is None, "keeps_data is False, but a file of the released volume is there again"
        await volumes.release(driver, request)

    @about("release")
    async def test_a_volume_in_use_is_released_at_once_or_later(self, volumes: Volumes) -> None:
        driver, request = await volumes.open(), volumes.request()
        path = await volumes.prepare(driver, request)
        file = await asyncio.to_thread((path / "open").open, "wb")
        try:
            with contextlib.suppress(Unavailable):
                await volumes.only_release(driver, request)
        finally:
            await asyncio.to_thread(file.close)
        await volumes.release(driver, request)

    @about("prepare")
    async def test_a_cancelled_prepare_leaves_nothing_after_the_release(self, volumes: Volumes) -> None:
        driver = await volumes.open()
        for number, seconds in enumerate(CUT_SECONDS):
            request = volumes.request(f"v{number}")
            await volumes.make_target(request)
            await cut(volumes, driver, "prepare", request, seconds)
            await volumes.release(driver, request)
        await asyncio.sleep(LATE_SECONDS)
        for number in range(len(CUT_SECONDS)):
            left = await asyncio.to_thread(volumes.left_of, volumes.request(f"v{number}"))
            assert not left, (
                f"after the release there is {' and '.join(left)}: the cancelled prepare still worked; "
                "it must not end before its threads and processes have ended"
            )

    @about("release")
    async def test_a_cancelled_release_is_completed_by_the_next_one(self, volumes: Volumes) -> None:
        driver = await volumes.open()
        for number, seconds in enumerate(CUT_SECONDS):
            request = volumes.request(f"v{number}")
            await volumes.prepare(driver, request)
            await cut(volumes, driver, "release", request, seconds)
            await volumes.release(driver, request)


async def cut(
    volumes: Volumes, driver: VolumeDriver, method: str, request: VolumeRequest, seconds: float
) -> None:
    """Call a method and cancel the call after `seconds`. Raises PluginFault if it continues.

    Raises the error of a call that fails with another error than those of `kubeletx.api`.
    """
    task = volumes.calls.start(method, getattr(plugin_of(driver), method), request)
    await asyncio.wait((task,), timeout=seconds)
    await volumes.calls.cancel(method, task)
    error = None if task.cancelled() else task.exception()
    if error is not None and not isinstance(error, KubeletxError):
        raise error
