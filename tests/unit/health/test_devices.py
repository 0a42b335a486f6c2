"""The hardware watchdog on a file and on simulated ioctls, lights in a directory, and the messages to systemd."""

from __future__ import annotations

import errno
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kubeletx.health.client import touch
from kubeletx.health.devices.hardware import HardwareWatchdog
from kubeletx.health.devices.leds import LedMeaning, blinks, pattern_of
from kubeletx.health.loop import showing_life
from kubeletx.health.model import Reach
from kubeletx.health.reasons import ReasonFiles, deduce
from kubeletx.health.topics import HealthStatus
from kubeletx_testing.waiting import block_until
from tests.unit.health.trial import Trial

HEAVY = {
    "asyncio",
    "grpc",
    "kubeletx.api",
    "kubeletx.api.host",
    "lzma",
    "sqlalchemy",
    "ssl",
    "structlog",
    "inspect",
}
"""Modules that cost too much memory and time for a guardian at rest."""
SET_TIMEOUT = 0xC0045706


class Hardware:
    """A driver that sets any time-out up to `most`, and the watchdog on it."""

    def __init__(self, base: Path) -> None:
        self.device, self.sysfs, self.persist = base / "watchdog", base / "sys", base / "persist"
        self.most, self.boot_status, self.options = 600, 0, 0x8180
        self.lines: list[str] = []
        self.watchdogs: list[HardwareWatchdog] = []
        self.device.touch()

    def ioctl(self, descriptor: int, request: int, data: bytes) -> bytes:
        match request:
            case 0x80285700:
                return self.options.to_bytes(4, "little") + data[4:]
            case 0x80045702:
                return self.boot_status.to_bytes(4, "little")
        assert request == SET_TIMEOUT
        return min(self.most, int.from_bytes(data, "little")).to_bytes(4, "little")

    def watchdog(self, tick_seconds: float = 10, **section: Any) -> HardwareWatchdog:
        section = {"device": str(self.device), **section}
        watchdog = HardwareWatchdog(
            section, tick_seconds, self.lines.append, sysfs=self.sysfs, ioctl=self.ioctl
        )
        self.watchdogs.append(watchdog)
        return watchdog


@pytest.fixture
def hardware(tmp_path: Path) -> Iterator[Hardware]:
    made = Hardware(tmp_path)
    yield made
    for watchdog in made.watchdogs:
        watchdog.close()


def test_the_device_is_fed_after_each_tick_and_stopped_by_the_magic_letter(hardware: Hardware) -> None:
    watchdog = hardware.watchdog()
    watchdog.feed()
    watchdog.feed()
    watchdog.close()
    watchdog.feed()
    assert (hardware.device.read_bytes(), hardware.lines) == (b"\0\0V", [])


def test_without_a_device_in_the_configuration_none_is_touched(hardware: Hardware) -> None:
    watchdog = hardware.watchdog(device="")
    watchdog.keep_boot_status(hardware.persist)
    watchdog.feed()
    watchdog.close()
    assert (hardware.device.read_bytes(), hardware.persist.exists()) == (b"", False)


@pytest.mark.parametrize(
    ("most", "options", "tick", "line"),
    [
        (30, 0x8180, 10, "60 s cannot be set; 30 s counts"),
        (100, 0x8180, 60, "180 s cannot be set; 100 s counts"),
        (600, 0x8080, 10, "has no magic close"),
    ],
)
def test_limits_of_the_device_are_told(
    hardware: Hardware, most: int, options: int, tick: int, line: str
) -> None:
    hardware.most, hardware.options = most, options
    hardware.watchdog(tick).feed()
    assert [line in found for found in hardware.lines] == [True]


def test_a_device_that_appears_later_is_opened_then(hardware: Hardware) -> None:
    hardware.device.unlink()
    watchdog = hardware.watchdog()
    watchdog.feed()
    assert hardware.lines == [f"{hardware.device}: No such file or directory"]
    hardware.device.touch()
    watchdog.feed()
    assert hardware.device.read_bytes() == b"\0"


def test_a_device_that_another_program_feeds_is_named(
    hardware: Hardware, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel lets one program open a watchdog."""

    def busy(path: str, flags: int, *rest: int) -> int:
        raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), path)

    watchdog = hardware.watchdog()
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", busy)
        watchdog.feed()
    owned = "another program feeds it, such as systemd with RuntimeWatchdogSec="
    assert hardware.lines == [f"{hardware.device}: {owned}"]
    watchdog.feed()
    assert hardware.device.read_bytes() == b"\0", "it is free again"


@pytest.mark.parametrize("section", [{"device": 5}, {"divice": "/dev/watchdog"}, {"timeout": "long"}])
def test_a_bad_section_uses_no_device(hardware: Hardware, section: dict[str, Any]) -> None:
    hardware.watchdog(**section).feed()
    assert (len(hardware.lines), hardware.device.read_bytes()) == (1, b"")


@pytest.mark.parametrize("by_sysfs", [True, False])
def test_a_reset_by_the_hardware_is_the_reason_of_one_boot(hardware: Hardware, by_sysfs: bool) -> None:
    hardware.boot_status = 0x21
    if by_sysfs:
        (hardware.sysfs / "watchdog0").mkdir(parents=True)
        (hardware.sysfs / "watchdog0" / "bootstatus").write_text("33\n")
    hardware.watchdog().keep_boot_status(hardware.persist)
    assert (hardware.persist / "hw_watchdog_bootstatus").read_text() == "OVERHEAT\nCARDRESET\n"
    files = ReasonFiles(hardware.persist)
    assert deduce(files.evidence(is_new=False))[0].text == "HWWatchdog"
    hardware.watchdogs[0].close()
    hardware.boot_status = 0
    (hardware.sysfs / "watchdog0" / "bootstatus").unlink(missing_ok=True)
    hardware.watchdog().keep_boot_status(hardware.persist)
    assert deduce(files.evidence(is_new=False))[0].text == "Unknown"


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
def test_a_guardian_that_is_ended_stops_the_timer_and_one_that_is_killed_does_not(
    tmp_path: Path, end: signal.Signals
) -> None:
    device, config = tmp_path / "watchdog", tmp_path / "health.yaml"
    device.touch()
    config.write_text(
        f"watchdog: {{device: {device}}}\nchecks: [{{kind: command, command: [touch, {tmp_path}/ran]}}]"
    )
    argv = [
        sys.executable,
        "-X",
        "importtime",
        "-m",
        "kubeletx.health",
        "--tick",
        "20ms",
        "--config",
        str(config),
    ]
    places = ["--run-dir", str(tmp_path / "run"), "--persist-dir", str(tmp_path / "persist")]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager, (tmp_path / "log").open("w") as log:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(60)
        with subprocess.Popen(
            [*argv, *places],
            env={**os.environ, "NOTIFY_SOCKET": str(tmp_path / "notify")},
            stdin=subprocess.DEVNULL,
            stderr=log,
            start_new_session=True,
        ) as guardian:
            try:
                assert {manager.recv(100) for _ in range(3)} == {b"READY=1\nWATCHDOG=1"}
                block_until((tmp_path / "ran").exists)
                guardian.send_signal(end)
                guardian.wait(60)
            finally:
                guardian.kill()
    imported = set((tmp_path / "log").read_text().split())
    assert "kubeletx.health.guardian" in imported
    assert imported & HEAVY == set()
    fed = device.read_bytes()
    assert len(fed) >= 3
    assert (guardian.returncode, fed[-1:]) in ((0, b"V"), (-signal.SIGKILL, b"\0"))


SLOW_DISK = """
import os, sys, time
from kubeletx.health.main import main
flush, device = os.fsync, sys.argv[1]
def slow(descriptor):
    enough = os.stat(device).st_size + 9
    is_slow = os.readlink(f"/proc/self/fd/{descriptor}").endswith("/.history.new")
    while is_slow and os.stat(device).st_size < enough:
        time.sleep(0.005)
    flush(descriptor)
os.fsync = slow
sys.exit(main(sys.argv[2:]))
"""


def test_a_disk_that_is_slow_for_90_s_does_not_reset_the_node(tmp_path: Path) -> None:
    """An entry of the history is written until the device was fed nine times. A tick of 10 ms counts as 10 s."""
    device, config, log = tmp_path / "watchdog", tmp_path / "health.yaml", tmp_path / "log"
    device.touch()
    touch("cam", tmp_path / "run")
    config.write_text(f"watchdog: {{device: {device}}}")
    places = ["--run-dir", str(tmp_path / "run"), "--persist-dir", str(tmp_path / "persist")]
    argv = [sys.executable, "-c", SLOW_DISK, str(device), "--tick=10ms", f"--config={config}", *places]
    with (
        log.open("w") as stderr,
        subprocess.Popen(argv, stdin=subprocess.DEVNULL, stderr=stderr, start_new_session=True) as guardian,
    ):
        try:
            block_until(lambda: "WatchdogHit" in log.read_text())
            guardian.terminate()
            assert guardian.wait(60) == 0
        finally:
            guardian.kill()
    assert device.read_bytes()[-1:] == b"V"


def test_a_disk_that_hangs_resets_the_node_after_300_s(
    hardware: Hardware, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node, watchdog = Trial(tmp_path), hardware.watchdog()
    touch("cam", node.run)
    node.tick(10 + 170)

    def is_over() -> bool:
        return not any(thread.name == "signs of life" for thread in threading.enumerate())

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: block_until(is_over))
        with showing_life(watchdog.feed, 0.001):
            node.tick()
    assert any(line.startswith("AgentSilent") for line in node.lines)
    assert hardware.device.read_bytes() == b"\0" * 30


def health(**fields: Any) -> HealthStatus:
    return HealthStatus(**{"contact": Reach.SUCCESS, **fields})


@pytest.mark.parametrize(
    ("fields", "shown"),
    [
        ({}, (1, True)),
        ({"operation": "reboot Announced", "remaining_test_time": 9}, (2, True)),
        ({"remaining_test_time": 9, "contact": Reach.FAIL}, (2, True)),
        ({"contact": Reach.FAIL}, (4, True)),
        ({"is_healthy": False}, (6, True)),
        ({"maintenance_mode": True}, (8, True)),
    ],
)
def test_the_status_light_has_a_pattern_for_each_condition(
    fields: dict[str, Any], shown: tuple[int, bool]
) -> None:
    pattern = pattern_of(LedMeaning.STATUS, health(**fields), 0)
    assert (len(pattern), pattern[0][0]) == shown


def test_other_lights_show_one_subject() -> None:
    lights = {meaning: pattern_of(meaning, health(is_healthy=False), 3) for meaning in LedMeaning}
    assert lights[LedMeaning.CONTACT] == lights[LedMeaning.PROBLEM] == ((True, 0),)
    assert lights[LedMeaning.BLINKER] == blinks(3)
    assert sum(is_on for is_on, _ in blinks(3)) == 3
    assert blinks(0) == ((False, 0),)


def light(base: Path, name: str, triggers: str) -> Path:
    led = base / "leds" / name
    led.mkdir(parents=True)
    (led / "trigger").write_text(triggers)
    (led / "max_brightness").write_text("255\n")
    return led


def is_lit(node: Trial, led: Path) -> bool:
    node.tick()
    return (led / "brightness").exists() and (led / "brightness").read_text() == "255"


def test_lights_follow_the_node(tmp_path: Path) -> None:
    fine = light(tmp_path, "fine", "[none] timer pattern")
    coarse = light(tmp_path, "coarse", "[none] timer")
    plain = light(tmp_path, "plain", "[none] mmc0")
    show = {"fine": "status", "coarse": "status", "plain": "contact", "absent": "status"}
    node = Trial(tmp_path, leds={"directory": str(tmp_path / "leds"), "show": show})
    node.is_reached = False
    node.tick()
    block_until(lambda: any(line.startswith("BadLed: leds.show.absent") for line in node.lines))
    assert (fine / "trigger").read_text() == "pattern"
    assert (fine / "pattern").read_text() == "255 200 255 0 0 200 0 0 255 200 255 0 0 1400 0 0"
    assert [(coarse / name).read_text() for name in ("trigger", "delay_on", "delay_off")] == [
        "timer",
        "200",
        "1400",
    ]
    assert (plain / "brightness").read_text() == "0"
    node.is_reached = True
    for led in (fine, plain):
        block_until(partial(is_lit, node, led))
    assert (fine / "trigger").read_text() == "none"


@pytest.mark.parametrize("section", ["on", {"show": {"a": "colour"}}, {"shows": {}}])
def test_a_bad_section_of_lights_is_told_once(tmp_path: Path, section: object) -> None:
    node = Trial(tmp_path, leds=section)
    node.tick(30)
    assert len([line for line in node.lines if line.startswith("BadLed")]) == 1
