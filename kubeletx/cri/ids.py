"""Which ids were seen: whose they are, and what is a sandbox and what a unit.

A container's status does not name its sandbox, and containerd's events name only an id. Lists and
creates fill this in passing. It may forget: callers can always list.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from kubeletx.api import PodUid, SandboxId, SandboxSummary, UnitId, UnitSummary


class Owner(NamedTuple):
    """Whose an id is; `unit_id` is None for a sandbox."""

    uid: PodUid
    sandbox_id: SandboxId
    unit_id: UnitId | None


class KnownIds:
    """Ids of one runtime."""

    def __init__(self) -> None:
        self._owners: dict[str, Owner] = {}
        self._units: dict[SandboxId, set[UnitId]] = {}

    def find(self, some_id: str) -> Owner | None:
        """The owner of a sandbox's or unit's id, if it was seen."""
        return self._owners.get(some_id)

    def add_sandbox(self, sandbox_id: SandboxId, uid: PodUid) -> None:
        """After a create, or from a list."""
        self._owners[sandbox_id] = Owner(uid, sandbox_id, None)

    def add_unit(self, unit_id: UnitId, sandbox_id: SandboxId, uid: PodUid) -> None:
        """After a create, or from a list. Without a UID, its sandbox's is taken if known."""
        sandbox = self._owners.get(sandbox_id)
        self._owners[unit_id] = Owner(uid or (sandbox.uid if sandbox else uid), sandbox_id, unit_id)
        self._units.setdefault(sandbox_id, set()).add(unit_id)

    def add_sandboxes(self, listed: Iterable[SandboxSummary]) -> None:
        """After a list."""
        for item in listed:
            self.add_sandbox(item.id, item.uid)

    def add_units(self, listed: Iterable[UnitSummary]) -> None:
        """After a list."""
        for item in listed:
            self.add_unit(item.id, item.sandbox_id, item.uid)

    def remove_unit(self, unit_id: UnitId) -> None:
        """After a removal."""
        owner = self._owners.pop(unit_id, None)
        if owner is not None:
            self._units.get(owner.sandbox_id, set()).discard(unit_id)

    def remove_sandbox(self, sandbox_id: SandboxId) -> None:
        """After a removal; its units went with it."""
        self._owners.pop(sandbox_id, None)
        for unit_id in self._units.pop(sandbox_id, ()):
            self._owners.pop(unit_id, None)

    def clear(self) -> None:
        """Before everything is listed anew."""
        self._owners.clear()
        self._units.clear()
