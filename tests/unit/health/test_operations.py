"""Reboot, shutdown and poweroff: commands, their order, and the steps to the end. Cases of the first implementation's tests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kubeletx.health.guardian import Guardian
from kubeletx.health.machine import MachineEffects, SystemdMachine, TopicMachine
from kubeletx.health.model import Begin, BootReason, OperationKind
from kubeletx.health.operations import ANNOUNCE_SECONDS, HALT_SECONDS, SETTLE_SECONDS, advance, begin
from kubeletx.health.requests.ending import Exit
from tests.unit.health.trial import SHORT, Trial

REASONS = {"reboot": "RebootCmd", "poweroff": "PoweroffCmd"}


class CommandTrial(Trial):
    """A node whose controller publishes commands before each tick."""

    commands: tuple[str, ...] = ()
    """Of Reboot, Shutdown and Poweroff."""

    def tick(self, seconds: int = 10) -> None:
        self.is_reached = False
        for _ in range(seconds // 10):
            fields: dict[str, object] = {f"{name}Cmd": True for name in self.commands}
            fields |= {"ConfigGetStatus": 1, "RequestedRebootReason": "the controller wants it"}
            self.publish("zedagent", "ZedAgentStatus", "zedagent", **fields)
            super().tick()

    @property
    def flags(self) -> tuple[bool, bool, bool]:
        status = self.status
        return status.device_reboot, status.device_shutdown, status.device_poweroff


@pytest.fixture
def node(tmp_path: Path) -> CommandTrial:
    return CommandTrial(tmp_path, SHORT)


@pytest.mark.parametrize(
    ("commands", "flags"),
    [
        ((), (False, False, False)),
        (("Reboot",), (True, False, False)),
        (("Shutdown",), (False, True, False)),
        (("Poweroff",), (False, False, True)),
        (("Reboot", "Poweroff"), (False, False, True)),  # the stronger one, in one tick
        (("Reboot", "Shutdown"), (False, True, False)),
    ],
)
def test_commands_of_the_controller_begin_operations(
    node: CommandTrial, commands: tuple[str, ...], flags: tuple[bool, bool, bool]
) -> None:
    node.commands = commands
    node.tick()
    assert node.flags == flags
    assert not commands or node.status.reboot_reason == "the controller wants it"


@pytest.mark.parametrize(("verb", "reason"), REASONS.items())
def test_a_command_that_stays_is_carried_out_once(node: CommandTrial, verb: str, reason: str) -> None:
    """The controller's agent repeats it, after the boot as well."""
    node.commands = (verb.capitalize(),)
    node.tick(50)
    assert sum(line.startswith("OperationBegins") for line in node.lines) == 1
    node.until_reboot()
    node.tick(20)
    node.start()
    node.tick(200)
    assert [line["bootReason"] for line in node.reboots] == [reason]
    node.commands = ()
    node.tick()
    node.commands = (verb.capitalize(),)
    node.until_reboot()
    assert [line["bootReason"] for line in node.reboots] == [reason, reason]


def test_a_shutdown_halts_and_leaves_the_machine_on(node: CommandTrial) -> None:
    node.order("shutdown")
    node.tick(1000)
    status = node.status
    assert (status.device_shutdown, status.all_domains_halted, node.reboots) == (True, True, [])
    assert not (node.persist / "boot-reason").exists()
    node.order("reboot")
    node.until_reboot()


def test_the_reason_is_stored_before_the_pods_end(node: CommandTrial) -> None:
    node.publish("domainmgr", "DomainStatus", "app1", Activated=True)
    node.order("reboot", reason="kernel parameters")
    node.tick(ANNOUNCE_SECONDS)
    assert not (node.persist / "boot-reason").exists()
    node.tick()
    assert (node.persist / "boot-reason").read_text() == "BootReasonRebootCmd\n"
    assert (node.persist / "reboot-reason").read_text() == "kernel parameters\n"
    assert not node.status.all_domains_halted


@pytest.mark.parametrize(
    ("domains", "halts"),
    [({}, True), ({"a": True}, False), ({"a": False, "b": False}, True), ({"a": True, "b": False}, False)],
)
def test_domains_are_waited_for_within_a_limit(
    node: CommandTrial, domains: dict[str, bool], halts: bool
) -> None:
    for name, is_activated in domains.items():
        node.publish("domainmgr", "DomainStatus", name, Activated=is_activated)
    node.order("reboot")
    node.tick(ANNOUNCE_SECONDS + 20)
    assert node.status.all_domains_halted is halts
    node.tick(SETTLE_SECONDS + 10)
    assert len(node.reboots) == halts
    node.tick(0 if halts else HALT_SECONDS)
    assert len(node.reboots) == 1


@pytest.mark.parametrize(
    ("first", "second", "outcome", "reason"),
    [
        ("reboot", "reboot", "accepted", "RebootCmd"),
        ("reboot", "poweroff", "accepted", "PoweroffCmd"),
        ("poweroff", "reboot", "refused", "PoweroffCmd"),
    ],
)
def test_two_orders_in_one_tick_end_in_one_operation(
    node: CommandTrial, first: str, second: str, outcome: str, reason: str
) -> None:
    node.tick(20)
    node.order(first)
    assert node.order(second).outcome == outcome
    node.start()  # killed after the answers
    node.until_reboot()
    node.tick(200)
    assert [line["bootReason"] for line in node.reboots] == [reason]


def test_a_different_order_is_refused_while_one_is_under_way(node: CommandTrial) -> None:
    node.order("reboot", reason="first")
    node.tick()
    refused = node.order("poweroff")
    assert (refused.outcome, refused.message) == ("refused", "a reboot is under way: first")
    assert node.order("reboot").message == "reboot is under way"


def asked_to_reboot(base: Path, machine: MachineEffects, lines: list[str]) -> Trial:
    """A node on this machine, in the tick in which the machine was asked to reboot."""
    node = Trial(base)

    def report(reason: str, message: str) -> None:
        lines.append(f"{reason}: {message}")

    node.guardian = Guardian(
        node.run, node.persist, None, machine, node.settings, boot="1", report=report, report_event=report
    )
    node.order("reboot")
    node.tick(ANNOUNCE_SECONDS + SETTLE_SECONDS + 20)
    return node


def test_another_agent_carries_the_reboot_out(tmp_path: Path) -> None:
    """With section backend: topic, NodeAgentStatus asks for it; the watchdog resets a machine that stays."""
    lines = list[str]()
    node = asked_to_reboot(tmp_path, TopicMachine(lines.append), [])
    assert (node.status.device_reboot, node.status.all_domains_halted) == (True, True)
    assert len(lines) == 1
    with pytest.raises(Exit):
        node.tick(200)


def test_a_service_manager_that_hangs_does_not_end_the_guardian_before_its_backstop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "systemctl").write_text("#!/bin/sh\nexec sleep 600\n")
    (tmp_path / "systemctl").chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    lines = list[str]()
    node = asked_to_reboot(tmp_path, SystemdMachine(0.2), lines)
    assert [line for line in lines if line.startswith("CannotAct")] == [
        "CannotAct: reboot: systemctl did not end within 0.2 s, and was stopped with SIGKILL"
    ]
    node.tick(110)
    with pytest.raises(Exit):
        node.tick(10)


@pytest.mark.parametrize("kind", OperationKind)
def test_all_steps_come_at_their_time(kind: OperationKind) -> None:
    request = Begin(kind=kind, boot_reason=BootReason.REBOOT_CMD, reason="r")
    operation, _ = begin(None, request, 0, must_wait=True)
    assert operation is not None
    steps = {}
    for now in range(0, 1000, 10):
        step = operation.step
        operation, deeds = advance(operation, now, is_held=now < 50, all_halted=now >= 90)
        if operation.step is not step:
            steps[now] = (str(operation.step), *map(str, deeds))
    writes = () if kind is OperationKind.SHUTDOWN else ("write the reason",)
    start = {50: ("Announced",), 80: ("Halting", *writes, "end all pods")}
    if kind is OperationKind.SHUTDOWN:
        assert steps == {**start, 90: ("Halted", "sync")}
    else:
        assert steps == {
            **start,
            90: ("Settling", "sync"),
            120: ("Acting", "sync", "reboot or power off"),
            240: ("Late", "exit"),
        }
