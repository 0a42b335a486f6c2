"""Messages between parent and child outside the runtime contract: the child's start, and the host's side."""

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
    """Everything that the child needs to make the runtime. `factory`, `settings_type`: as module:name."""

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
    """Properties of the runtime after `open`. `capabilities`: names of its Supports... classes."""

    traits: Traits
    capabilities: tuple[str, ...]


class Control(Protocol):
    """Calls that the agent makes to the child itself, not to its runtime."""

    async def init(self, init: Init) -> None:
        """Make the plugin's runtime object; the agent's first call to a new child."""
        ...

    async def open(self) -> Opened:
        """Open the runtime, or open it again."""
        ...

    async def close(self) -> None:
        """Close the runtime; the child ends afterwards."""
        ...

    async def ping(self) -> None:
        """Answer, which shows that the child's event loop runs."""
        ...


class EventNote(msgspec.Struct, frozen=True, kw_only=True):
    """Message of the child to the agent: one event for users."""

    ref: ObjectRef
    type: str
    reason: str
    message: str


class LogNote(msgspec.Struct, frozen=True, kw_only=True):
    """Message of the child to the agent: one log line."""

    level: str
    event: str
    fields: dict[str, str]
