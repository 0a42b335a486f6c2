"""The lock on a shutdown of the host, against a real D-Bus daemon and a double of logind."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from kubeletx.api import Unavailable
from kubeletx.node.logind import Logind
from kubeletx_testing.lab.logind import PrivateLogind

# script/setup installs it; unit tests also run where that was never called. In CI it must be there.
pytestmark = pytest.mark.skipif(
    shutil.which("dbus-daemon") is None and not os.environ.get("CI"), reason="there is no dbus-daemon here"
)


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PrivateLogind]:
    with PrivateLogind(tmp_path) as one:
        monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", one.address)
        yield one


async def test_a_lock_holds_the_shutdown_back_until_it_is_released(host: PrivateLogind) -> None:
    lock = Logind(asyncio.to_thread, conf_dir=host.conf_dir)
    assert await lock.open(3) is False
    host.said("locked shutdown kubeletx delay")
    host.tell("begin")
    assert await asyncio.wait_for(lock.next(), 60) is True
    host.tell("wait")
    lock.release()
    await asyncio.to_thread(host.said, "released")
    host.tell("cancel")
    assert await asyncio.wait_for(lock.next(), 60) is False
    await lock.hold()
    host.said("locked shutdown kubeletx delay")
    lock.close()
    assert list(host.conf_dir.iterdir()) == []


async def test_logind_is_made_to_wait_as_long_as_pods_may_take(
    host: PrivateLogind, capsys: pytest.CaptureFixture[str]
) -> None:
    lock = Logind(asyncio.to_thread, conf_dir=host.conf_dir)
    await lock.open(90)
    assert "InhibitDelayMaxSec=90\n" in (host.conf_dir / "99-kubeletx.conf").read_text()
    assert "for less time" not in capsys.readouterr().out
    lock.close()
    lock = Logind(asyncio.to_thread, conf_dir=host.conf_dir / "99-kubeletx.conf" / "no directory")
    await lock.open(120)
    assert "wanted_seconds=120" in capsys.readouterr().out
    lock.close()


async def test_a_shutdown_that_has_begun_is_seen_at_once(host: PrivateLogind) -> None:
    host.tell("begin")
    host.tell("wait")
    host.said("released")
    lock = Logind(asyncio.to_thread, conf_dir=host.conf_dir)
    assert await lock.open(1) is True
    lock.close()


async def test_a_bus_that_goes_away_is_reported(host: PrivateLogind) -> None:
    lock = Logind(asyncio.to_thread, conf_dir=host.conf_dir)
    await lock.open(1)
    host.bus.kill()
    with pytest.raises(Unavailable, match="lost the system bus"):
        await asyncio.wait_for(lock.next(), 60)
    lock.close()
    with pytest.raises(Unavailable, match="systemd-logind"):
        await lock.open(1)


async def test_a_bus_without_logind_is_reported(host: PrivateLogind) -> None:
    host.logind.kill()
    host.logind.wait()
    lock = Logind(asyncio.to_thread, conf_dir=host.conf_dir)
    with pytest.raises(Unavailable, match="ServiceUnknown"):
        await lock.open(1)
    lock.close()
