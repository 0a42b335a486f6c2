"""Answers of the admin socket that only the sections of the node's page read; other fields are ignored."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final
from urllib.parse import quote

import msgspec

from kubeletx.api import Png, Table, Text
from kubeletx.kube.types.node import Node

from .values import Items, Session, Value


class Silence(msgspec.Struct, frozen=True):
    """A question that the agent does not answer: since when, in UTC, and why. Its last answer is kept."""

    since: datetime
    problem: str


class Image(Value, frozen=True, kw_only=True):
    """One image in one store. `used_by`: namespace/name of pods."""

    ref: str = ""
    tags: tuple[str, ...] = ()
    store: str = ""
    runtimes: tuple[str, ...] = ()
    size_bytes: int = 0
    used_by: tuple[str, ...] = ()
    pinned: bool = False
    pulled_by_us: bool = False


class Core(Value, frozen=True, kw_only=True):
    """One FornaxCore and the connection to it. `acknowledged`: revision of the last message that it answered."""

    address: str
    since: datetime | None = None
    role: str = ""
    connected: bool = False
    registered: bool = False
    acknowledged: int = 0
    queue: int = 0
    sent: dict[str, int] = {}
    received: int = 0
    refused: int = 0
    failures: int = 0
    problem: str = ""


class Fornax(Value, frozen=True, kw_only=True):
    """The node under its FornaxCores. `revision`: number of its last change."""

    identifier: str = ""
    state: str = ""
    revision: int = 0
    cores: tuple[Core, ...] = ()


class Registration(Value, frozen=True, kw_only=True):
    """One object that a plugin registered. `abandoned_calls`: calls that did not end in time and still run."""

    name: str
    hook: str = ""
    state: str = ""
    reason: str = ""
    abandoned_calls: dict[str, int] = {}


class PluginProcess(Value, frozen=True, kw_only=True):
    """One process of a plugin. `runtime` empty: it has everything that belongs to no runtime."""

    runtime: str = ""
    pid: int = 0
    memory_bytes: int = 0
    cpu_seconds: float = 0.0
    restarts: int = 0


class Plugin(Value, frozen=True, kw_only=True):
    """One plugin."""

    name: str
    version: str = ""
    state: str = ""
    reason: str = ""
    registrations: tuple[Registration, ...] = ()
    processes: tuple[PluginProcess, ...] = ()


class PanelItem(Value, frozen=True, kw_only=True):
    """One panel of a plugin, without its content."""

    name: str
    title: str = ""
    plugin: str = ""
    state: str = ""
    reason: str = ""


class _Topic(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    """Base of what the guardian publishes; see `kubeletx.health.topics`."""


class EdgeCheck(_Topic, frozen=True, kw_only=True):
    """One check of the guardian. `ok` None: no result yet."""

    name: str
    level: str = ""
    ok: bool | None = None
    message: str = ""


class EdgeHealth(_Topic, frozen=True, kw_only=True):
    """The guardian's verdict. `remaining_test_time` and `silent_seconds` in seconds."""

    phase: str = ""
    operation: str = ""
    operation_held_by: str = ""
    held_by: str = ""
    remaining_test_time: int = 0
    contact_source: str = ""
    silent_seconds: int = 0
    is_healthy: bool = True
    drain: str = ""
    checks: tuple[EdgeCheck, ...] = ()
    maintenance_mode: bool = False
    maintenance_reasons: tuple[str, ...] = ()


class EdgeNode(_Topic, frozen=True, kw_only=True):
    """The guardian's node. `reboot_reason`: of the last boot. `reboot_time`: RFC 3339, empty if unknown."""

    cur_part: str = ""
    reboot_reason: str = ""
    reboot_time: str = ""
    reboot_image: str = ""
    restart_counter: int = 0


class EdgeSlot(_Topic, frozen=True, kw_only=True):
    """One slot of an OS image."""

    partition_label: str = ""
    partition_state: str = ""
    short_version: str = ""
    current_partition: bool = False


class Edge(Value, frozen=True, kw_only=True):
    """Statuses of the guardian that the agent has read; None: not published. `silence`: why they do not count; empty: they do."""

    health: EdgeHealth | None = None
    node: EdgeNode | None = None
    slots: tuple[EdgeSlot, ...] = ()
    silence: str = ""


PanelContent = Table | Text | Png
ROOMS: Final[dict[str, Any]] = {
    "/v1/edge": Edge,
    "/v1/node/cluster": Node,
    "/v1/sessions": Items[Session],
    "/v1/fornaxcore": Fornax,
    "/v1/images": Items[Image],
    "/v1/plugins": Items[Plugin],
    "/v1/panels": Items[PanelItem],
}
"""Types of the answers that are read at intervals, by path. The contents of panels are read, too."""


def panel_path(name: str) -> str:
    """Return the URL path of a panel's content."""
    return f"/v1/panels/{quote(name, safe='')}"
