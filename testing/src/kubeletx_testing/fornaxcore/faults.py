"""`Faults`: what goes wrong between a core and its nodes.

    core.faults.add(Fault(action=Action.DROP, direction=Direction.IN, types=("POD_STATE",)))

Each fault has effect on the next `count` messages that fit. Silent and broken connections: `FornaxCore.line`.
"""

from __future__ import annotations

import enum

import msgspec


class Action(enum.Enum):
    """Cause of a fault.

    DROP: the message is answered and lost. FAIL: the call fails with UNAVAILABLE, without effect; a message to a node is
    lost. DELAY: the message has effect later, and later messages overtake it. DUPLICATE: it has effect twice. REORDER:
    it has effect after the next message.
    """

    DROP = "drop"
    FAIL = "fail"
    DELAY = "delay"
    DUPLICATE = "duplicate"
    REORDER = "reorder"


class Direction(enum.Enum):
    """Direction of a message. IN: from a node to the core. OUT: from the core to a node."""

    IN = "in"
    OUT = "out"


class Fault(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One fault. `types`: names of message types; empty: all. `node`: empty: all. `seconds`: of a delay."""

    action: Action
    direction: Direction = Direction.IN
    types: tuple[str, ...] = ()
    node: str = ""
    count: int = 1
    seconds: float = 1


class Faults:
    """Faults that are still to come."""

    def __init__(self) -> None:
        self._left: list[tuple[Fault, int]] = []

    def add(self, fault: Fault) -> None:
        """Let a fault have effect after the earlier ones."""
        self._left.append((fault, fault.count))

    @property
    def pending(self) -> int:
        """Number of messages on which faults will still have effect."""
        return sum(left for _, left in self._left)

    def take(self, direction: Direction, kind: str, node: str) -> Fault | None:
        """Take the first fault that fits the message; None: the message passes."""
        for index, (fault, left) in enumerate(self._left):
            if (
                fault.direction is direction
                and fault.node in ("", node)
                and (not fault.types or kind in fault.types)
            ):
                if left > 1:
                    self._left[index] = (fault, left - 1)
                else:
                    del self._left[index]
                return fault
        return None
