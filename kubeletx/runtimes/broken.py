"""`BrokenRuntime`: stands for a runtime whose plugin could not make it, so that the agent and the others start."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NoReturn, TypeVar

from kubeletx.api import (
    RuntimeHealth,
    RuntimeVersion,
    SandboxId,
    SandboxSpec,
    SandboxStatus,
    SandboxSummary,
    Traits,
    Unavailable,
    UnitId,
    UnitSpec,
    UnitStatus,
    UnitSummary,
)

T = TypeVar("T")

REASON = "PluginFailed"
"""Reason of a runtime that its plugin could not make."""


class BrokenRuntime:
    """A `kubeletx.api.Runtime` of which each call raises Unavailable with the same message.

    It has no state and no capabilities, and is never ready.
    """

    def __init__(self, why: str) -> None:
        """`why`: the whole message: what failed, in which plugin, and what to do."""
        self.why = why

    async def open(self) -> None:
        self._refuse()

    async def close(self) -> None:
        """Do nothing: there is nothing to close."""

    def traits(self) -> Traits:
        return Traits()

    def capability(self, protocol: type[T]) -> T | None:
        return None

    async def version(self) -> RuntimeVersion:
        self._refuse()

    async def health(self) -> RuntimeHealth:
        self._refuse()

    async def create_sandbox(self, spec: SandboxSpec) -> SandboxId:
        self._refuse()

    async def stop_sandbox(self, sandbox_id: SandboxId) -> None:
        self._refuse()

    async def remove_sandbox(self, sandbox_id: SandboxId) -> None:
        self._refuse()

    async def list_sandboxes(self, match: Mapping[str, str]) -> Sequence[SandboxSummary]:
        self._refuse()

    async def sandbox_status(self, sandbox_id: SandboxId) -> SandboxStatus:
        self._refuse()

    async def create_unit(self, sandbox_id: SandboxId, spec: UnitSpec, sandbox: SandboxSpec) -> UnitId:
        self._refuse()

    async def start_unit(self, unit_id: UnitId) -> None:
        self._refuse()

    async def stop_unit(self, unit_id: UnitId, grace_seconds: float) -> None:
        self._refuse()

    async def remove_unit(self, unit_id: UnitId) -> None:
        self._refuse()

    async def list_units(self, match: Mapping[str, str]) -> Sequence[UnitSummary]:
        self._refuse()

    async def unit_status(self, unit_id: UnitId) -> UnitStatus:
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise Unavailable(self.why, reason=REASON)
