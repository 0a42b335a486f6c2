"""Lifecycle hooks of units, run where the unit runs."""

from __future__ import annotations

from kubeletx.api import UnitId
from kubeletx.api.names import Event
from kubeletx.kube.types.core import Container, LifecycleHandler
from kubeletx.runtimes.registry import RuntimeRegistry

from ..steps.context import StepContext
from .all_probes import RuntimeExecDoor, pod_ip
from .lifecycle_hooks import HookTarget, run_hook


class UnitHooks:
    """Implements `services.Hooks`. `host_ip`: where hooks of host-network pods go."""

    def __init__(self, registry: RuntimeRegistry, host_ip: str = "") -> None:
        self._registry = registry
        self._host_ip = host_ip

    async def run(
        self,
        step: StepContext,
        handler: LifecycleHandler,
        container: Container,
        unit_id: UnitId,
        seconds: float | None,
    ) -> str:
        """Run it once; the text of the failure, or an empty string."""

        def on_fallback(text: str) -> None:
            step.warning(Event.LIFECYCLE_HTTP_FALLBACK, text, container=container.name)

        host_network = bool(step.pod.spec.host_network)
        outcome = await run_hook(
            handler,
            HookTarget(
                container=container,
                unit_id=unit_id,
                pod_ip=self._host_ip if host_network else pod_ip(step.facts),
            ),
            door=RuntimeExecDoor(self._registry, step.worker),
            clock=step.services.clock,
            timeout_seconds=seconds,
            on_fallback=on_fallback,
        )
        return "" if outcome.ok else outcome.message or "the hook failed"
