"""Health checks, admission checks, panels, pod sources, records and volume drivers with one fault each.

Their contract suites fail. The docstring of a class is the fault. Those that hang also ignore their cancellation,
which is the worst case: no time limit of the caller ends them.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Mapping
from typing import Any, NoReturn, cast

from kubeletx.api import Allow, CheckResult, PodSourceSink, ReadyVolume, Record, Text, VolumeRequest
from kubeletx.testing import FakeRecords, FakeVolumeDriver


class HangingHealthCheck:
    """Health check whose `check` never returns."""

    async def check(self) -> CheckResult:
        """Hang."""
        await hang()


class RaisingHealthCheck:
    """Health check whose `check` raises."""

    async def check(self) -> CheckResult:
        """Raise."""
        broken()


class NonsenseHealthCheck:
    """Health check whose `check` returns a word."""

    async def check(self) -> CheckResult:
        """Return a word."""
        return cast(CheckResult, "yes")


class HangingAdmissionCheck:
    """Admission check whose `review` never returns."""

    async def review(self, pod: Mapping[str, Any]) -> Allow:
        """Hang."""
        await hang()


class RaisingAdmissionCheck:
    """Admission check whose `review` raises."""

    async def review(self, pod: Mapping[str, Any]) -> Allow:
        """Raise."""
        broken()


class NonsenseAdmissionCheck:
    """Admission check whose `review` returns True."""

    async def review(self, pod: Mapping[str, Any]) -> Allow:
        """Return True."""
        return cast(Allow, True)


class HangingPanel:
    """Panel whose `show` never returns."""

    async def show(self) -> Text:
        """Hang."""
        await hang()


class RaisingPanel:
    """Panel whose `show` raises."""

    async def show(self) -> Text:
        """Raise."""
        broken()


class NonsensePanel:
    """Panel whose `show` returns plain text."""

    async def show(self) -> Text:
        """Return a string."""
        return cast(Text, "load 1.0")


class HangingPodSource:
    """Pod source that never calls `synced`, and whose `run` continues after its cancellation."""

    async def run(self, sink: PodSourceSink) -> None:
        """Hang."""
        await hang()


class RaisingPodSource:
    """Pod source whose `run` raises."""

    async def run(self, sink: PodSourceSink) -> None:
        """Raise."""
        broken()


class NonsensePodSource:
    """Pod source whose `run` returns at once."""

    async def run(self, sink: PodSourceSink) -> None:
        """Report an empty list of pods and return."""
        sink.synced()


class HangingRecords(FakeRecords):
    """Records whose `get` never returns."""

    async def get(self, name: str) -> Record:
        """Hang."""
        await hang()


class RaisingRecords(FakeRecords):
    """Records whose `get` raises an error that is none of `kubeletx.api`."""

    async def get(self, name: str) -> Record:
        """Raise."""
        broken()


class NonsenseRecords(FakeRecords):
    """Records whose `get` returns None for a record that exists."""

    async def get(self, name: str) -> Record:
        """Return None."""
        return cast(Record, None)


class HangingVolumeDriver(FakeVolumeDriver):
    """Volume driver whose `prepare` never returns."""

    async def prepare(self, request: VolumeRequest) -> ReadyVolume:
        """Hang."""
        await hang()


class RaisingVolumeDriver(FakeVolumeDriver):
    """Volume driver whose `prepare` raises."""

    async def prepare(self, request: VolumeRequest) -> ReadyVolume:
        """Raise."""
        broken()


class NonsenseVolumeDriver(FakeVolumeDriver):
    """Volume driver whose `prepare` returns a word."""

    async def prepare(self, request: VolumeRequest) -> ReadyVolume:
        """Return a word."""
        return cast(ReadyVolume, "ready")


class BlockingPanel:
    """Panel whose `show` blocks the event loop."""

    async def show(self) -> Text:
        """Block for 30 seconds."""
        time.sleep(30)  # noqa: ASYNC251 (the fault)
        return Text(text="late")


class UnmakeablePanel:
    """Panel whose factory raises."""

    def __init__(self) -> None:
        """Raise."""
        broken()

    async def show(self) -> Text:
        """Is never called."""
        return Text(text="")


async def hang() -> NoReturn:
    """Wait for ever, also after a cancellation."""
    forever = asyncio.Event()
    while True:
        with contextlib.suppress(asyncio.CancelledError):
            await forever.wait()


def broken() -> NoReturn:
    """Raise RuntimeError."""
    raise RuntimeError("the backend speaks another protocol")
