"""Upgrades on simulated slots: install, test, commit, fallback, and everything between."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kubeletx.health.model import BootReason
from kubeletx.health.reasons import BootRecord, ReasonFiles
from tests.unit.health.trial import SHORT, Trial

DONE = 70
"""Seconds from a request of a reboot to the reboot: 30 s, nothing to halt, 30 s, and a tick."""


@pytest.fixture
def node(tmp_path: Path) -> Trial:
    return Trial(tmp_path, SHORT)


def install(node: Trial) -> None:
    """Install an image and let the node boot it."""
    assert node.order("install", "IMGB").outcome == "accepted"
    node.until_reboot()
    assert node.states == ("active", "inprogress", "IMGB")


def test_an_image_that_stays_good_is_committed(node: Trial) -> None:
    install(node)
    node.tick(40)
    assert 0 < node.status.remaining_test_time < 60
    testing = node.status
    node.tick(50)
    assert node.states == ("unused", "active", "IMGB")
    assert (testing.update_inprogress, node.status.update_inprogress) == (True, False)
    assert [line["bootReason"] for line in node.reboots] == ["Update"]


def test_an_image_without_controller_falls_back(node: Trial) -> None:
    install(node)
    node.is_reached = False
    node.tick(60 + 180 + DONE + 30)
    assert node.states == ("active", "inprogress", "IMGA")
    assert [line["bootReason"] for line in node.reboots] == ["Update", "Fallback"]


def test_an_image_is_not_committed_unseen(node: Trial) -> None:
    node.is_reached = False
    node.order("install", "IMGB")
    node.tick(DONE + 10)
    node.tick(60)
    assert node.states == ("active", "inprogress", "IMGB")


def test_a_word_of_the_boot_before_does_not_count(node: Trial) -> None:
    """The file of the controller's agent lies below /run of a simulated node, which a reboot does not clear."""
    install(node)
    node.is_reached = False
    node.start()
    node.tick(50)
    assert node.status.remaining_test_time == 60


def test_a_lost_contact_pauses_the_window(node: Trial) -> None:
    install(node)
    node.tick(20)
    before = node.status.remaining_test_time
    node.publish("zedagent", "ZedAgentStatus", "zedagent", ConfigGetStatus=2)
    node.is_reached = False
    node.tick(30)
    assert node.status.remaining_test_time == before
    node.is_reached = True
    node.tick(before + 20)
    assert node.states == ("unused", "active", "IMGB")


def test_trouble_of_the_controller_restarts_the_window(node: Trial) -> None:
    install(node)
    node.tick(30)
    node.is_reached = False
    for _ in range(30):
        node.publish("zedagent", "ZedAgentStatus", "zedagent", ConfigGetStatus=3)
        node.tick(10)
    assert node.states == ("active", "inprogress", "IMGB")
    assert node.status.remaining_test_time == 60


@pytest.mark.parametrize(
    ("current", "states"),
    [("IMGB", ("unused", "active", "IMGB")), ("IMGA", ("active", "unused", "IMGA"))],
)
def test_two_active_images_are_repaired(node: Trial, current: str, states: tuple[str, str, str]) -> None:
    """A foreign program was cut between its two writes: the running image stays."""
    node.set_slots("active", "active", current)
    node.tick(20)
    assert node.states == states


def test_a_commit_that_was_cut_goes_on_though_the_loader_took_the_old_image(node: Trial) -> None:
    install(node)
    while node.states[1] != "active":
        node.tick(10)
    node.set_slots("active", "active", "IMGB")  # the second write is lost
    node.slots.reboot("power cut", BootReason.POWER_FAIL)
    node.start()
    assert node.states == ("active", "active", "IMGA")
    node.tick(200)
    assert node.states == ("unused", "active", "IMGB")


def test_requests_of_users_wait_for_the_verdict(node: Trial) -> None:
    install(node)
    node.tick(10)
    assert node.order("reboot").outcome == "deferred"
    node.tick(200)
    assert [line["bootReason"] for line in node.reboots] == ["Update", "RebootCmd"]
    assert node.states == ("unused", "active", "IMGB")


def test_a_failed_version_is_refused_until_a_retry(node: Trial) -> None:
    (node.base / "slots" / "IMGB.version").write_text("2.0")
    install(node)
    node.tick(10)
    assert node.order("mark-failed").outcome == "accepted"
    node.until_reboot()
    assert node.states == ("active", "inprogress", "IMGA")
    refused = node.order("install", "IMGB", version="2.0")
    assert (refused.outcome, "marked it failed" in refused.message) == ("refused", True)
    assert node.order("retry", "IMGB").outcome == "accepted"
    node.until_reboot()
    node.tick(100)
    assert node.states == ("unused", "active", "IMGB")


def test_an_update_is_cancelled_before_its_reboot(node: Trial) -> None:
    node.order("install", "IMGB")
    assert node.order("cancel", "IMGB").outcome == "accepted"
    node.tick(100)
    assert node.states == ("active", "unused", "IMGA")


@pytest.mark.parametrize("seconds", [10, 30])
def test_a_cancel_during_the_announcement_ends_without_a_reboot(node: Trial, seconds: int) -> None:
    node.order("install", "IMGB")
    node.tick(seconds)
    announced = node.status
    assert node.order("cancel", "IMGB").outcome == "accepted"
    node.tick()
    assert (announced.device_reboot, node.status.device_reboot) == (True, False)
    node.tick(600)
    assert (node.states, node.reboots) == (("active", "unused", "IMGA"), [])
    install(node)


def test_a_cancel_leaves_the_reboot_of_a_user_alone(node: Trial) -> None:
    node.order("install", "IMGB")
    node.order("reboot", reason="kernel parameters")
    node.tick(20)
    node.order("cancel", "IMGB")
    node.until_reboot()
    assert node.reboots[0]["reason"] == "kernel parameters"


def test_a_deferred_install_survives_a_reboot(node: Trial) -> None:
    install(node)
    assert node.order("install", "IMGA").outcome == "deferred"
    shutil.rmtree(node.run)  # as a reboot clears /run
    node.slots.reboot("power cut", BootReason.NONE)  # the loader takes the old image
    node.set_slots("active", "inprogress", "IMGB")
    node.start()
    node.until_reboot()
    assert node.states == ("inprogress", "active", "IMGA")


def test_a_required_check_without_an_answer_fails(tmp_path: Path) -> None:
    check = {"kind": "plugin", "check": "cam", "name": "cam", "level": "required"}
    node = Trial(tmp_path, {**SHORT, "timer.update.fallback.failed.checks": 60}, checks=[check])
    install(node)
    node.tick(90)
    assert len(node.reboots) == 1
    node.tick(60 + DONE + 10)
    assert [line["bootReason"] for line in node.reboots] == ["Update", "Fallback"]
    assert "falls back: cam: kubeletx" in node.reboots[1]["reason"]


def test_an_install_during_a_test_is_deferred(node: Trial) -> None:
    install(node)
    assert node.order("install", "IMGA").outcome == "deferred"
    node.until_reboot()
    assert node.states == ("inprogress", "active", "IMGA")


def test_a_forced_fallback_goes_to_the_unused_image(node: Trial) -> None:
    assert node.order("force-fallback", "IMGB").outcome == "accepted"
    node.tick(DONE + 10)
    assert node.states == ("active", "inprogress", "IMGB")


def test_the_reset_timer_reboots_once(tmp_path: Path) -> None:
    node = Trial(tmp_path, {"timer.reboot.no.network": 120})
    node.tick(50)
    node.is_reached = False
    node.tick(180 + 120 + DONE + 30)
    assert [line["bootReason"] for line in node.reboots] == ["Disconnect"]


def test_an_image_that_ends_before_its_guardian_runs_has_failed_for_its_own_reason(node: Trial) -> None:
    """The reason "Update" that the old image stored is not that of the boot after the new one."""
    (node.base / "slots" / "IMGB.version").write_text("2")
    for name in ("SMART_details.json", "SMART_details_previous.json"):
        (node.persist / name).write_text('{"power_cycle_count": 5}')
    node.tick()
    ReasonFiles(node.persist).write(
        BootRecord(boot_reason=BootReason.UPDATE, reason="IMGB is booted", image="IMGA")
    )
    node.slots.reboot("panic", BootReason.NONE)
    node.set_slots("active", "inprogress")
    node.start()
    node.tick(20)
    assert node.status.boot_reason == BootReason.KERNEL
    assert node.status.reboot_reason.startswith("IMGB ended before it was tested: the node was reset")
    assert sum(line.startswith("UpgradeFailed") for line in node.lines) == 1
    (newest, image), (first, _) = node.boots
    assert (newest, image) == (f"Kernel: {node.status.reboot_reason}", "IMGB")
    assert first.startswith("First: ")
    assert node.order("install", "IMGB", version="2").outcome == "refused"
    (node.base / "slots" / "IMGB.version").write_text("3")
    node.start()
    node.tick()
    assert node.status.boot_reason == BootReason.KERNEL
    assert node.order("install", "IMGB", version="3").outcome == "accepted"
