"""Calls of plugins' volume drivers: deadlines, order of calls, abandoned calls, answers and faults."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from kubeletx.api import (
    Conflict,
    Internal,
    InvalidPod,
    KubeletxError,
    ReadyVolume,
    TimedOut,
    Unavailable,
    VolumeRequest,
    VolumeStats,
)
from kubeletx.plugins import volume_drivers
from kubeletx.plugins.callbacks import CallbackCounts, Callbacks
from kubeletx.plugins.registrations import Hook, Registration
from kubeletx.plugins.volume_calls import MOST_LEFT
from kubeletx.plugins.volume_drivers import PluginVolumeDriver, close_all, open_all
from kubeletx.testing import FakeClock, FakeVolumeDriver, volume_request
from kubeletx_testing.waiting import until


class Model:
    """One driver of a plugin as the agent calls it."""

    def __init__(
        self,
        directory: Path,
        driver: FakeVolumeDriver | None = None,
        name: str = "disks",
        *,
        stop_seconds: float = 1.0,
        most_left: int = MOST_LEFT,
    ) -> None:
        self.driver = driver or FakeVolumeDriver(directory / "volumes")
        self.clock, self.counts, self.directory = FakeClock(), CallbackCounts(), directory
        registration = Registration(
            hook=Hook.VOLUME_DRIVER, name=name, factory=object, plugin="acme", sources=("flexVolume",)
        )
        self.callbacks = Callbacks(registration, self.clock, self.counts, stop_seconds=stop_seconds)
        self.callbacks.keep(self.driver)
        self.calls = PluginVolumeDriver(self.callbacks, 120.0, most_left=most_left)

    def request(self, name: str = "a", **fields: Any) -> VolumeRequest:
        return volume_request(self.directory / "root", name, **fields)

    @property
    def state(self) -> str:
        return self.callbacks.state.word

    async def late(self, call: Any, seconds: float) -> KubeletxError:
        """Let the deadline of a call that hangs pass; return its error."""
        task = asyncio.ensure_future(call)
        await until(lambda: self.driver.calls and self.driver.calls[-1] != "open")
        self.clock.advance(seconds)
        with pytest.raises(KubeletxError) as caught:
            await task
        return caught.value


@pytest.fixture
def model(tmp_path: Path) -> Model:
    return Model(tmp_path)


class DeafDriver(FakeVolumeDriver):
    """A driver whose calls ignore their cancellation while `gate` is closed."""

    def __init__(self, base: Path) -> None:
        super().__init__(base)
        self.gate = asyncio.Event()
        self.running = 0

    async def prepare(self, request: VolumeRequest) -> ReadyVolume:
        self.calls.append(f"prepare {request.name}")
        self.running += 1
        while request.name.startswith("deaf") and not self.gate.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await self.gate.wait()
        self.running -= 1
        return ReadyVolume()


class WrongDriver(FakeVolumeDriver):
    """A driver that returns or raises `answer`."""

    def __init__(self, base: Path, answer: Any) -> None:
        super().__init__(base)
        self.answer = answer

    async def prepare(self, request: VolumeRequest) -> Any:
        return self._answer()

    async def stats(self, request: VolumeRequest) -> Any:
        return self._answer()

    async def expand(self, request: VolumeRequest, size_bytes: int) -> Any:
        return self._answer()

    def _answer(self) -> Any:
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer


async def test_a_driver_is_opened_once_before_its_first_call(model: Model) -> None:
    await asyncio.gather(*(model.calls.prepare(model.request(name)) for name in "abc"))
    await model.calls.open()
    assert model.driver.calls == ["open", "prepare a", "prepare b", "prepare c"]


async def test_the_results_are_those_of_the_driver(model: Model) -> None:
    request = model.request()
    assert (await model.calls.prepare(request)).path == str(model.directory / "volumes/a")
    assert (await model.calls.stats(request)).capacity_bytes == 1 << 30
    assert await model.calls.expand(request, 4096) == 4096
    await model.calls.release(request)
    assert model.driver.prepared == {}
    assert {labels[2] for labels, _ in model.counts.durations.items()} == {
        "prepare",
        "stats",
        "expand",
        "release",
    }


@pytest.mark.parametrize(
    ("method", "seconds"),
    [("prepare", 120.0), ("release", 120.0), ("expand", 120.0), ("stats", volume_drivers.SECONDS["stats"])],
)
async def test_each_call_has_a_deadline_and_a_missed_one_degrades(
    model: Model, method: str, seconds: float
) -> None:
    model.driver.held[f"{method} a"] = asyncio.Event()
    arguments = (4096,) if method == "expand" else ()
    error = await model.late(getattr(model.calls, method)(model.request(), *arguments), seconds)
    assert isinstance(error, TimedOut)
    assert f"volume-driver/disks: {method}: did not return within {seconds:g} s" in str(error)
    assert model.state == "degraded"
    assert model.counts.errors == {("acme", "disks", method, "timeout"): 1}


async def test_a_call_that_was_cancelled_leaves_the_volume_to_the_next_call(model: Model) -> None:
    model.driver.held["prepare a"] = asyncio.Event()
    await model.late(model.calls.prepare(model.request()), 120.0)
    await model.calls.release(model.request())
    assert model.driver.calls == ["open", "prepare a", "release a"]
    assert model.state == "ready"


async def test_calls_for_one_volume_follow_each_other_and_others_are_made_at_once(model: Model) -> None:
    held = model.driver.held["prepare a"] = asyncio.Event()
    first = asyncio.create_task(model.calls.prepare(model.request()))
    await until(lambda: "prepare a" in model.driver.calls)
    second = asyncio.create_task(model.calls.release(model.request()))
    await model.calls.prepare(model.request("b"))
    assert model.driver.calls == ["open", "prepare a", "prepare b"]
    held.set()
    await asyncio.gather(first, second)
    assert model.driver.calls[-1] == "release a"


async def test_an_abandoned_call_blocks_only_its_own_volume(tmp_path: Path) -> None:
    driver = DeafDriver(tmp_path)
    model = Model(tmp_path, driver, stop_seconds=0.01)
    await model.late(model.calls.prepare(model.request("deaf")), 120.0)
    with pytest.raises(
        Unavailable,
        match="driver disks: an earlier call for volume deaf has not ended since it was cancelled",
    ):
        await model.calls.release(model.request("deaf"))
    await model.calls.prepare(model.request("b"))
    assert driver.calls == ["open", "prepare deaf", "prepare b"]
    driver.gate.set()
    await until(lambda: not driver.running)
    await model.calls.release(model.request("deaf"))
    assert driver.calls[-1] == "release deaf"
    assert model.callbacks.abandoned == {}


async def test_a_driver_with_many_abandoned_calls_is_not_called(tmp_path: Path) -> None:
    driver = DeafDriver(tmp_path)
    model = Model(tmp_path, driver, most_left=2)
    for name in ("deaf-1", "deaf-2"):
        running = asyncio.create_task(model.calls.prepare(model.request(name)))
        await until(lambda name=name: f"prepare {name}" in driver.calls)
        model.clock.advance(120.0)
        await asyncio.gather(running, return_exceptions=True)
    with pytest.raises(Unavailable, match="prepare: an earlier call has not ended since its deadline"):
        await model.calls.prepare(model.request("b"))
    assert "prepare b" not in driver.calls
    driver.gate.set()
    await until(lambda: not model.callbacks.abandoned)
    await model.calls.prepare(model.request("b"))


@pytest.mark.parametrize(
    "error",
    [
        InvalidPod(field="options.size", problem="is too large", fix="write less"),
        Unavailable("the backend is away"),
        TimedOut("the backend is slow"),
        Conflict("another node has it"),
    ],
)
async def test_what_a_driver_says_about_a_volume_does_not_degrade_it(
    model: Model, error: KubeletxError
) -> None:
    model.driver.failures["prepare a"] = error
    with pytest.raises(type(error)) as caught:
        await model.calls.prepare(model.request())
    assert caught.value is error
    assert model.state == "ready"
    assert not model.counts.errors


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ValueError("no such disk"), r"prepare: ValueError: no such disk at .*test_volume_drivers\.py:\d+"),
        (SystemExit(3), "SystemExit: 3"),
        (Internal("nonsense from the backend"), "nonsense from the backend"),
    ],
)
async def test_a_fault_of_the_driver_degrades_it_until_a_call_succeeds(
    tmp_path: Path, error: BaseException, words: str
) -> None:
    driver = WrongDriver(tmp_path, error)
    model = Model(tmp_path, driver)
    with pytest.raises(Internal, match=words):
        await model.calls.prepare(model.request())
    assert model.state == "degraded"
    driver.answer = ReadyVolume()
    await model.calls.prepare(model.request())
    assert model.state == "ready"


@pytest.mark.parametrize(
    ("method", "answer", "words"),
    [
        ("prepare", "ready", "returned str, not ReadyVolume"),
        ("prepare", None, "returned NoneType, not ReadyVolume"),
        ("prepare", ReadyVolume(path=Path("/data")), "PosixPath is unsupported"),  # type: ignore[arg-type]
        ("prepare", ReadyVolume(kind="directories"), "Invalid enum value"),  # type: ignore[arg-type]
        ("prepare", ReadyVolume(path="/" * 5000), "a path or device of more than 4096 characters"),
        ("prepare", ReadyVolume(device="d" * 5000), "a path or device of more than 4096 characters"),
        ("prepare", ReadyVolume(path="data"), "the path 'data', which is not absolute and plain"),
        ("prepare", ReadyVolume(path="/data/../etc"), "which is not absolute and plain"),
        ("stats", {"capacity_bytes": 1}, "returned dict, not VolumeStats"),
        ("stats", VolumeStats(used_bytes=1.5), "Expected `int"),  # type: ignore[arg-type]
        ("expand", "4096", "returned str, not int"),
    ],
)
async def test_results_of_wrong_types_are_faults(
    tmp_path: Path, method: str, answer: Any, words: str
) -> None:
    model = Model(tmp_path, WrongDriver(tmp_path, answer))
    arguments = (4096,) if method == "expand" else ()
    with pytest.raises(Internal, match=words):
        await getattr(model.calls, method)(model.request(), *arguments)
    assert model.state == "degraded"


class ClosedDriver(FakeVolumeDriver):
    """A driver that cannot be opened while `error` is set."""

    error: BaseException | None = Unavailable("no backend yet")

    async def open(self) -> None:
        await super().open()
        if self.error is not None:
            raise self.error


async def test_a_driver_that_could_not_be_opened_is_opened_before_the_next_call(tmp_path: Path) -> None:
    driver = ClosedDriver(tmp_path)
    model = Model(tmp_path, driver)
    with capture_logs() as lines:
        await open_all([model.calls])
    (line,) = [one for one in lines if one["event"] == "Failed to open a volume driver"]
    assert (line["driver"], line["err"]) == ("disks", "no backend yet")
    with pytest.raises(Unavailable, match="no backend yet"):
        await model.calls.prepare(model.request())
    driver.error = None
    await model.calls.prepare(model.request())
    assert driver.calls == ["open", "open", "open", "prepare a"]


async def test_drivers_are_opened_and_closed_also_if_others_fail(tmp_path: Path) -> None:
    bad, good = Model(tmp_path, ClosedDriver(tmp_path), "bad"), Model(tmp_path, name="good")
    await open_all([bad.calls, good.calls])
    await close_all([bad.calls, good.calls])
    assert bad.driver.calls == ["open"], "what was never open is not closed"
    assert good.driver.calls == ["open", "close"]


async def test_a_driver_that_ignores_its_end_does_not_hold_up_the_agent(tmp_path: Path) -> None:
    class Slow(FakeVolumeDriver):
        async def close(self) -> None:
            self.calls.append("close")
            await asyncio.Event().wait()

    model = Model(tmp_path, Slow(tmp_path))
    await model.calls.open()
    closing = asyncio.create_task(close_all([model.calls]))
    await until(lambda: "close" in model.driver.calls)
    model.clock.advance(volume_drivers.SECONDS["close"])
    await closing


async def test_a_factory_that_failed_is_the_answer_to_every_call(tmp_path: Path) -> None:
    model = Model(tmp_path)

    def make() -> None:
        raise LookupError("no backend")

    callbacks = Callbacks(model.callbacks.registration, model.clock, model.counts)
    callbacks.make(make)
    calls = PluginVolumeDriver(callbacks, 120.0)
    await open_all([calls])
    for call in (
        calls.prepare(model.request()),
        calls.release(model.request()),
        calls.stats(model.request()),
        calls.expand(model.request(), 1),
    ):
        with pytest.raises(Unavailable, match="volume-driver/disks: factory: LookupError: no backend"):
            await call
    await close_all([calls])
    assert callbacks.state.word == "failed"
    assert calls.entry.sources == ("flexVolume",)
