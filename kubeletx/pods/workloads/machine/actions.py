"""Actions for virtual machines: power changes, network interfaces, resizes. They extend `model.actions`."""

from __future__ import annotations

from typing import ClassVar

from kubeletx.api import UnitId
from kubeletx.kube.types.core import Nic

from ...model.actions import Action
from ...model.facts import ActionFailure, PodFacts
from .facts import machine_unit


class SetPower(Action, frozen=True, kw_only=True):
    """Change the power state of one machine. `step`: a value of `power.PowerStep`, such as ``pause``.

    `grace_seconds`: time for the guest to shut down; only for a switch-off, else 0.
    """

    name: str
    unit_id: UnitId
    step: str
    grace_seconds: int = 0
    subject: ClassVar[str] = "unit"
    doing: ClassVar[str] = "changing the power state of machine"

    @property
    def target(self) -> str:
        return self.step

    @property
    def ends_in_seconds(self) -> int | None:
        return self.grace_seconds or None

    def failure(self, facts: PodFacts) -> ActionFailure | None:
        return machine_unit(facts, self.name).power_failure


class ListNics(Action, frozen=True, kw_only=True):
    """Query the runtime for the network interfaces that the machine has."""

    name: str
    unit_id: UnitId
    cancellable: ClassVar[bool] = True
    subject: ClassVar[str] = "nics"


class AttachNic(Action, frozen=True, kw_only=True):
    """Attach network interface `nic` to the running machine."""

    name: str
    unit_id: UnitId
    nic: Nic
    subject: ClassVar[str] = "unit"
    doing: ClassVar[str] = "attaching an interface to machine"

    @property
    def target(self) -> str:
        return self.nic.name or ""

    def failure(self, facts: PodFacts) -> ActionFailure | None:
        return machine_unit(facts, self.name).nic_failure


class DetachNic(Action, frozen=True, kw_only=True):
    """Detach the network interface named `nic_name` from the running machine."""

    name: str
    unit_id: UnitId
    nic_name: str
    subject: ClassVar[str] = "unit"
    doing: ClassVar[str] = "detaching an interface from machine"

    @property
    def target(self) -> str:
        return self.nic_name

    def failure(self, facts: PodFacts) -> ActionFailure | None:
        return machine_unit(facts, self.name).nic_failure


class ResizeUnit(Action, frozen=True, kw_only=True):
    """Change the number of CPUs and the memory of a running machine.

    `size`: the new size as text, such as ``2000m/1073741824`` (see `hardware.size_key`).
    """

    name: str
    unit_id: UnitId
    size: str
    subject: ClassVar[str] = "unit"
    doing: ClassVar[str] = "resizing machine"

    def failure(self, facts: PodFacts) -> ActionFailure | None:
        return facts.unit(self.name).resize_failure
