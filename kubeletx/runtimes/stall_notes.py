"""`StallNotes`: the runtimes whose plugin blocked the agent for too long; the next start isolates them.

agent blocked by a plugin ─► note in <root>/stalled/NAME ─► the agent ends, and is started again
start                     ─► a runtime with a note runs in a process of its own (isolation=process)
kubeletx runtime reload   ─► all notes are deleted, which holds from the start after that on
"""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from kubeletx.api import RuntimeName


class StallNote(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One stall that ended the agent: the plugin's method that blocked, for how long, when, and the file of the dump."""

    method: str = "unknown"
    seconds: float = 0.0
    at: datetime = datetime.fromtimestamp(0, UTC)
    dump: str = ""

    def __str__(self) -> str:
        """Return the stall as a part of a sentence."""
        return f"{self.method} blocked the agent for {self.seconds:.0f} s at {self.at:%Y-%m-%dT%H:%M:%SZ}"


class StallNotes:
    """Reads and writes the notes below `root`, the agent's root directory. All methods block briefly."""

    def __init__(self, root: Path) -> None:
        self._directory = root / "stalled"

    def put(self, runtime: str, note: StallNote) -> None:
        """Write the note of one runtime. OSError passes."""
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        (self._directory / runtime).write_bytes(msgspec.json.encode(note) + b"\n")

    def load(self) -> dict[RuntimeName, StallNote]:
        """Return all notes, by name of the runtime. An unreadable file counts as a note without details."""
        with contextlib.suppress(OSError):
            return {
                RuntimeName(path.name): _read(path)
                for path in sorted(self._directory.iterdir())
                if path.is_file()
            }
        return {}

    def clear(self) -> tuple[RuntimeName, ...]:
        """Delete all notes; return the names of their runtimes. OSError passes."""
        names = tuple(self.load())
        for name in names:
            (self._directory / name).unlink(missing_ok=True)
        return names


def _read(path: Path) -> StallNote:
    try:
        return msgspec.json.decode(path.read_bytes(), type=StallNote)
    except (OSError, ValueError):
        return StallNote()
