"""Contract of volume drivers: a prepared volume is available, keeps its data, and is independent of other volumes."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from kubeletx.api import InvalidPod, VolumeDriver, VolumeRequest

from ..calls import plugin_of
from ..failures import about
from .base import VolumeDriverBase, Volumes, read, write

SECRET = "the-secret-of-the-contract-suite"
AT_ONCE = 8


class PreparingContract(VolumeDriverBase):
    """Tests of `VolumeDriver.prepare`."""

    @about("prepare")
    async def test_a_prepared_volume_can_be_read_and_written(self, volumes: Volumes) -> None:
        driver, request = await volumes.open(), volumes.request()
        path = await volumes.prepare(driver, request)
        await write(path, "one")
        assert await read(path) == "one", f"the file that was written below {path} has other content"

    @about("prepare")
    async def test_a_volume_that_is_prepared_twice_is_the_same_and_keeps_its_data(
        self, volumes: Volumes
    ) -> None:
        driver, request = await volumes.open(), volumes.request()
        first = await volumes.ready(driver, request)
        path = Path(first.path or request.target)
        await write(path, "one")
        second = await volumes.ready(driver, request)
        assert second == first, f"the second call returned {second}, the first one {first}"
        await has_data(path, "one", "after the second call")
        await volumes.release(driver, request)

    @about("prepare")
    async def test_a_driver_of_a_restarted_agent_finds_a_prepared_volume(self, volumes: Volumes) -> None:
        request = volumes.request()
        path = await volumes.prepare(await volumes.open(), request)
        await write(path, "one")
        after = await volumes.open()
        assert await volumes.prepare(after, request) == path, "the path has changed"
        await has_data(path, "one", "after a new driver prepared the volume")
        await volumes.release(after, request)

    @about("prepare")
    async def test_two_volumes_of_a_pod_have_their_own_data(self, volumes: Volumes) -> None:
        driver = await volumes.open()
        requests = [volumes.request("a" * 62 + letter) for letter in "xy"]
        paths = [await volumes.prepare(driver, request) for request in requests]
        await write(paths[0], "one")
        assert await read(paths[1]) is None, "a file of the first volume is in the second one"
        await write(paths[1], "two")
        await has_data(paths[0], "one", "after the second volume was written")

    @about("prepare")
    async def test_volumes_are_prepared_and_released_at_the_same_time(self, volumes: Volumes) -> None:
        driver = await volumes.open()
        requests = [volumes.request(f"v{number}", pod=f"pod-{number % 2}") for number in range(AT_ONCE)]
        paths = await asyncio.gather(*(volumes.prepare(driver, request) for request in requests))
        assert len(set(paths)) == AT_ONCE, f"several volumes have the same path: {sorted(paths)}"
        for number, path in enumerate(paths):
            await write(path, str(number))
        for number, path in enumerate(paths):
            await has_data(path, str(number), "after all volumes were written")
        await asyncio.gather(*(volumes.release(driver, request) for request in requests))

    @about("prepare")
    async def test_a_read_only_volume_cannot_be_written(self, volumes: Volumes) -> None:
        driver, request = await volumes.open(), volumes.request(read_only=True)
        if self.keeps_data:  # a driver that formats devices must not format one that is only read
            first = volumes.request()
            await write(await volumes.prepare(driver, first), "one")
            await volumes.release(driver, first)
        ready = await volumes.ready(driver, request)
        path = ready.path or request.target
        flags = (await asyncio.to_thread(os.statvfs, path)).f_flag
        assert ready.read_only or flags & os.ST_RDONLY, (
            f"the request has read_only=True, but {path} is mounted read-write and ReadyVolume.read_only is False"
        )
        if self.keeps_data:
            await has_data(Path(path), "one", "in the volume that is read-only")
        await volumes.release(driver, request)

    @about("prepare")
    async def test_two_pods_use_one_persistent_volume(self, volumes: Volumes) -> None:
        if not self.shared_by_pods:
            pytest.skip("shared_by_pods is False")
        driver = await volumes.open()
        one, other = (
            volumes.request(pod=pod, persistent_volume="shared", access_modes=("ReadWriteMany",))
            for pod in ("one", "other")
        )
        first, second = [await volumes.prepare(driver, request) for request in (one, other)]
        await write(first, "one")
        await has_data(second, "one", "in the second pod")
        await volumes.release(driver, one)
        await has_data(second, "one", "after the release for the first pod")
        await write(second, "two")
        await volumes.release(driver, other)

    @about("prepare")
    async def test_a_block_volume_is_a_block_device_or_refused(self, volumes: Volumes) -> None:
        driver, request = await volumes.open(), volumes.request(is_block=True)
        if self.serves_block:
            path = await volumes.prepare(driver, request)
            assert await asyncio.to_thread(path.is_block_device), f"{path} is not a block device"
            assert await volumes.prepare(driver, request) == path
        else:
            await refuses(driver, request, volumes)
        await volumes.release(driver, request)

    @about("prepare")
    async def test_wrong_options_are_refused_and_leave_nothing(
        self, volumes: Volumes, refused_options: Sequence[Mapping[str, Any]]
    ) -> None:
        if not refused_options:
            pytest.skip("refused_options is empty")
        driver = await volumes.open()
        for number, options in enumerate(refused_options):
            request = volumes.request(f"v{number}", options=dict(options))
            await refuses(driver, request, volumes)
            await volumes.release(driver, request)

    @about("prepare")
    async def test_secrets_are_in_no_result(self, volumes: Volumes) -> None:
        driver, plain = await volumes.open(), volumes.request()
        secrets = {**plain.secrets, "contract": SECRET.encode()}
        request = replace(plain, secrets=secrets)
        ready = await volumes.ready(driver, request)
        texts = {
            "the result": repr(ready) + msgspec.json.encode(ready).decode(),
            "the repr of the driver": repr(plugin_of(driver)),
        }
        for where, text in texts.items():
            assert SECRET not in text, (
                f"a secret of the request is in {where}; the agent stores and logs that"
            )
        await volumes.release(driver, request)


async def has_data(path: Path, text: str, when: str) -> None:
    """Fail the test unless the file in the volume contains `text`. `when`: for the message."""
    content = await read(path)
    assert content == text, f"{when} the file in {path} has {content!r}, not {text!r}"


async def refuses(driver: VolumeDriver, request: VolumeRequest, volumes: Volumes) -> None:
    """Fail the test unless the driver refuses the request with InvalidPod, with one line for people."""
    try:
        answer = await volumes.ready(driver, request)
    except InvalidPod as error:
        refusal = error
    else:
        what = "a block volume" if request.is_block else f"options {request.options}"
        raise AssertionError(f"prepare returned {answer} for {what}; it must raise InvalidPod")
    assert refusal.problem.strip(), "the error has no `problem`"
    assert "\n" not in str(refusal), f"the message has more than one line: {refusal}"
