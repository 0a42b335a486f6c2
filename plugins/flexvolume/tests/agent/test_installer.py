"""The driver in plugin directories while the agent runs."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from kubeletx_flexvolume.agent.installer import (
    CHECK_SECONDS,
    LAST_TOUCH_SECONDS,
    DriverInstaller,
    InstallPlace,
)
from kubeletx_flexvolume.agent.server import AgentServer
from kubeletx_flexvolume.agent.wire import SUCCESS, DriverRequest, reply

from kubeletx.api import Conflict, PermissionDenied
from kubeletx.testing import FakeClock


async def answer(_: DriverRequest, __: str) -> bytes:
    return reply(SUCCESS)


class Installed:
    """An installer with two plugin directories."""

    def __init__(self, tmp_path: Path) -> None:
        self.places = [InstallPlace(tmp_path / "one"), InstallPlace(tmp_path / "two")]
        self.server = AgentServer(answer)
        self.handshakes: dict[str, str] = {}
        self.clock = FakeClock()
        self.installer = DriverInstaller(
            self.places, server=self.server, handshakes=self.handshakes, clock=self.clock
        )


@pytest.fixture
async def one(tmp_path: Path) -> AsyncIterator[Installed]:
    made = Installed(tmp_path)
    yield made
    await made.server.close()


async def test_the_driver_is_installed_after_the_socket_listens(one: Installed) -> None:
    await one.installer.start()
    for place in one.places:
        assert place.executable.stat().st_mode & 0o777 == 0o755
        assert (place.socket_directory / "agent.sock").is_socket()


async def test_a_directory_that_cannot_be_written_does_not_stop_the_others(
    one: Installed, tmp_path: Path
) -> None:
    (tmp_path / "one").touch()
    await one.installer.start()
    assert one.places[1].executable.exists()
    first, second = one.installer.state()
    assert "Not a directory" in first["problem"]
    assert second["problem"] == ""


async def test_without_any_directory_the_start_is_refused(one: Installed, tmp_path: Path) -> None:
    (tmp_path / "one").touch()
    (tmp_path / "two").touch()
    with pytest.raises(PermissionDenied, match=r"no plugin directory: .*one.*two.*give --volume-plugin-dir"):
        await one.installer.start()


async def test_a_directory_of_another_agent_stops_the_start(one: Installed, tmp_path: Path) -> None:
    other = Installed(tmp_path)
    await one.installer.start()
    with pytest.raises(Conflict, match="another storage agent, PID"):
        await other.installer.start()
    await one.clock.settle()  # the first agent has served the connection that asked for its PID
    await other.server.close()


async def test_a_driver_that_was_removed_or_changed_is_installed_again(one: Installed) -> None:
    await one.installer.start()
    running = asyncio.create_task(one.installer.run(), name="installer")
    one.places[0].executable.unlink()
    one.places[1].executable.write_text("#!/bin/false")
    await one.clock.run_for(CHECK_SECONDS)
    assert one.places[0].executable.read_bytes() == one.places[1].executable.read_bytes()
    running.cancel()
    await asyncio.wait((running,))


async def test_the_driver_is_touched_until_a_kubelet_has_called_it(one: Installed) -> None:
    await one.installer.start()
    driver = one.places[0].executable
    touched = []
    for minute in range(1, 64):
        os.utime(driver, (0, 0))
        one.clock.advance(60)
        one.installer.check()
        touched += [minute] if driver.stat().st_mtime else []
    assert touched == [2, 6, 14, 30, 62]
    one.handshakes[str(one.places[0].plugin_directory)] = "0.1.0"
    before = driver.stat().st_mtime_ns
    one.clock.advance(LAST_TOUCH_SECONDS)
    one.installer.check()
    assert driver.stat().st_mtime_ns == before
    assert one.installer.state()[0]["handshake"] == "0.1.0"
