"""`Outbox`: what one core still has to get, in the order in which a core accepts it. Pure.

    new stream ─► full state ─► registration, every few seconds until NODE_CONFIGURATION ─► full state as NODE_READY
               ─► changes in order of their revision

A core accepts a change whose revision follows its last one. Therefore a failed message, and a queue that is too long,
are replaced by a full state with the present revision: it contains all earlier changes. Nothing is sent twice to repair
a loss, and no core delays another.
"""

from __future__ import annotations

import enum
import math
from collections import deque

import msgspec

REGISTER_SECONDS = 5.0
MAX_CHANGES = 500
MAX_BYTES = 16 << 20


class Kind(enum.Enum):
    """Kind of a message to a core; the value is the name of its type."""

    STATE = "NODE_STATE"
    REGISTER = "NODE_REGISTER"
    READY = "NODE_READY"
    CHANGE = "change"
    PROBE = "probe"


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """The next message. `revision`: of a CHANGE, and the one that a REGISTER must have.

    `message`: serialised CHANGE. Other kinds are built when they are sent.
    """

    kind: Kind
    revision: int = 0
    message: bytes = b""


class Outbox:
    """Messages that one core has not got yet.

    A step that `next` returns is ended by `done` or `request_full` before the next one.
    """

    def __init__(
        self,
        *,
        register_seconds: float = REGISTER_SECONDS,
        max_changes: int = MAX_CHANGES,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        """`max_changes`, `max_bytes`: a longer queue of changes is replaced by a full state."""
        self._register_seconds = register_seconds
        self._max_changes, self._max_bytes = max_changes, max_bytes
        self._changes: deque[Step] = deque()
        self._bytes = 0
        self._register_at = -math.inf
        self.needs_full = False
        self.node_is_ready = False
        """The node is ready to get pods; set before `request_full`."""
        self.is_registered = False
        """The core has sent NODE_CONFIGURATION."""
        self.is_ready_reported = False
        self.acknowledged = 0
        """Revision of the last message that the core has answered."""
        self.overflows = 0
        """How often the queue was too long."""

    def __len__(self) -> int:
        return len(self._changes)

    def opened(self) -> None:
        """Begin with a full state, since a new stream was opened. The core still knows its registration."""
        self.request_full()
        self._register_at = -math.inf

    def request_full(self) -> None:
        """Send a full state next: it contains the queued changes, and one that the core may not have got."""
        self.needs_full = True
        self._changes.clear()
        self._bytes = 0

    def registered(self) -> None:
        """Note a NODE_CONFIGURATION of the core; NODE_READY answers it as soon as the node is ready."""
        self.is_registered, self.is_ready_reported = True, False
        if self.node_is_ready:
            self.request_full()

    def register_again(self) -> None:
        """Repeat the registration until the core sends another NODE_CONFIGURATION."""
        self.is_registered = self.is_ready_reported = False

    def add(self, revision: int, message: bytes) -> None:
        """Queue a change; revisions grow by one from call to call."""
        if self.needs_full:
            return
        self._changes.append(Step(kind=Kind.CHANGE, revision=revision, message=message))
        self._bytes += len(message)
        if len(self._changes) > self._max_changes or self._bytes > self._max_bytes:
            self.overflows += 1
            self.request_full()

    def next(self, now: float) -> Step | None:
        """Take the next message; None: there is none before `due_at`."""
        if self.needs_full:
            self.needs_full = False
            ready = self.is_registered and self.node_is_ready and not self.is_ready_reported
            return Step(kind=Kind.READY if ready else Kind.STATE)
        if not self.is_registered and now >= self._register_at:
            self._register_at = now + self._register_seconds
            return Step(kind=Kind.REGISTER, revision=self.acknowledged)
        if self._changes:
            step = self._changes.popleft()
            self._bytes -= len(step.message)
            return step
        return None

    def due_at(self) -> float:
        """Monotonic time of the next registration; infinite: none is due."""
        return math.inf if self.is_registered else self._register_at

    def done(self, step: Step, revision: int) -> None:
        """Note that the core has answered a message with this revision."""
        self.acknowledged = revision
        if step.kind is Kind.READY:
            self.is_ready_reported = True
