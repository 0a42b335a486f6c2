"""Reboots that no one heard of are found by the guest's own name for its boot."""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kubeletx_libvirt.guest import Boots
from kubeletx_libvirt.guest.agent import AgentSilent, FileRefused
from kubeletx_libvirt.records import Records, Run
from msgspec.structs import replace

from kubeletx.testing import FakeHost
from plugins.libvirt.tests.guest.guest_double import UNIT, ToldAgent


class Guest:
    """A Linux whose boots have numbers."""

    def __init__(self, host: FakeHost) -> None:
        self.boot = 1
        self.error: Exception | None = None
        self.on_read: Callable[[], None] | None = None
        self.records = Records(host)
        self.boots = Boots(ToldAgent(host, self.answer), self.records, self.rebooted, patience_seconds=0)

    def answer(self, command: str, arguments: dict[str, Any]) -> Any:
        if self.error is not None:
            raise self.error
        if command == "guest-file-read":
            answer = {"buf-b64": base64.b64encode(b"boot-%d\n" % self.boot).decode()}
            if self.on_read is not None:
                self.on_read()
            return answer
        return 7 if command == "guest-file-open" else {}

    async def rebooted(self, unit_id: str) -> None:
        assert unit_id == UNIT
        run = self.records.run_of(UNIT)
        await self.records.save_run(UNIT, replace(run, restarts=run.restarts + 1, boot_id=""))

    async def look(self) -> tuple[int, str]:
        """Restarts and boot id after a look."""
        await self.boots.look(UNIT)
        run = self.records.run_of(UNIT)
        return run.restarts, run.boot_id


@pytest.fixture
async def guest(tmp_path: Path) -> Guest:
    guest = Guest(FakeHost(tmp_path))
    await guest.records.save_run(UNIT, Run(started_at_ns=1))
    return guest


async def test_another_boot_than_the_one_written_down_counts_once(guest: Guest) -> None:
    assert await guest.look() == (0, "boot-1")
    assert await guest.look() == (0, "boot-1")
    guest.boot = 4
    assert await guest.look() == (1, "boot-4")
    assert await guest.look() == (1, "boot-4")


async def test_a_reboot_that_was_heard_is_not_counted_again(guest: Guest) -> None:
    await guest.look()
    guest.boot = 2
    await guest.rebooted(UNIT)
    assert await guest.look() == (1, "boot-2")


async def test_an_answer_of_before_a_reboot_that_was_heard_meanwhile_is_dropped(guest: Guest) -> None:
    await guest.look()

    def reboot() -> None:
        guest.on_read, guest.boot = None, 2
        guest.records.runs[UNIT] = Run(started_at_ns=1, restarts=1)

    guest.on_read = reboot
    assert await guest.look() == (1, "boot-2"), "asked again, and not counted"


@pytest.mark.parametrize("error", [AgentSilent("not there"), FileRefused("no such file")])
async def test_a_guest_that_cannot_say_is_left_alone(guest: Guest, error: Exception) -> None:
    await guest.look()
    guest.boot, guest.error = 2, error
    assert await guest.look() == (0, "boot-1")
    await guest.boots.close()
