"""A runtime whose calls succeed and do nothing.

Fault: `start_unit` and others return without an error, and lists show no change afterwards.
What the agent does: it repeats the call after growing delays, at most every 10 s in the end, and reports it once with
event `RuntimeWithoutEffect`.
Correct code returns when what the contract promises holds, and raises otherwise.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from kubeletx.api import Endpoint, Host, RegisterRuntime, SandboxId, SandboxSpec, UnitId, hookimpl
from kubeletx.testing import FakeRuntime

CHANGES = ("create_sandbox", "start_unit", "stop_unit", "stop_sandbox", "remove_unit", "remove_sandbox")


class NoEffectRuntime(FakeRuntime):
    """A fake runtime in which the calls named in `without_effect` return at once without an error or an effect.

    `create_sandbox` then returns the id of a sandbox that no list shows.
    """

    def __init__(self, name: str = "bad", *, without_effect: Collection[str] = CHANGES, **more: Any) -> None:
        """`without_effect`: names from `CHANGES`. `more`: arguments of `FakeRuntime`."""
        super().__init__(name, **more)
        self.without_effect = set(without_effect)

    async def create_sandbox(self, spec: SandboxSpec) -> SandboxId:
        """Return an id, with or without making a sandbox."""
        if "create_sandbox" not in self.without_effect:
            return await super().create_sandbox(spec)
        return await self._call("create_sandbox", spec.uid, lambda: SandboxId(f"none-{spec.uid}"))

    async def start_unit(self, unit_id: UnitId) -> None:
        """Start the unit, or leave it as it is."""
        if not await self._is_ignored("start_unit", unit_id):
            await super().start_unit(unit_id)

    async def stop_unit(self, unit_id: UnitId, grace_seconds: float) -> None:
        """Stop the unit, or leave it as it is."""
        if not await self._is_ignored("stop_unit", unit_id):
            await super().stop_unit(unit_id, grace_seconds)

    async def stop_sandbox(self, sandbox_id: SandboxId) -> None:
        """Stop the sandbox, or leave it as it is."""
        if not await self._is_ignored("stop_sandbox", sandbox_id):
            await super().stop_sandbox(sandbox_id)

    async def remove_unit(self, unit_id: UnitId) -> None:
        """Remove the unit, or leave it as it is."""
        if not await self._is_ignored("remove_unit", unit_id):
            await super().remove_unit(unit_id)

    async def remove_sandbox(self, sandbox_id: SandboxId) -> None:
        """Remove the sandbox, or leave it as it is."""
        if not await self._is_ignored("remove_sandbox", sandbox_id):
            await super().remove_sandbox(sandbox_id)

    async def _is_ignored(self, method: str, key: str) -> bool:
        if method not in self.without_effect:
            return False
        await self._call(method, key, lambda: None)
        return True


def _make(endpoint: Endpoint, _settings: object, host: Host) -> NoEffectRuntime:
    return NoEffectRuntime(endpoint.name, clock=host.clock)


@hookimpl
def kubeletx_register_runtimes(register: RegisterRuntime) -> None:
    """Register the kind ``no-effect``."""
    register("no-effect", _make, workload_types=("container",), schemes=("bad",))
