"""Views of virtual machines: requests and answers on the admin socket, like those of `server.views`."""

from __future__ import annotations

from datetime import datetime

from ..views import View


class MachineOperation(View, frozen=True, kw_only=True):
    """Record of a reboot or a snapshot operation that was started on a machine.

    `outcome`: begun, done, failed, cancelled, or unknown: the call timed out, or the connection was lost.
    `ended_at` None: it has not ended.
    """

    verb: str
    detail: str = ""
    begun_at: datetime
    ended_at: datetime | None = None
    outcome: str
    message: str = ""


class MachineView(View, frozen=True, kw_only=True):
    """State of a pod's virtual machine, and what was requested for it.

    `power`: the requested power state (running, paused, suspended or off). `power_state`: the present one.
    `overrides`: the pod's powerSpec, if a request such as ``kubeletx vm stop`` overrides it; else empty.
    `problem`: reason of a pause that was not requested. `limits`: the requested limits. `granted`: the limits that
    the machine has. `operations`: the last reboots and snapshot operations, oldest first.
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
    """Request to change a machine's limits, as Kubernetes quantities; a limit of None stays unchanged."""

    cpu: str | None = None
    memory: str | None = None


class SnapshotRequest(View, frozen=True, kw_only=True):
    """Request to create a snapshot. `memory`: include the guest's memory."""

    name: str
    memory: bool = False


class SnapshotView(View, frozen=True, kw_only=True):
    """One snapshot of a machine. `current`: the machine's present state is based on this snapshot."""

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
    """Request to attach a network interface, with the fields of an item of the pod's ``spec.nics``."""

    name: str
    subnet_name: str | None = None
    port_id: str | None = None
    ip_address: str | None = None
    tag: str | None = None
    ipv6_enabled: bool | None = None
