"""How long a guest has for a reboot, on a fake clock; libvirt and the guest are lists of what they were asked."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from kubeletx_libvirt.domain_reader import EventWaits
from kubeletx_libvirt.machinery import Machinery
from kubeletx_libvirt.power import Power
from kubeletx_libvirt.units import Units

from kubeletx.api import UnitId, UnitState
from kubeletx.testing import FakeClock, FakeHost

UNIT = UnitId("11111111-2222-3333-4444-555555555555")


class Reboot:
    """A reboot of a running machine, which libvirt takes up after `busy_seconds`."""

    def __init__(self, directory: Path, busy_seconds: float) -> None:
        self.clock = FakeClock()
        self.waits = EventWaits()
        self.resets: list[float] = []
        self._busy_seconds = busy_seconds
        self._began = self.clock.monotonic()

        async def get(_: UnitId) -> None:
            return None

        machinery = SimpleNamespace(
            name="libvirt",
            host=FakeHost(directory, clock=self.clock),
            connection=self,
            domains=SimpleNamespace(get=get, state=lambda *_: UnitState.RUNNING),
            waits=self.waits,
            settings=None,
            records=None,
            links=None,
            addresses=None,
        )
        units = SimpleNamespace(alone=lambda _: contextlib.nullcontext())
        self._power = Power(cast(Machinery, machinery), cast(Units, units), clock=self.clock)
        self.task = asyncio.create_task(self._power.reboot(UNIT, 0))

    async def use(self, function: Callable[..., None], *_: Any) -> None:
        busy_seconds, self._busy_seconds = self._busy_seconds, 0
        await self.clock.sleep(busy_seconds)
        if function.__name__ == "_reset":
            self.resets.append(self.clock.monotonic() - self._began)
            self.waits.wake(UNIT, "reboot")

    async def end_after(self, seconds: float) -> list[float]:
        """Return when the machine was reset."""
        await self.clock.run_for(seconds)
        assert self.task.done()
        await self.task
        return self.resets


@pytest.mark.parametrize("busy_seconds", [0, 20])
async def test_a_guest_that_shows_nothing_is_reset_after_a_time(tmp_path: Path, busy_seconds: float) -> None:
    reboot = Reboot(tmp_path, busy_seconds)
    assert await reboot.end_after(busy_seconds + 20) == [busy_seconds + 15]


async def test_a_guest_that_shuts_down_in_order_gets_more_time(tmp_path: Path) -> None:
    reboot = Reboot(tmp_path, 0)
    await reboot.clock.run_for(3)
    reboot.waits.wake(UNIT, "agent-gone")
    await reboot.clock.run_for(37)
    assert not reboot.task.done()
    reboot.waits.wake(UNIT, "reboot")
    assert await reboot.end_after(0) == []


async def test_a_guest_that_hangs_while_it_shuts_down_is_reset_too(tmp_path: Path) -> None:
    reboot = Reboot(tmp_path, 0)
    await reboot.clock.run_for(3)
    reboot.waits.wake(UNIT, "agent-gone")
    (reset_at,) = await reboot.end_after(100)
    assert 90 <= reset_at < 100
