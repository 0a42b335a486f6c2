"""A volume driver of a stranger's distribution, in a real child process."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import Any

import pytest

from kubeletx.api import Internal, InvalidPod, KubeletxError, TimedOut, Unavailable, VolumeRequest
from kubeletx.testing import volume_request
from kubeletx_testing.waiting import let_others_work, until
from tests.unit.plugins.isolated.services_model import ServicesModel


def request(model: ServicesModel, name: str = "data", **fields: Any) -> VolumeRequest:
    return volume_request(model.root, name, **fields)


async def test_all_methods_are_called_in_a_child_that_opens_the_driver_first(model: ServicesModel) -> None:
    assert "plugin-volumes" not in model.services.background(lambda _: None), (
        "an unused driver costs no process"
    )
    assert model.pid is None
    wanted = request(model, secrets={"key": b"\x00s"}, access_modes=("ReadWriteOnce",), options={"size": "1"})
    ready = await model.disks.prepare(wanted)
    assert (ready.path, ready.device, ready.capabilities.stats) == (wanted.target, "disk0", True)
    assert model.file("t-disks", "request").read_text() == f"{wanted} {wanted.secrets} ('ReadWriteOnce',)"
    assert (await model.disks.stats(wanted)).capacity_bytes == 1 << 40
    assert await model.disks.expand(wanted, 4096) == 4097
    await model.disks.release(wanted)
    pid = model.pid
    assert pid not in (None, os.getpid())
    methods = [f"open {pid}", *(f"{one} data {pid}" for one in ("prepare", "stats", "expand", "release"))]
    assert model.disk_calls == methods
    await model.services.close()
    assert model.disk_calls == [*methods, f"close {pid}"]


async def test_errors_keep_their_class_and_do_not_degrade_the_driver(model: ServicesModel) -> None:
    with pytest.raises(InvalidPod, match=r"options\.size: is 0; write more"):
        await model.disks.prepare(request(model, options={"size": "0"}))
    assert model.callbacks("t-disks").state.word == "ready"


@pytest.mark.parametrize(
    ("order", "words"),
    [
        (
            "raise",
            r"volume-driver/t-disks: prepare: LookupError: not found at .*site_troubled/plugin\.py:\d+",
        ),
        ("exit", "SystemExit: 4"),
        ("wrong", "returned str, not ReadyVolume"),
    ],
)
async def test_faults_are_named_and_degrade_the_driver(model: ServicesModel, order: str, words: str) -> None:
    model.order("t-disks", order)
    with pytest.raises(Internal, match=words):
        await model.disks.prepare(request(model, "bad"))
    assert model.callbacks("t-disks").state.word == "degraded"
    await model.disks.prepare(request(model))
    assert model.callbacks("t-disks").state.word == "ready"


async def test_after_an_end_of_the_child_the_driver_is_opened_again(model: ServicesModel) -> None:
    model.order("t-disks", "crash")
    await model.disks.prepare(request(model))
    first = model.pid
    with pytest.raises(
        Unavailable, match="the process of plugin distribution troubled: its connection closed"
    ):
        await model.disks.prepare(request(model, "bad"))
    await model.ended()
    model.wait_over()
    await model.disks.release(request(model))
    assert model.pid not in (None, first)
    assert model.disk_calls[-2:] == [f"open {model.pid}", f"release data {model.pid}"]


async def test_a_child_that_is_killed_between_calls_is_started_by_the_next_one(model: ServicesModel) -> None:
    await model.disks.prepare(request(model))
    assert model.pid is not None
    os.kill(model.pid, signal.SIGKILL)
    await until(lambda: model.pid is None)
    with pytest.raises(Unavailable):
        await model.disks.release(request(model))
    await model.ended()  # its delay begins when the agent has seen the end, maybe after the answer
    model.wait_over()
    await model.disks.release(request(model))
    assert model.restarts == 1
    assert model.callbacks("t-disks").state.word == "ready"


async def test_an_abandoned_call_in_the_child_blocks_only_its_own_volume(model: ServicesModel) -> None:
    model.order("t-disks", "deaf")
    call = asyncio.create_task(model.disks.prepare(request(model, "bad")))
    await until(model.file("t-disks", "began").exists)
    model.clock.advance(121.0)
    with pytest.raises(TimedOut, match="prepare: did not return within 120 s"):
        await call
    pid = model.pid
    await model.disks.prepare(request(model, "good"))
    with pytest.raises(
        Unavailable, match="volume driver t-disks: an earlier call for volume bad has not ended"
    ):
        await model.disks.release(request(model, "bad"))
    assert not [one for one in model.disk_calls if one.startswith("release")]
    model.file("t-disks", "end").touch()
    await released(model, request(model, "bad"))
    assert model.pid == pid
    assert model.disk_calls[-1] == f"release bad {pid}"


async def released(model: ServicesModel, volume: VolumeRequest) -> None:
    """Release the volume again and again until that succeeds."""
    async with asyncio.timeout(20):
        while True:
            try:
                return await model.disks.release(volume)
            except KubeletxError:
                await let_others_work()


async def test_a_factory_that_fails_in_the_child_is_the_answer(model: ServicesModel) -> None:
    model.file("t-disks", "fail").touch()
    with pytest.raises(Internal, match="volume-driver/t-disks: factory: ValueError: no backend"):
        await model.disks.prepare(request(model))
