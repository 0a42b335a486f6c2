"""`Records`: ids of containers, as empty files in a directory of the runtime's state.

They keep what the kernel does not show: that the memory of a frozen container was reclaimed, and that a container was
frozen by a signal. A file is not flushed to the disk, since no container outlives the machine.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from kubeletx.api import UnitId


class Records:
    """Set of container ids, which survives restarts of the agent."""

    def __init__(self, directory: Path) -> None:
        """`directory`: made when the first id is added."""
        self._directory = directory
        self._ids: set[UnitId] = set()

    def load(self) -> None:
        """Read the ids that earlier agent processes have stored."""
        self._ids = {UnitId(path.name) for path in self._directory.glob("*")}  # none if it was not made yet

    def __contains__(self, unit_id: UnitId) -> bool:
        return unit_id in self._ids

    def __iter__(self) -> Iterator[UnitId]:
        return iter(tuple(self._ids))

    def add(self, unit_id: UnitId) -> None:
        self._directory.mkdir(exist_ok=True)
        (self._directory / unit_id).touch()
        self._ids.add(unit_id)

    def remove(self, unit_id: UnitId) -> None:
        """Remove an id and its file; does nothing if it is not in the set."""
        if unit_id in self._ids:
            (self._directory / unit_id).unlink(missing_ok=True)
            self._ids.discard(unit_id)
