"""Messages between the agent and a child process that are not calls to the runtime.

They control the child, and send the child's events and log lines to the agent.
"""

from __future__ import annotations

from typing import Any, Protocol

import msgspec

from kubeletx.api import Endpoint, ObjectRef, Traits

CONTROL = "control"
RUNTIME = "runtime"
NETWORK = "network"
EVENTS = "events"
LOG = "log"


class Init(msgspec.Struct, frozen=True, kw_only=True):
    """Argument of `Control.init`: everything that the child needs to make the runtime object.

    `factory`, `settings_type`: importable objects, as ``module:name``; `settings_type` is empty without settings, and
    both are empty for a program. `settings`: JSON values; None without settings. `has_network`: the agent has a pod
    network that the child may call. `sys_path`: import path of the agent.
    """

    factory: str
    endpoint: Endpoint
    settings_type: str
    settings: Any
    agent_id: str
    node_name: str
    state_directory: str
    has_network: bool
    sys_path: list[str]


class Opened(msgspec.Struct, frozen=True, kw_only=True):
    """Result of `Control.open`. `capabilities`: names of the Supports... protocols that the runtime implements."""

    traits: Traits
    capabilities: tuple[str, ...]


class Control(Protocol):
    """Calls of the agent that control the child process itself, not its runtime."""

    async def init(self, init: Init) -> None:
        """Make the plugin's runtime object; this is the agent's first call to a new child."""
        ...

    async def open(self) -> Opened:
        """Open the runtime, or open it again."""
        ...

    async def close(self) -> None:
        """Close the runtime; afterwards the agent ends the child."""
        ...

    async def ping(self) -> None:
        """Do nothing: the answer shows that the child's event loop runs."""
        ...


class EventNote(msgspec.Struct, frozen=True, kw_only=True):
    """One-way message of the child to the agent: an event to record; fields as in `kubeletx.api.EventSink.record`."""

    ref: ObjectRef
    type: str
    reason: str
    message: str


class LogNote(msgspec.Struct, frozen=True, kw_only=True):
    """One-way message of the child to the agent: one log line."""

    level: str
    event: str
    fields: dict[str, str]


class EventNotes(Protocol):
    """One-way messages to the agent's object `EVENTS`."""

    def record(self, event: EventNote) -> None: ...


class LogNotes(Protocol):
    """One-way messages to the agent's object `LOG`."""

    def write(self, line: LogNote) -> None: ...
