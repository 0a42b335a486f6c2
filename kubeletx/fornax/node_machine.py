"""States of the node under its cores, as a pure table. docs/states.md has the drawing.

    INITIALIZING   stored pods are loaded and compared with the runtimes; no core is connected
    REGISTERING    the node registers with every core until one sends a NODE_CONFIGURATION
    CONFIGURING    the configuration is being applied
    READY          the cores got NODE_READY; they may send pods
    STOPPED        the agent ends; pods keep running

A later configuration is applied while the node stays READY; if that fails, the earlier one remains in force. If the
first one fails, the node registers again, and the core sends it again.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Mapping
from typing import Final

from kubeletx.api import Internal


class NodeState(enum.Enum):
    """State of the node under its cores."""

    INITIALIZING = "Initializing"
    REGISTERING = "Registering"
    CONFIGURING = "Configuring"
    READY = "Ready"
    STOPPED = "Stopped"


class NodeEvent(enum.Enum):
    """Cause of a change of the node's state. The value is the text in the drawing."""

    LOADED = "stored pods are loaded and compared"
    CONFIGURATION = "NODE_CONFIGURATION"
    APPLIED = "the configuration is applied"
    FAILED = "the configuration cannot be applied"
    STOP = "the agent stops"


S, E = NodeState, NodeEvent
TRANSITIONS: Final[Mapping[tuple[NodeState, NodeEvent], NodeState]] = {
    (S.INITIALIZING, E.LOADED): S.REGISTERING,
    (S.REGISTERING, E.CONFIGURATION): S.CONFIGURING,
    (S.CONFIGURING, E.CONFIGURATION): S.CONFIGURING,
    (S.CONFIGURING, E.APPLIED): S.READY,
    (S.CONFIGURING, E.FAILED): S.REGISTERING,
    (S.READY, E.CONFIGURATION): S.READY,
    (S.READY, E.APPLIED): S.READY,
    (S.READY, E.FAILED): S.READY,
    **{(state, E.STOP): S.STOPPED for state in NodeState},
}


class NodeMachine:
    """The node's state, changed only by `step`."""

    def __init__(self) -> None:
        self.state = NodeState.INITIALIZING
        self._history: deque[str] = deque(maxlen=10)

    def step(self, event: NodeEvent) -> None:
        """Apply an event. Raises Internal if the event is impossible in this state."""
        after = TRANSITIONS.get((self.state, event))
        if after is None:
            past = ", ".join(self._history) or "none"
            raise Internal(
                f"node in state {self.state.value}: unexpected {event.name}; earlier events: {past}"
            )
        self._history.append(event.name)
        self.state = after
