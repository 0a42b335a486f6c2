"""The node's page: head, runtimes, the table of pods, and a section for each room that is on. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec

from kubeletx.kube.pod_summary import summarise
from kubeletx.kube.requests import measured_limits
from kubeletx.kube.types.core import Pod

from .sections import sections
from .state import NodeState
from .svg import sparkline
from .templates import render
from .values import field, number
from .words import MEBIBYTE, frozen_memory, runtime_of, tone, verdict

SORTS: Final = ("name", "status", "ready", "runtime", "age", "cpu", "memory")


class Query(msgspec.Struct, frozen=True):
    """Choice and order of the pods in the table. `q`: words that each pod has in its name, state, runtime or labels. `sort`: a column."""

    q: str = ""
    sort: str = ""
    down: bool = False

    @staticmethod
    def of(query: Mapping[str, str]) -> Query:
        """Read the query of a URL; an unknown column is left out."""
        sort = query.get("sort", "")
        return Query(
            q=query.get("q", "")[:200], sort=sort if sort in SORTS else "", down=query.get("down") == "1"
        )

    @property
    def text(self) -> Mapping[str, str]:
        """The query of a URL that shows the same."""
        pairs = {"q": self.q, "sort": self.sort, "down": "1" if self.down else ""}
        return {name: value for name, value in pairs.items() if value}


class Row(msgspec.Struct, frozen=True):
    """One pod in the table. CPU in millicores, memory in bytes; None: not measured."""

    pod: Pod
    ready: str
    status: str
    restarts: str
    runtime: str
    cpu: int | None
    memory: int | None


class NodePage:
    """Renders the page of the node. Keeps the HTML of rows, since most do not change between two calls."""

    def __init__(self, state: NodeState, query: Query, now: Callable[[], datetime]) -> None:
        """`now`: the present time, in UTC."""
        self._state = state
        self._query = query
        self._now = now
        self._kept: dict[str, tuple[Pod, int, str]] = {}

    async def html(self) -> str:
        """Return the page as it is now."""
        state, rows = self._state, self._chosen()
        kept, self._kept = self._kept, {}
        for row in rows:
            before = kept.get(row.pod.uid)
            is_same = before is not None and before[:2] == (row.pod, state.usage_revision)
            self._kept[row.pod.uid] = before if before and is_same else self._row(row)
        cpu, memory = state.usage_of("")
        return render(
            "node_live",
            state=state,
            node=state.node.metadata.name or state.version.get("nodeName", ""),
            verdict=verdict(state.node, state.runtimes, state.problem),
            cpu=last(cpu),
            memory=last(memory),
            cpu_plot=sparkline(cpu, "CPU of the machine in the last 15 minutes"),
            memory_plot=sparkline(memory, "Memory of the machine in the last 15 minutes"),
            stores=stores(state.runtimes),
            cards=[self._card(runtime) for runtime in state.runtimes],
            query=self._query,
            rows=[html for _, _, html in self._kept.values()],
            rooms=sections(state),
        )

    def _card(self, runtime: Mapping[str, Any]) -> Mapping[str, Any]:
        before = self._state.runtimes_before.get(field(runtime, "name", ""), runtime)

        def grown(name: str) -> float:
            return number(runtime, name) - number(before, name)

        calls, status = grown("calls"), field(runtime, "status", "")
        hung: dict[str, Any] = field(runtime, "abandonedCalls", {})
        return {
            "runtime": runtime,
            "tone": "good" if status == "Ready" and not runtime.get("cordoned") else tone(status),
            "latency": f"{1000 * grown('callSeconds') / calls:.1f} ms" if calls > 0 else "",
            "failed": round(grown("failedCalls")),
            "hung": sum([number(hung, call) for call in hung]),
        }

    def _chosen(self) -> Sequence[Row]:
        rows = []
        for pod in self._state.pods.values():
            summary, (cpu, memory) = summarise(pod, self._now()), self._state.usage_of(pod.uid)
            rows.append(
                Row(
                    pod=pod, ready=summary.ready, status=summary.status, restarts=summary.restarts,
                    runtime=runtime_of(pod), cpu=last(cpu), memory=last(memory),
                )
            )  # fmt: skip
        words = self._query.q.lower().split()
        if words:
            rows = [row for row in rows if all(word in _searched(row) for word in words)]
        rows.sort(key=lambda row: (row.pod.namespace, row.pod.name))
        if self._query.sort:
            rows.sort(key=lambda row: _key(row, self._query.sort), reverse=self._query.down)
        return rows

    def _row(self, row: Row) -> tuple[Pod, int, str]:
        pod, revision = row.pod, self._state.usage_revision
        cpu, memory = self._state.usage_of(pod.uid)
        cpu_limit, memory_limit = measured_limits(pod.spec)
        html = render(
            "row",
            row=row,
            tone=tone(row.status),
            frozen=frozen_memory(pod),
            cpu_plot=sparkline(cpu, _label("CPU", row.cpu, cpu_limit, 1, "m"), cpu_limit),
            memory_plot=sparkline(
                memory, _label("Memory", row.memory, memory_limit, MEBIBYTE, " MiB"), memory_limit
            ),
            revision=revision,
        )
        return pod, revision, html


def _key(row: Row, column: str) -> Any:
    if column == "name":
        return row.pod.name
    if column == "age":
        created = row.pod.metadata.creation_timestamp
        return created.timestamp() if created is not None else 0
    return getattr(row, column) or (0 if column in ("cpu", "memory") else "")


def last(values: Sequence[int | None]) -> int | None:
    """Return the newest value; None if there is none or it was not measured."""
    return values[-1] if values else None


def stores(runtimes: Iterable[Mapping[str, Any]]) -> Iterable[tuple[str, float, float]]:
    """Return names of runtimes, used bytes and all bytes of the disk of each image store that is known."""
    by_store: dict[str, tuple[str, float, float]] = {}
    for runtime in runtimes:
        service: dict[str, Any] = field(runtime, "imageService", {})
        capacity, name = number(service, "capacityBytes"), field(runtime, "name", "")
        if capacity:
            store = field(service, "store", "") or name
            others = f"{by_store[store][0]}, " if store in by_store else ""
            by_store[store] = f"{others}{name}", capacity - number(service, "availableBytes"), capacity
    return by_store.values()


def _label(what: str, value: int | None, limit: int | None, size: int, unit: str) -> str:
    if value is None:
        return f"{what} was not measured"
    return f"{what} {value // size}{unit}" + (f" of {limit // size}{unit}" if limit else "")


def _searched(row: Row) -> str:
    meta = row.pod.metadata
    labels = " ".join(f"{name}={value}" for name, value in meta.labels.items())
    return f"{row.pod.namespace}/{row.pod.name} {row.status} {row.runtime} {labels}".lower()
