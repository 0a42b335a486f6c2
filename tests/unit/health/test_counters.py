"""Counters and images of the controller: retry, forced fallback, cancel (transitions 12 to 14 of EVE)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kubeletx.health.model import SlotState
from kubeletx.health.slots import SlotsError
from kubeletx.health.slots.file import FileSlots
from tests.unit.health.trial import SHORT, Trial

IMAGE = "5d0767ee"
"""Key of the image that the controller wants."""


class Killed(BaseException):
    """The guardian was killed."""


class BrokenSlots(FileSlots):
    """Slots whose next write raises `problem`."""

    problem: BaseException | None = None

    def set_state(self, label: str, state: SlotState) -> None:
        if self.problem is not None:
            raise self.problem
        super().set_state(label, state)


class CounterTrial(Trial):
    """A node whose controller publishes its counters before each tick."""

    slots: BrokenSlots
    slots_kind = BrokenSlots
    fallback: int | None = None
    retry: int | None = None

    def tick(self, seconds: int = 10) -> None:
        for _ in range(seconds // 10):
            self.is_reached = self.fallback is None
            if self.fallback is not None:
                fields = {"ConfigGetStatus": 1, "ForceFallbackCounter": self.fallback}
                self.publish("zedagent", "ZedAgentStatus", "zedagent", **fields)
            if self.retry is not None:
                image = {"BaseOsVersion": "2.0", "Activate": True, "RetryUpdateCounter": self.retry}
                self.publish("zedagent", "BaseOsConfig", IMAGE, **image)
            super().tick()

    def item(self, value: int) -> None:
        """Set the item, as a user does."""
        assert self.order("config", values={"force.fallback.counter": str(value)}).outcome == "accepted"

    def controllers_item(self, value: int) -> None:
        items = {"force.fallback.counter": value}
        self.publish("zedagent", "ConfigItemValueMap", "global", GlobalSettings=items)

    def topic(self, value: int) -> None:
        self.fallback = value


@pytest.fixture
def node(tmp_path: Path) -> CounterTrial:
    node = CounterTrial(tmp_path, SHORT)
    for label, version in (("IMGA", "1.0"), ("IMGB", "2.0")):
        (tmp_path / "slots" / f"{label}.version").write_text(version)
    return node


@pytest.fixture
def failed(node: CounterTrial) -> CounterTrial:
    """A node on which version 2.0 has failed."""
    node.retry = 3
    node.set_slots("active", "inprogress", "IMGB")
    node.tick(20)
    node.order("mark-failed")
    node.start()  # killed after its answer
    node.until_reboot()
    node.tick(20)
    assert node.states == ("active", "inprogress", "IMGA")
    return node


SOURCES = pytest.mark.parametrize(
    "send", [CounterTrial.topic, CounterTrial.item, CounterTrial.controllers_item]
)


@SOURCES
def test_the_first_fallback_counter_is_stored_and_a_change_acts_once(
    node: CounterTrial, send: Callable[[CounterTrial, int], None]
) -> None:
    send(node, 5)
    node.tick(200)
    assert node.reboots == []
    send(node, 6)
    node.tick(20)
    assert node.states == ("active", "updating", "IMGA")
    node.tick(400)
    assert node.states == ("unused", "active", "IMGB")
    assert [line["bootReason"] for line in node.reboots] == ["Update"]


@SOURCES
def test_a_fallback_counter_that_cannot_act_stays_pending(
    node: CounterTrial, send: Callable[[CounterTrial, int], None]
) -> None:
    send(node, 5)
    node.tick(20)
    node.set_slots("inprogress", "active", "IMGA")
    send(node, 6)
    node.tick(30)
    assert node.states == ("inprogress", "active", "IMGA")
    node.until_reboot()  # after the commit
    assert node.states == ("active", "inprogress", "IMGB")


def test_one_number_from_two_sources_acts_once(node: CounterTrial) -> None:
    for number in (5, 6):
        node.topic(number)
        node.controllers_item(number)
        node.tick(600)
    assert [line["bootReason"] for line in node.reboots] == ["Update"]


def test_a_counter_that_is_killed_before_the_slot_is_written_acts_once(node: CounterTrial) -> None:
    node.topic(5)
    node.tick(20)
    node.topic(6)
    node.slots.problem = Killed()
    with pytest.raises(Killed):
        node.tick()
    assert node.states[1] == "unused"
    node.start()
    node.tick(600)
    assert [line["bootReason"] for line in node.reboots] == ["Update"]


def test_a_changed_retry_counter_boots_the_failed_image_once_more(failed: CounterTrial) -> None:
    failed.tick(100)
    assert len(failed.reboots) == 1
    failed.retry = 4
    failed.until_reboot()
    assert failed.states == ("active", "inprogress", "IMGB")
    failed.tick(200)
    assert failed.states == ("unused", "active", "IMGB")
    failed.retry = 5  # it is committed: there is nothing to retry
    failed.tick(200)
    assert len(failed.reboots) == 2


def test_a_retry_that_fails_again_is_not_repeated(failed: CounterTrial) -> None:
    failed.retry = 4
    failed.until_reboot()
    failed.tick(20)
    failed.order("mark-failed")
    failed.until_reboot()
    failed.tick(400)
    assert failed.states == ("active", "inprogress", "IMGA")
    assert len(failed.reboots) == 3


def test_the_retry_counter_of_another_version_does_nothing(failed: CounterTrial) -> None:
    (failed.base / "slots" / "IMGB.version").write_text("3.0")
    failed.retry = 4
    failed.tick(100)
    assert failed.states == ("active", "inprogress", "IMGA")


def test_a_retry_whose_write_a_reboot_has_overtaken_is_not_done(failed: CounterTrial) -> None:
    """The image may already have been booted again, and have failed again."""
    failed.slots.problem = Killed()
    with pytest.raises(Killed):
        failed.order("retry", "IMGB")
    with (failed.base / "slots" / "reboots").open("a") as lines:
        lines.write('{"bootReason": "PowerFail"}\n')
    failed.start()
    failed.tick(200)
    assert failed.states == ("active", "inprogress", "IMGA")


@pytest.mark.parametrize(("is_cancelled", "state"), [(False, "updating"), (True, "unused")])
def test_an_order_whose_slot_cannot_be_written_is_tried_until_it_is_written(
    node: CounterTrial, is_cancelled: bool, state: str
) -> None:
    node.slots.problem = SlotsError("IMGB.state: cannot be written: disk full")
    assert node.order("install", "IMGB").outcome == "accepted"
    node.tick(30)
    assert node.states[1] == "unused"
    if is_cancelled:
        assert node.order("cancel", "IMGB").outcome == "accepted"
    node.slots.problem = None
    node.tick()
    assert node.states[1] == state


def test_an_image_that_the_controller_removes_is_not_booted(node: CounterTrial) -> None:
    node.retry = 3
    node.tick(20)
    node.order("install", "IMGB")
    node.retry = None
    (node.run / "zedagent" / "BaseOsConfig" / f"{IMAGE}.json").unlink()
    node.tick(100)
    assert node.states == ("active", "unused", "IMGA")


def test_a_slot_with_another_version_is_not_booted(node: CounterTrial) -> None:
    answer = node.order("install", "IMGB", version="3.0")
    assert (answer.outcome, "has version 2.0, not 3.0" in answer.message) == ("refused", True)
    assert node.states[1] == "unused"


def activate(node: CounterTrial, version: str, *, is_on: bool = True) -> None:
    node.publish("zedagent", "BaseOsConfig", IMAGE, BaseOsVersion=version, Activate=is_on)


def test_an_image_that_the_controller_activates_is_booted_once_it_is_written(node: CounterTrial) -> None:
    activate(node, "3.0")
    node.tick(100)
    assert (node.states, node.reboots) == (("active", "unused", "IMGA"), [])
    (node.base / "slots" / "IMGB.version").write_text("3.0")
    node.until_reboot()
    node.tick(200)
    assert node.states == ("unused", "active", "IMGB")
    node.tick(600)
    assert len(node.reboots) == 1


def test_an_activated_image_that_went_back_is_not_booted_again(node: CounterTrial) -> None:
    activate(node, "2.0")
    node.until_reboot()
    node.tick(20)
    node.order("mark-failed")
    node.until_reboot()
    node.tick(20)
    node.set_slots("active", "unused")  # the failure is still known
    node.tick(200)
    activate(node, "2.0", is_on=False)
    node.tick(20)
    activate(node, "2.0")
    node.tick(200)
    assert (node.states, len(node.reboots)) == (("active", "unused", "IMGA"), 2)
    assert [line for line in node.lines if line.startswith("InstallRefused: 2.0 in IMGB has failed")]


def test_an_activated_image_that_a_user_cancels_stays_cancelled(node: CounterTrial) -> None:
    activate(node, "2.0")
    node.tick(20)
    node.order("cancel", "IMGB")
    node.start()
    node.tick(200)
    assert (node.states, node.reboots) == (("active", "unused", "IMGA"), [])
    activate(node, "2.0", is_on=False)
    node.tick()
    activate(node, "2.0")
    node.until_reboot()


def test_an_activated_image_waits_for_the_verdict_on_the_running_one(node: CounterTrial) -> None:
    node.set_slots("active", "inprogress", "IMGB")
    activate(node, "1.0")
    node.tick(60)
    assert node.states == ("active", "inprogress", "IMGB")
    node.until_reboot()
    assert node.states == ("inprogress", "active", "IMGA")
