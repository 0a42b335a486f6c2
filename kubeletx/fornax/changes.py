"""`Outbox`: messages that wait for one core, in the order in which the core accepts them. Pure.

    new stream ─► full state ─► registration, every few seconds until NODE_CONFIGURATION ─► full state as NODE_READY
               ─► answers to refused sessions ─► changes in order of their revision

A core accepts a change whose revision follows its last one. Therefore a full state with the present revision replaces a
failed message and a queue that is too long: it contains all earlier changes. Nothing is sent twice to repair a loss, and
no core delays another. A full state has no sessions that this node refused, so their answers are queued apart from the
changes. They take no revision of their own: a core also accepts its last one.
"""

from __future__ import annotations

import asyncio
import enum
import math
from collections import deque

import msgspec

REGISTER_SECONDS = 5.0
MAX_CHANGES = 500
MAX_BYTES = 16 << 20


class Kind(enum.Enum):
    """Kind of a message to a core; the value is its type in metrics and logs."""

    STATE = "NODE_STATE"
    REGISTER = "NODE_REGISTER"
    READY = "NODE_READY"
    ANSWER = "answer"
    CHANGE = "change"
    PROBE = "probe"


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """A message to send. Only a CHANGE is serialised already; the others are built when they are sent.

    `revision`: revision of a CHANGE, a REGISTER or an ANSWER; a full state has the node's present one.
    `session`: identifier of the refused session of an ANSWER.
    """

    kind: Kind
    revision: int = 0
    message: bytes = b""
    session: str = ""


class Outbox:
    """Messages that wait for one core. `done`, `refused` or `request_full` ends each step before the next one is taken.

    `news`: set when there may be a new step.
    """

    def __init__(
        self,
        *,
        register_seconds: float = REGISTER_SECONDS,
        max_changes: int = MAX_CHANGES,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        """`max_changes`, `max_bytes`: a longer queue of changes is replaced by a full state."""
        self.news = asyncio.Event()
        self._register_seconds = register_seconds
        self._max_changes, self._max_bytes = max_changes, max_bytes
        self._changes: deque[Step] = deque()
        self._answers: dict[str, None] = {}
        self._bytes = 0
        self._register_at = -math.inf
        self._is_standby = False
        self.needs_full = False
        self.node_is_ready = False
        """The node is ready to get pods; set before `request_full`."""
        self.is_registered = False
        """The core has sent NODE_CONFIGURATION."""
        self.is_ready_reported = False
        self._configurations = 0
        self._ready_answers = 0
        """Number of the configuration that the last NODE_READY answered."""
        self.acknowledged = 0
        """Revision of the last message that the core has answered."""
        self.overflows = 0
        """Number of times that a full state replaced a queue that was too long."""

    def __len__(self) -> int:
        return len(self._changes)

    def opened(self) -> None:
        """Begin with a full state, since a new stream was opened. The core still knows its registration."""
        self._register_at = -math.inf
        self.request_full()

    def request_full(self) -> None:
        """Send a full state next. It replaces the queued changes, and a change whose call failed."""
        self.needs_full = True
        self._changes.clear()
        self._bytes = 0
        self.news.set()

    def set_standby(self, is_standby: bool) -> None:
        """Register once with a standby, which does not configure the node, and repeatedly with any other core."""
        if self._is_standby and not is_standby:
            self._register_at = -math.inf
            self.news.set()
        self._is_standby = is_standby

    def registered(self) -> None:
        """Note a NODE_CONFIGURATION of the core; NODE_READY answers it as soon as the node is ready."""
        self.is_registered, self.is_ready_reported = True, False
        self._configurations += 1
        if self.node_is_ready:
            self.request_full()

    def register_again(self) -> None:
        """Repeat the registration until the core sends another NODE_CONFIGURATION."""
        self.is_registered = self.is_ready_reported = False
        self.news.set()

    def answer(self, session: str) -> None:
        """Queue the answer to a refused session, by its identifier."""
        self._answers[session] = None
        if len(self._answers) > self._max_changes:
            del self._answers[next(iter(self._answers))]
        self.news.set()

    def add(self, revision: int, message: bytes) -> None:
        """Queue a change; revisions grow by one from call to call."""
        if self.needs_full:
            return
        self._changes.append(Step(kind=Kind.CHANGE, revision=revision, message=message))
        self._bytes += len(message)
        if len(self._changes) > self._max_changes or self._bytes > self._max_bytes:
            self.overflows += 1
            self.request_full()
        self.news.set()

    def next(self, now: float) -> Step | None:
        """Take the next message; None: there is none before `due_at`."""
        if self.needs_full:
            self.needs_full = False
            ready = self.is_registered and self.node_is_ready and not self.is_ready_reported
            if ready:
                self._ready_answers = self._configurations
            return Step(kind=Kind.READY if ready else Kind.STATE)
        if not self.is_registered and now >= self._register_at:
            self._register_at = math.inf if self._is_standby else now + self._register_seconds
            return Step(kind=Kind.REGISTER, revision=self.acknowledged)
        if self._answers:
            return Step(kind=Kind.ANSWER, revision=self.acknowledged, session=next(iter(self._answers)))
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
            # A configuration that came meanwhile needs a NODE_READY of its own.
            self.is_ready_reported = self._ready_answers == self._configurations
        if step.kind is Kind.ANSWER:
            self._answers.pop(step.session, None)

    def refused(self, step: Step) -> None:
        """Send a full state next, since the core refused a message. An answer is not sent again."""
        self._answers.pop(step.session, None)
        self.request_full()
