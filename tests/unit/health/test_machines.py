"""A state machine over upgrades: orders, lost controllers, power cuts and kills in any order."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from kubeletx.health.model import BootReason

from .kills import KillTrial
from .trial import SHORT

MEMORY = Path("/dev/shm")
ITEMS = {**SHORT, "timer.test.baseimage.update": 30}
QUIET_SECONDS = 500
"""Longer than all limits of ITEMS and an operation together."""


class UpgradeMachine(RuleBasedStateMachine):
    """`tried`: versions that were booted and not committed. `allowed`: a retry of the version was ordered."""

    def __init__(self) -> None:
        super().__init__()
        directory = MEMORY if MEMORY.is_dir() else None
        self.directory = tempfile.TemporaryDirectory(dir=directory, prefix="kubeletx-")
        self.node = KillTrial(Path(self.directory.name), ITEMS)
        self.node.slots.read()
        for label in ("IMGA", "IMGB"):
            (self.node.base / "slots" / f"{label}.version").write_text(f"version of {label}")
        self.node.start()
        self.seen, self.causes = 0, 0
        self.tried: set[str] = set()
        self.allowed: set[str] = set()
        self.was_reached = False

    def teardown(self) -> None:
        try:
            self.rest()
            a, b, current = self.node.states
            running, other = (a, b) if current == "IMGA" else (b, a)
            assert running == "active", self.node.lines
            assert other in {"unused", "inprogress"}, self.node.lines
            self.look()
        finally:
            self.directory.cleanup()

    def rest(self) -> None:
        """Let the controller be reached until nothing is under way."""
        self.node.is_reached = True
        self.pass_ticks(QUIET_SECONDS // 10)

    def pass_ticks(self, ticks: int) -> None:
        for _ in range(ticks):
            before = self.node.states
            self.was_reached |= self.node.is_reached
            self.node.tick()
            self.look()
            after = self.node.states
            if (
                before[2] == after[2]
                and "inprogress" in before
                and after.count("active") > before.count("active")
            ):
                assert self.was_reached, f"committed unseen: {self.node.lines}"

    def look(self) -> None:
        """Note the reboots since the last call."""
        for line in self.node.reboots[self.seen :]:
            self.seen += 1
            self.was_reached = False
            label = line["label"]
            a, b, _ = self.node.states
            if {"IMGA": a, "IMGB": b}[label] == "inprogress":
                assert label not in self.tried or label in self.allowed, (
                    f"{label} has failed: {self.node.lines}"
                )
                self.allowed.discard(label)
                self.tried.add(label)
        a, b, current = self.node.states
        if {"IMGA": a, "IMGB": b}[current] == "active":
            self.tried.discard(current)

    @rule(ticks=st.integers(1, 8), is_reached=st.booleans())
    def time_passes(self, ticks: int, is_reached: bool) -> None:
        self.node.is_reached = is_reached
        self.pass_ticks(ticks)

    @rule(change=st.integers(0, 60))
    def is_killed(self, change: int) -> None:
        self.node.kill_at(change)
        self.pass_ticks(3)

    @rule(verb=st.sampled_from(["install", "cancel", "retry", "force-fallback"]))
    def image_is_ordered(self, verb: str) -> None:
        label = "IMGB" if self.node.states[2] == "IMGA" else "IMGA"
        answer = self.node.order(verb, label)
        if verb in {"retry", "force-fallback"} and answer.outcome != "refused":
            self.allowed.add(label)
            self.causes += 1
        if verb == "install" and answer.outcome != "refused":
            self.causes += 1

    @rule(verb=st.sampled_from(["install", "cancel", "retry", "force-fallback"]), change=st.integers(0, 12))
    def is_killed_by_an_order(self, verb: str, change: int) -> None:
        label = "IMGB" if self.node.states[2] == "IMGA" else "IMGA"
        self.node.kill_at(change)
        self.node.send(verb, label)
        # It may be carried out, now or later.
        self.causes += verb != "cancel"
        if verb in {"retry", "force-fallback"}:
            self.allowed.add(label)

    @rule(verb=st.sampled_from(["reboot", "poweroff", "mark-failed", "mark-active"]))
    def end_is_ordered(self, verb: str) -> None:
        if self.node.order(verb).outcome != "refused":
            self.causes += 1
            self.was_reached |= verb == "mark-active"

    @rule()
    def power_is_cut(self) -> None:
        self.node.slots.reboot("power cut", BootReason.POWER_FAIL)
        self.causes += 1
        self.look()
        self.node.start()

    @invariant()
    def an_image_boots(self) -> None:
        states = self.node.states[:2]
        assert "active" in states, (states, self.node.lines)

    @invariant()
    def reboots_have_causes(self) -> None:
        # Each image that is booted once may fall back.
        assert len(self.node.reboots) <= 2 * self.causes + 1 + sum(
            "Disconnect" in line["bootReason"] for line in self.node.reboots
        )


UpgradeMachine.TestCase.settings = settings(
    max_examples=12,
    stateful_step_count=15,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
TestUpgrades = UpgradeMachine.TestCase
