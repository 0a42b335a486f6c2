"""Views of virtual machines: values on the admin socket. See `server.views`."""

from __future__ import annotations

from datetime import datetime

from ..views import View


class MachineOperation(View, frozen=True, kw_only=True):
    """A reboot, or a command on a snapshot, that was begun.

    `outcome`: begun, done, failed, cancelled or unknown.
    """

    verb: str
    detail: str = ""
    begun_at: datetime
    ended_at: datetime | None = None
    outcome: str
    message: str = ""


class MachineView(View, frozen=True, kw_only=True):
    """State of a virtual machine, and what was requested for it.

    `power`: the wanted state (running, paused, suspended or off). `overrides`: the powerSpec that a command
    overrides, empty if the spec decides. `power_state`: the present state. `problem`: reason of a pause that
    was not requested. `limits`: the requested limits; `granted`: those that it has. `operations`: the last
    ones, oldest first.
    """

    namespace: str
    name: str
    machine: str
    runtime: str
    power: str
    overrides: str = ""
    power_state: str = ""
    problem: str = ""
    limits: dict[str, str] = {}
    granted: dict[str, str] = {}
    operations: tuple[MachineOperation, ...] = ()


class MachineReboot(View, frozen=True, kw_only=True):
    """Request to reboot a machine."""

    delay_seconds: float = 0.0


class MachineSize(View, frozen=True, kw_only=True):
    """Request to resize a machine; a limit of None stays unchanged."""

    cpu: str | None = None
    memory: str | None = None


class SnapshotRequest(View, frozen=True, kw_only=True):
    """Request to create a snapshot. `memory`: include the guest's memory."""

    name: str
    memory: bool = False


class SnapshotView(View, frozen=True, kw_only=True):
    """One snapshot of a machine."""

    name: str
    created_at: datetime | None = None
    with_memory: bool = False
    current: bool = False
    parent: str = ""
    size_bytes: int | None = None


class NicView(View, frozen=True, kw_only=True):
    """One network interface of a machine.

    `state`: attached, attaching, detaching, or wanted (it does not exist yet).
    """

    name: str
    state: str
    mac: str = ""
    network: str = ""
    port_id: str = ""
    ips: tuple[str, ...] = ()
    message: str = ""


class NicRequest(View, frozen=True, kw_only=True):
    """Request to attach a network interface, with the fields of spec.nics."""

    name: str
    subnet_name: str | None = None
    port_id: str | None = None
    ip_address: str | None = None
    tag: str | None = None
    ipv6_enabled: bool | None = None
