"""Runs lifecycle hooks (postStart, preStop) of containers, exec hooks by the runtime of their pod."""

from __future__ import annotations

from functools import partial

from kubeletx.api import Clock, UnitId
from kubeletx.api.names import Event
from kubeletx.kube.types.core import Container, LifecycleHandler
from kubeletx.runtimes.registry import RuntimeRegistry

from ..model.facts import PodFacts
from ..pod_events import PodEvents
from .all_probes import RuntimeExecFinder, pod_ip
from .lifecycle_hooks import HookTarget, run_hook


class UnitHooks:
    """Runs lifecycle hooks of containers on any runtime.

    `host_ip`: address to which network hooks of pods with hostNetwork connect.
    """

    def __init__(self, registry: RuntimeRegistry, clock: Clock, host_ip: str = "") -> None:
        self._registry = registry
        self._clock = clock
        self._host_ip = host_ip

    async def run(
        self,
        handler: LifecycleHandler,
        container: Container,
        unit_id: UnitId,
        *,
        facts: PodFacts,
        host_network: bool,
        seconds: float | None,
        events: PodEvents,
    ) -> str:
        """Run the hook once; return the text of its failure, empty after success.

        `seconds`: deadline; None: a day (`UNLIMITED_SECONDS`). `events`: gets an event if an HTTPS hook was repeated as
        HTTP.
        """
        outcome = await run_hook(
            handler,
            HookTarget(
                container=container,
                unit_id=unit_id,
                pod_ip=self._host_ip if host_network else pod_ip(facts),
            ),
            finder=RuntimeExecFinder(self._registry, facts.runtime),
            clock=self._clock,
            timeout_seconds=seconds,
            on_fallback=partial(events.warning, Event.LIFECYCLE_HTTP_FALLBACK, container=container.name),
        )
        return "" if outcome.ok else outcome.message or "the hook failed"
