"""Waits until a pod's worker has done what a command requested, and checks whether a command can act on the pod."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from kubeletx.api import Conflict, Unavailable
from kubeletx.api.names import RUNTIME_NOT_READY
from kubeletx.kube.manifests.machine_form import power_of
from kubeletx.pods import ActionFailure, PodExecutor, PodWorker
from kubeletx.pods.workloads.overrides import overrides_of, with_power
from kubeletx.pods.workloads.power import Power

LOOK_SECONDS = 0.1
"""Interval at which the condition is checked, in addition to a check after each new pod status."""


async def wait_for_worker(
    services: PodExecutor, worker: PodWorker, is_done: Callable[[], bool], seconds: float, *, what: str
) -> bool:
    """Wait until `is_done()` returns True, then return True; return False after `seconds`.

    Raises Conflict when the pod is deleted or has ended. `what`: pod or machine, for the message.
    """
    clock = services.clock
    news = asyncio.Event()
    stop = services.board.subscribe(lambda *_: news.set())
    ends = clock.monotonic() + seconds
    try:
        while not is_done():
            if worker.is_done or worker.desired.is_ending:
                raise Conflict(f"{what} {worker.desired.ref} is ending")
            if clock.monotonic() >= ends:
                return False
            news.clear()
            cancel = clock.call_at(min(ends, clock.monotonic() + LOOK_SECONDS), news.set)
            try:
                await news.wait()
            finally:
                cancel()
    finally:
        stop()
    return True


class PowerRequest:
    """Request of a command for a power state of a pod: stored in the pod's overrides, then waited for.

    `doing`: the command in words, such as ``standby pod default/web``. `what`: pod or machine, for messages.
    """

    def __init__(
        self, services: PodExecutor, worker: PodWorker, wanted: Power, doing: str, *, what: str
    ) -> None:
        self.wanted, self.doing = wanted, doing
        self._services, self._worker, self._what = services, worker, what
        self._stored = ""

    async def store(self, initial: Power) -> None:
        """Store the request. `initial`: the state that the pod's spec requests."""
        pod = self._worker.desired.pod
        overrides = await self._services.overrides.amend(
            self._worker, lambda old: with_power(old, self.wanted.value, initial.value, power_of(pod))
        )
        self._stored = overrides.power

    def refusing(
        self, failures: Callable[[], Mapping[str, ActionFailure]], again: Callable[[ActionFailure], str]
    ) -> Callable[[], None]:
        """Return a function that raises Conflict for a failed call that is not among the present `failures`.

        `again`: returns the end of the message, such as "; the agent retries".
        """
        before = dict(failures())

        def refuse() -> None:
            failed = next(
                (failure for name, failure in failures().items() if before.get(name) != failure), None
            )
            if failed is not None:
                text = f"cannot {self.doing}: {failed.message}{again(failed)}"
                raise Conflict(text, reason=failed.reason)

        return refuse

    async def wait(self, is_reached: Callable[[], bool], seconds: float) -> bool:
        """Wait until `is_reached()` returns True, then return True; return False after `seconds`.

        Raises Conflict when the pod is deleted or has ended, and when a later command replaces the request.
        """

        def is_done() -> bool:
            present = overrides_of(self._worker.facts)
            if present is None or present.power == self._stored:
                return is_reached()
            by = f", which requests {present.power}" if present.power else " or an edit"
            raise Conflict(f"cannot {self.doing}: the request was replaced by a later command{by}")

        return await wait_for_worker(self._services, self._worker, is_done, seconds, what=self._what)


def require_seen(services: PodExecutor, worker: PodWorker) -> None:
    """Raise Unavailable if the pod's runtime does not answer, or has not listed the pod yet.

    Does nothing for a pod that is not assigned to a runtime. Raises NotFound if the runtime was removed from the node.
    """
    if worker.facts.runtime is None:
        return
    handle = services.registry.get(worker.facts.runtime)
    if not handle.state.reachable:
        text = f"runtime {handle.name} does not answer: {handle.state.message}"
        raise Unavailable(text, reason=RUNTIME_NOT_READY)
    if worker.facts.snapshot is None:
        text = f"runtime {handle.name} has not reported pod {worker.desired.ref} yet; try again"
        raise Unavailable(text, reason=RUNTIME_NOT_READY)
