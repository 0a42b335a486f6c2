"""Known ids: their owners, and whether they are sandboxes or units.

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
    """Owner of an id; `unit_id` is None for a sandbox."""

    uid: PodUid
    sandbox_id: SandboxId
    unit_id: UnitId | None


class KnownIds:
    """Known ids of one runtime."""

    def __init__(self) -> None:
        self._owners: dict[str, Owner] = {}
        self._units: dict[SandboxId, set[UnitId]] = {}

    def find(self, some_id: str) -> Owner | None:
        """The owner of a sandbox's or unit's id; None if the id was not seen."""
        return self._owners.get(some_id)

    def add_sandbox(self, sandbox_id: SandboxId, uid: PodUid) -> None:
        """Add a sandbox after a create or from a list."""
        self._make_room()
        self._owners[sandbox_id] = Owner(uid, sandbox_id, None)

    def add_unit(self, unit_id: UnitId, sandbox_id: SandboxId, uid: PodUid) -> None:
        """Add a unit after a create or from a list. Without a UID, its sandbox's is used if known."""
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
        """Drop a unit after its removal."""
        owner = self._owners.pop(unit_id, None)
        if owner is not None:
            self._units.get(owner.sandbox_id, set()).discard(unit_id)

    def remove_sandbox(self, sandbox_id: SandboxId) -> None:
        """Drop a sandbox and its units after its removal."""
        self._owners.pop(sandbox_id, None)
        for unit_id in self._units.pop(sandbox_id, ()):
            self._owners.pop(unit_id, None)

    def forget(self, some_id: str) -> None:
        """Drop the id after the event of its removal."""
        owner = self._owners.get(some_id)
        if owner is not None and owner.unit_id is not None:
            self.remove_unit(owner.unit_id)
        else:
            self.remove_sandbox(SandboxId(some_id))

    def clear(self) -> None:
        """Drop everything, before a full list."""
        self._owners.clear()
        self._units.clear()

    def _make_room(self) -> None:
        if len(self._owners) >= LIMIT:
            self.clear()
