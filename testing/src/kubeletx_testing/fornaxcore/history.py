"""`History`: every message of a core, and what a real core would have made of it.

A *gap* is a revision that does not follow the last one. It is explained if a fault, a new stream or a restart came
before it, or if a full sync is still awaited. A *violation* is a message that a real core rejects, ignores or does
not survive. `check` raises AssertionError if there is an unexplained gap or a violation.
"""

from __future__ import annotations

from collections import Counter, deque

import msgspec

from kubeletx.fornax.stubs import fornaxcore_pb2 as pb

from .faults import Direction


class Seen(msgspec.Struct, frozen=True):
    """One message. `at`: monotonic seconds. `about`: pod, session or node. `value`: status or state word.

    `revision`: 0: the message has none.
    """

    at: float
    direction: Direction
    node: str
    kind: str
    about: str = ""
    value: str = ""
    revision: int = 0
    note: str = ""
    message: pb.FornaxCoreMessage | None = None


class History:
    """Messages in the order in which the core took or sent them; the newest 100,000 are kept."""

    def __init__(self) -> None:
        self.seen: deque[Seen] = deque(maxlen=100_000)
        self.counts: Counter[str] = Counter()
        """Number of messages by direction and type, such as ``in POD_STATE``, and of notes."""
        self.nodes: Counter[str] = Counter()
        """Number of messages from each node by type, such as ``NODE POD_STATE``."""
        self.gaps: list[str] = []
        """Gaps without an explanation."""
        self.explained: list[str] = []
        self.violations: list[str] = []

    def add(self, seen: Seen) -> None:
        self.seen.append(seen)
        self.counts[f"{seen.direction.value} {seen.kind}"] += 1
        if seen.direction is Direction.IN:
            self.nodes[f"{seen.node} {seen.kind}"] += 1
        if seen.note:
            self.counts[seen.note] += 1

    def of(self, kind: str, about: str | None = None) -> list[Seen]:
        """Messages of a type; `about`: only those about this pod, session or node."""
        return [one for one in self.seen if one.kind == kind and about in (None, one.about)]

    def values(self, kind: str, about: str) -> list[str]:
        """Status or state words of the messages about a pod or session, without repetitions in a row."""
        found: list[str] = []
        for one in self.of(kind, about):
            if not found or found[-1] != one.value:
                found.append(one.value)
        return found

    def check(self) -> None:
        """Raise AssertionError if a gap is unexplained or a message broke a rule of the protocol."""
        wrong = [*self.gaps, *self.violations]
        if wrong:
            raise AssertionError("the node broke the protocol:\n" + "\n".join(wrong[:20]))
