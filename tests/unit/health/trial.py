"""A node with simulated slots whose guardian is ticked by hand: restarts, reboots, kills and other agents' topics."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from kubeletx.health.config import HealthSettings, merge
from kubeletx.health.guardian import Guardian
from kubeletx.health.machine import Rebooted, SimulatedMachine
from kubeletx.health.main import Log
from kubeletx.health.model import Order, OrderAnswer
from kubeletx.health.outbox import new_id
from kubeletx.health.slots.file import FileSlots
from kubeletx.health.topics import NodeAgentStatus

SHORT: Mapping[str, object] = {"timer.test.baseimage.update": 60, "timer.update.fallback.no.network": 60}
"""Items of a node with a short test window and a short fallback limit."""


def fail(line: str) -> None:
    """Function for settings that have to be valid."""
    raise AssertionError(line)


class Trial:
    """Directories of one node, and its guardian. A tick is 10 s; nothing waits."""

    slots_kind = FileSlots

    def __init__(self, base: Path, items: Mapping[str, object] = {}, **sections: Any) -> None:
        self.base, self.run, self.persist = base, base / "run", base / "persist"
        self.settings = merge(HealthSettings(sections=sections), items, fail)
        self.lines: list[str] = []
        """Lines that the guardian logged, as ``Reason: message``."""
        self.is_reached = True
        """The controller's agent reports success before each tick."""
        self.start()

    def start(self) -> None:
        """Start the guardian, after its process ended or was killed."""
        self.slots = self.slots_kind(self.base / "slots")
        machine = SimulatedMachine(self.lines.append, self.slots)

        log = Log(self.lines.append)
        self.guardian = Guardian(
            self.run,
            self.persist,
            self.slots,
            machine,
            self.settings,
            boot=str(self.slots.boots()),
            report=log,
            report_event=log.event,
        )

    def tick(self, seconds: int = 10) -> None:
        """Let so many seconds of ticks pass. After a reboot the next process has started, and the rest passes there."""
        for _ in range(seconds // 10):
            if self.is_reached:
                self.publish("zedagent", "ZedAgentStatus", "zedagent", ConfigGetStatus=1)
            self.guardian.inbox.reader.is_changed = True
            try:
                self.guardian.tick()
            except Rebooted:
                self.start()

    def until_reboot(self) -> None:
        """Let ticks pass until the node has rebooted; the next process has not ticked yet."""
        before = len(self.reboots)
        for _ in range(100):
            self.tick()
            if len(self.reboots) > before:
                return
        raise AssertionError(f"no reboot: {self.lines}")

    def publish(self, agent: str, topic: str, key: str, **fields: object) -> None:
        """Write a topic as another agent does."""
        path = self.run / agent / topic / f"{key}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_name(f".{key}.new")
        new.write_text(json.dumps(fields))
        new.replace(path)

    def order(self, verb: str, label: str = "", **fields: Any) -> OrderAnswer:
        """Send an order and return the guardian's answer."""
        order = Order(id=new_id(), verb=verb, label=label, **fields)
        own = self.run / "kubeletx-health"
        (own / "orders" / f"{order.id}.json").write_bytes(msgspec.json.encode(order))
        self.guardian.hurry()
        return msgspec.json.decode((own / "answers" / f"{order.id}.json").read_bytes(), type=OrderAnswer)

    def set_slots(self, a: str, b: str, current: str = "IMGA") -> None:
        """Write the slots as an installer or a loader would."""
        for name, word in (("IMGA.state", a), ("IMGB.state", b), ("current", current)):
            (self.base / "slots" / name).write_text(word)

    @property
    def states(self) -> tuple[str, str, str]:
        """States of both slots, and the running label."""
        table = self.slots.read()
        return (*(str(slot.state) for slot in table.slots), table.current_label)  # type: ignore[return-value] # two slots

    @property
    def reboots(self) -> list[dict[str, str]]:
        """Lines of the simulated reboots."""
        path = self.base / "slots" / "reboots"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    @property
    def boots(self) -> list[tuple[str, str]]:
        """Reason and image of the boots that the guardian published."""
        path = self.run / "nodeagent" / "HealthStatus" / "nodeagent.json"
        return [(one["Reason"], one["Image"]) for one in json.loads(path.read_text())["Boots"] if one["Time"]]

    @property
    def status(self) -> NodeAgentStatus:
        return self.guardian.status()
