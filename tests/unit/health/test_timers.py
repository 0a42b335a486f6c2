"""Timers, window, vault and slots: the cases of the first implementation's own tests, at their seconds."""

from __future__ import annotations

from pathlib import Path

import pytest

from kubeletx.health.config import HealthSettings
from kubeletx.health.contact import Contact, ContactReport, merge
from kubeletx.health.model import Begin, BootReason, Reach, SetSlot, Slot, SlotState, SlotTable
from kubeletx.health.topics import (
    NODE_AGENT,
    NODE_AGENT_STATUS,
    ZBOOT_CONFIG,
    ZBOOT_STATUS,
    NodeAgentStatus,
    ZbootConfig,
    ZbootStatus,
    find,
    path_of,
)
from kubeletx.health.validation import (
    Facts,
    Phase,
    Validation,
    Vault,
    remaining_seconds,
    validate,
    vault_is_locked,
)
from tests.unit.health.trial import SHORT, Trial

ACTIVE, INPROGRESS, UNUSED = SlotState.ACTIVE, SlotState.INPROGRESS, SlotState.UNUSED
DEFAULTS = HealthSettings()
FALLBACK = DEFAULTS.number("timer.update.fallback.no.network")
RESET = DEFAULTS.number("timer.reboot.no.network")
WINDOW = DEFAULTS.number("timer.test.baseimage.update")
CUTOFF = DEFAULTS.number("timer.vault.ready.cutoff")


def slots(running: SlotState, other: SlotState = UNUSED) -> SlotTable:
    return SlotTable((Slot("IMGA", running), Slot("IMGB", other)), "IMGA")


UPGRADE, NORMAL = slots(INPROGRESS, ACTIVE), slots(ACTIVE)


def reasons(state: Validation, facts: Facts) -> list[BootReason]:
    """Return the reasons of the reboots of one tick."""
    return [effect.boot_reason for effect in validate(state, facts, DEFAULTS)[1] if isinstance(effect, Begin)]


@pytest.mark.parametrize(
    ("table", "silent", "expected"),
    [
        (NORMAL, FALLBACK + 100, []),
        (UPGRADE, FALLBACK // 2, []),
        (UPGRADE, FALLBACK, []),
        (UPGRADE, FALLBACK + 100, [BootReason.FALLBACK]),
        (NORMAL, RESET // 2, []),
        (NORMAL, RESET, []),
        (NORMAL, RESET + 1, [BootReason.DISCONNECT]),
        (None, RESET + 1, [BootReason.DISCONNECT]),
        (UPGRADE, RESET + 1, [BootReason.FALLBACK]),
        (NORMAL, 0, []),
        (None, 0, []),
    ],
)
def test_a_lost_controller_reboots_at_its_limit(
    table: SlotTable | None, silent: int, expected: list[BootReason]
) -> None:
    contact = Contact(reach=Reach.FAIL, last=1000, successes=1)
    assert reasons(Validation(), Facts(now=1000 + silent, table=table, contact=contact)) == expected
    busy = Facts(now=1000 + silent, table=table, contact=contact, is_busy=True)
    assert reasons(Validation(), busy) == []


@pytest.mark.parametrize(
    ("table", "seconds", "expected", "locked"),
    [
        (UPGRADE, CUTOFF // 2, [], False),
        (UPGRADE, CUTOFF, [], False),
        (UPGRADE, CUTOFF + 1, [BootReason.VAULT_FAILURE], True),
        (NORMAL, CUTOFF + 1, [], True),
    ],
)
def test_a_closed_vault_counts_from_the_first_contact_on(
    table: SlotTable, seconds: int, expected: list[BootReason], locked: bool
) -> None:
    """It is reported at second 42, and the first contact comes at 200."""
    state = Validation()
    for now, successes in ((42, 0), (190, 0), (200, 1)):
        contact = Contact(reach=Reach.SUCCESS, last=now, successes=successes)
        facts = Facts(now=now, table=table, vault=Vault.ERROR, contact=contact)
        state, _ = validate(state, facts, DEFAULTS)
        assert state.vault_failed_since == (200 if successes else None)
    end = 200 + seconds
    contact = Contact(reach=Reach.SUCCESS, last=end, successes=1)
    facts = Facts(now=end, table=table, vault=Vault.ERROR, contact=contact)
    assert reasons(state, facts) == expected
    assert vault_is_locked(state, end, DEFAULTS) is locked


def test_a_vault_that_fails_at_second_0_counts_from_there() -> None:
    """Defect 10."""
    state = Validation()
    for now in (0, 10, 310):
        contact = Contact(reach=Reach.SUCCESS, last=now, successes=1)
        state, _ = validate(
            state, Facts(now=now, table=UPGRADE, vault=Vault.ERROR, contact=contact), DEFAULTS
        )
        assert state.vault_failed_since == 0
    assert vault_is_locked(state, 310, DEFAULTS)


@pytest.mark.parametrize(
    ("table", "counted", "commits", "remaining"),
    [
        (NORMAL, 0, False, 0),
        (UPGRADE, WINDOW // 2 - 10, False, WINDOW // 2),
        (UPGRADE, WINDOW - 10, True, 0),
    ],
)
def test_the_window_ends_with_a_commit(table: SlotTable, counted: int, commits: bool, remaining: int) -> None:
    phase = Phase.TESTING if table is UPGRADE else Phase.NORMAL
    contact = Contact(reach=Reach.SUCCESS, last=1000, successes=1, last_success=1000)
    facts = Facts(now=1000, table=table, contact=contact)
    state, effects = validate(Validation(phase=phase, counted=counted), facts, DEFAULTS)
    assert (SetSlot("IMGA", ACTIVE) in effects) is commits
    assert (state.commit, remaining_seconds(state, DEFAULTS)) == ("IMGA" if commits else "", remaining)


@pytest.mark.parametrize(
    ("reach", "now", "last", "successes"),
    [
        (Reach.SUCCESS, 100, 100, 1),
        (Reach.TEMPORARY_FAIL, 300, 300, 0),
        (Reach.FAIL, 300, 50, 0),
        (Reach.READ_SAVED, 300, 50, 0),
    ],
)
def test_words_of_the_controller(reach: Reach, now: int, last: int, successes: int) -> None:
    reports = {"zedagent": ContactReport(reach, now, successes)}
    contact = merge(Contact(reach=Reach.FAIL, last=50), reports, now, 180)
    assert (contact.last, contact.successes, contact.reach) == (last, successes, reach)


def test_trouble_of_the_controller_leaves_the_test_armed() -> None:
    contact = Contact(reach=Reach.TEMPORARY_FAIL, last=300, successes=1)
    facts = Facts(now=300, table=UPGRADE, contact=contact)
    state, effects = validate(Validation(phase=Phase.TESTING, counted=200), facts, DEFAULTS)
    assert (state.phase, state.counted, effects) == (Phase.TESTING, 0, ())


def test_an_image_that_another_program_writes_is_booted_once(tmp_path: Path) -> None:
    node = Trial(tmp_path, SHORT)
    node.tick(20)
    assert node.guardian.now == 20
    node.set_slots("active", "updating")
    node.until_reboot()
    node.tick(300)
    assert [line["bootReason"] for line in node.reboots] == ["Update"]
    assert node.states == ("unused", "active", "IMGB")


def test_a_commit_of_another_program_ends_the_test(tmp_path: Path) -> None:
    node = Trial(tmp_path)
    node.set_slots("active", "inprogress", "IMGB")
    node.tick(20)
    assert node.status.update_inprogress
    node.set_slots("unused", "active", "IMGB")
    node.tick()
    assert (node.status.update_inprogress, node.status.remaining_test_time) == (False, 0)
    node.tick(100)
    assert node.reboots == []


def test_both_slots_and_the_verdict_are_published(tmp_path: Path) -> None:
    node = Trial(tmp_path, SHORT)
    node.set_slots("active", "inprogress", "IMGB")
    completes = set()
    while node.states[1] != "active":
        node.tick()
        config = find(ZbootConfig, path_of(node.run, ZBOOT_CONFIG, "IMGB"))
        assert config is not None
        completes.add(config.test_complete)
    assert completes == {False, True}
    node.tick(20)
    published = [find(ZbootStatus, path_of(node.run, ZBOOT_STATUS, label)) for label in ("IMGA", "IMGB")]
    assert [
        (status.partition_state, status.current_partition, status.test_complete)
        for status in published
        if status
    ] == [("unused", False, False), ("active", True, False)]
    status = find(NodeAgentStatus, path_of(node.run, NODE_AGENT_STATUS, NODE_AGENT))
    assert status is not None
    assert (status.cur_part, status.update_inprogress) == ("IMGB", False)


def test_slots_that_cannot_be_read_are_not_published(tmp_path: Path) -> None:
    node = Trial(tmp_path)
    (tmp_path / "slots" / "current").write_text("IMGZ")
    node.tick(20)
    assert not (node.run / "baseosmgr").exists()
    assert sum("SlotsUnreadable" in line for line in node.lines) == 1


@pytest.mark.parametrize(
    ("key", "name", "reason"),
    [("other", "Other Vault", ()), ("app", "Application Data Store", ("VaultLockedUp",))],
)
def test_only_the_nodes_own_vault_counts(
    tmp_path: Path, key: str, name: str, reason: tuple[str, ...]
) -> None:
    node = Trial(tmp_path, {"timer.vault.ready.cutoff": 60})
    node.publish("vaultmgr", "VaultStatus", key, Name=name, Status=4)
    node.tick(100)
    assert node.status.local_maintenance_mode_reasons == reason
    node.publish("vaultmgr", "VaultStatus", key, Name=name, Status=3, ConversionComplete=True)
    node.tick()
    assert not node.status.local_maintenance_mode
