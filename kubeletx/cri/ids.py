"""Table of the ids that a server has returned: to which pod and sandbox each belongs, and which are units.

A container's status does not name its sandbox, and containerd's events have only an id. Lists and creates fill the
table. It may drop entries, since callers can always list: it holds at most `LIMIT` ids and starts empty beyond that,
because not every listed object is removed by this agent.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from kubeletx.api import PodUid, SandboxId, SandboxSummary, UnitId, UnitSummary

LIMIT = 50_000
"""Maximum of ids: three times the need of 5,000 pods with two containers each; about 15 MiB."""


class Owner(NamedTuple):
    """Pod and sandbox that a sandbox's or container's id belongs to. `unit_id`: None if the id is a sandbox's."""

    uid: PodUid
    sandbox_id: SandboxId
    unit_id: UnitId | None


class KnownIds:
    """Table from the ids of one runtime's sandboxes and containers to their owners."""

    def __init__(self) -> None:
        self._owners: dict[str, Owner] = {}
        self._units: dict[SandboxId, set[UnitId]] = {}

    def find(self, some_id: str) -> Owner | None:
        """Return the owner of a sandbox's or unit's id; None if the table does not have it."""
        return self._owners.get(some_id)

    def add_sandbox(self, sandbox_id: SandboxId, uid: PodUid) -> None:
        """Add a sandbox that was created or listed."""
        self._make_room()
        self._owners[sandbox_id] = Owner(uid, sandbox_id, None)

    def add_unit(self, unit_id: UnitId, sandbox_id: SandboxId, uid: PodUid) -> None:
        """Add a unit that was created or listed. If `uid` is empty, its sandbox's is used if that is known."""
        self._make_room()
        sandbox = self._owners.get(sandbox_id)
        self._owners[unit_id] = Owner(uid or (sandbox.uid if sandbox else uid), sandbox_id, unit_id)
        self._units.setdefault(sandbox_id, set()).add(unit_id)

    def add_sandboxes(self, listed: Iterable[SandboxSummary]) -> None:
        """Add the sandboxes of a list."""
        for item in listed:
            self.add_sandbox(item.id, item.uid)

    def add_units(self, listed: Iterable[UnitSummary]) -> None:
        """Add the units of a list."""
        for item in listed:
            self.add_unit(item.id, item.sandbox_id, item.uid)

    def remove_unit(self, unit_id: UnitId) -> None:
        """Drop a unit that was removed."""
        owner = self._owners.pop(unit_id, None)
        if owner is not None:
            self._units.get(owner.sandbox_id, set()).discard(unit_id)

    def remove_sandbox(self, sandbox_id: SandboxId) -> None:
        """Drop a sandbox that was removed, and its units."""
        self._owners.pop(sandbox_id, None)
        for unit_id in self._units.pop(sandbox_id, ()):
            self._owners.pop(unit_id, None)

    def forget(self, some_id: str) -> None:
        """Drop a sandbox or unit whose removal an event has reported."""
        owner = self._owners.get(some_id)
        if owner is not None and owner.unit_id is not None:
            self.remove_unit(owner.unit_id)
        else:
            self.remove_sandbox(SandboxId(some_id))

    def clear(self) -> None:
        """Drop all ids; the next full list adds them again."""
        self._owners.clear()
        self._units.clear()

    def _make_room(self) -> None:
        if len(self._owners) >= LIMIT:
            self.clear()
