"""Metrics of node remedy, as Prometheus text on ``--metrics-address``.

States and problem counters are those of the records, so they survive restarts and are the same for every controller that
follows the cluster; what this process did is counted by it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Final

from kubeletx.api import InvalidConfig
from kubeletx.api.counting import LabelledDurations, Metric, Samples, counter, gauge, histogram
from kubeletx.kube.text.exposition import CONTENT_TYPE, family_of, render

from ..decisions import Change
from ..model import NodeFence, RemedyOutcome, RemedySettings, RemedyTask
from .events import repeats_of

if TYPE_CHECKING:
    from aiohttp import web

_BOUNDS: Final = (0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)


class RemedyMetrics:
    """Counts what this controller does, and describes the records."""

    def __init__(
        self,
        *,
        fences: Callable[[], Mapping[str, NodeFence]],
        settings: Callable[[], RemedySettings],
        now: Callable[[], datetime],
        leads: Callable[[], bool],
        problem: Callable[[], str],
        configuration_problems: Callable[[], int],
    ) -> None:
        """`problem`: why the cluster cannot be seen now; empty: it can."""
        self._fences, self._settings, self._now = fences, settings, now
        self._problem = problem
        self._changes: Counter[tuple[str, str]] = Counter()
        self._methods: Counter[tuple[str, str, str]] = Counter()
        self._events: Counter[str] = Counter()
        self._seconds = LabelledDurations(_BOUNDS)
        self._metrics = (
            gauge("kubeletx_remedy_leader", "1: this controller leads.", lambda: int(leads())),
            gauge(
                "kubeletx_remedy_connected",
                "1: nodes and records are read and current.",
                lambda: int(not problem()),
            ),
            gauge(
                "kubeletx_remedy_configuration_problems",
                "Errors in the configuration.",
                configuration_problems,
            ),
            gauge("kubeletx_remedy_paused", "1: all nodes are paused.", lambda: int(settings().pause)),
            gauge("kubeletx_remedy_flows", "Flows that have not ended.", self._flows, "step", "status"),
            gauge("kubeletx_remedy_failed", "1: all remedies of the node failed.", self._failed, "node"),
            gauge(
                "kubeletx_remedy_recent_problems",
                "Flows of the node that began within the period of alarms.",
                self._repeats,
                "node",
            ),
            gauge(
                "kubeletx_remedy_repeating",
                "1: the node has as many recent problems as raise an alarm.",
                self._repeating,
                "node",
            ),
            counter(
                "kubeletx_remedy_problems_total",
                "Flows of the node by reason, as its record has counted them.",
                self._problems,
                "node",
                "reason",
            ),
            counter("kubeletx_remedy_changes_total", "Changes of flows.", self._changes, "step", "status"),
            counter(
                "kubeletx_remedy_methods_total",
                "Methods that have ended.",
                self._methods,
                "step",
                "method",
                "result",
            ),
            histogram(
                "kubeletx_remedy_method_duration_seconds",
                "Time that methods took.",
                self._seconds,
                "step",
                "method",
            ),
            counter("kubeletx_remedy_alarms_total", "Alarms of this process.", self._events, "reason"),
        )

    def changed(self, change: Change) -> None:
        self._changes[change.fence.step, change.fence.flow.status] += 1

    def alarmed(self, reason: str) -> None:
        self._events[reason] += 1

    def ended(self, task: RemedyTask, outcome: RemedyOutcome, seconds: float) -> None:
        """Count a method that has ended, after `seconds`."""
        step, method = task.step.value, task.method.name
        self._methods[step, method, outcome.result.value] += 1
        self._seconds.add(seconds, step, method)

    def text(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return render(map(family_of, self._metrics))

    @property
    def metrics(self) -> tuple[Metric, ...]:
        return self._metrics

    async def answer(self, request: web.Request) -> web.Response:
        """Answer ``/metrics``, and ``/healthz`` with 503 while the cluster cannot be seen."""
        from aiohttp import web

        if request.path == "/metrics":
            return web.Response(body=self.text(), headers={"Content-Type": CONTENT_TYPE})
        problem = self._problem()
        return web.Response(text=f"{problem or 'ok'}\n", status=503 if problem else 200)

    def _flows(self) -> Samples:
        open_ = (fence for fence in self._fences().values() if not fence.is_over)
        return list(Counter((fence.step, fence.flow.status) for fence in open_).items())

    def _failed(self) -> Samples:
        return [((name,), 1) for name, fence in self._fences().items() if fence.flow.terminal]

    def _repeats(self) -> Samples:
        return [((name,), count) for name, count in self._recent()]

    def _repeating(self) -> Samples:
        most = self._settings().alarm_count
        return [((name,), 1) for name, count in self._recent() if count >= most]

    def _recent(self) -> Iterator[tuple[str, int]]:
        now, settings = self._now(), self._settings()
        for name, fence in self._fences().items():
            if count := repeats_of(fence, settings, now):
                yield name, count

    def _problems(self) -> Samples:
        return [
            ((name, reason), count)
            for name, fence in self._fences().items()
            for reason, count in fence.problems.items()
        ]


def parse_address(text: str) -> tuple[str, int]:
    """Return host and port of ``HOST:PORT``; an empty host means all addresses. Raises InvalidConfig."""
    host, _, port = text.rpartition(":")
    if not port.isdigit() or int(port) > 65535 or not port.isascii():
        raise InvalidConfig(
            field="--metrics-address", problem=f"{text!r} is not HOST:PORT", fix="write 127.0.0.1:9299"
        )
    return host.strip("[]"), int(port)


@asynccontextmanager
async def served(metrics: RemedyMetrics, address: str) -> AsyncIterator[int]:
    """Serve the metrics while the context lasts; yield the port. Raises InvalidConfig if that fails."""
    from aiohttp import web

    host, port = parse_address(address)
    app = web.Application()
    app.router.add_get("/metrics", metrics.answer)
    app.router.add_get("/healthz", metrics.answer)
    runner = web.AppRunner(app, handle_signals=False, access_log=None, shutdown_timeout=0.5)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host or None, port)
        try:
            await site.start()
        except OSError as error:
            problem = f"cannot listen on {address}: {error.strerror or error}"
            raise InvalidConfig(
                field="--metrics-address", problem=problem, fix="write another address"
            ) from error
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()
