"""History of the node: boots, upgrades, operations, watchdog hits; the newest entries, over reboots and power cuts."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec

from .model import Complain
from .state import StateFile

KEPT: Final = 200
"""Entries that are kept."""


class NodeHistoryEntry(msgspec.Struct, frozen=True):
    """One event. `time`: RFC 3339, for people only; `boot`: number of the boot; `second`: of ticks since its start."""

    time: str
    boot: int
    second: int
    reason: str
    message: str


class NodeHistoryEntries(msgspec.Struct, frozen=True):
    """Content of the file, the newest entry last."""

    entries: tuple[NodeHistoryEntry, ...] = ()


class NodeHistory:
    """The file below PERSIST."""

    def __init__(
        self, path: Path, complain: Complain, now: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self._file = StateFile(path, NodeHistoryEntries(), complain)
        self._now = now
        self._entries: tuple[NodeHistoryEntry, ...] | None = None

    def entries(self) -> tuple[NodeHistoryEntry, ...]:
        """Return the entries, the newest last."""
        if self._entries is None:
            self._entries = self._file.read().entries
        return self._entries

    def add(self, boot: int, second: int, reason: str, message: str) -> None:
        """Store an event."""
        time = self._now().isoformat(timespec="seconds")
        entry = NodeHistoryEntry(time, boot, second, reason, message)
        self._entries = (*self.entries(), entry)[-KEPT:]
        self._file.write(NodeHistoryEntries(self._entries))
