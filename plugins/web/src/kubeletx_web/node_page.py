"""The node's page as fragments: head, runtimes, the table of pods, and a section for each room that is on. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec

from kubeletx.kube.pod_summary import summarise
from kubeletx.kube.types.core import Pod

from .live import Fragments
from .sections import sections
from .state import NodeState, Usage
from .svg import sparkline
from .templates import render
from .values import Runtime, field, listed
from .words import MEBIBYTE, frozen_memory, limits, mib, runtime_of, tone, verdict

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
    """One pod in the table. Sizes in MiB without unit, CPU in millicores; `cpu` and `memory` None: not measured."""

    pod: Pod
    ready: str
    status: str
    restarts: str
    tone: str
    runtime: str
    cpu: int | None
    memory: int | None
    is_machine: bool


def node_document(state: NodeState, page: Fragments, query: Query, live: str) -> str:
    """Return the whole page. `live`: path of its changes; empty: it has none."""
    return render(
        "node",
        node=state.node.metadata.name or state.version.node_name,
        parts=page.parts,
        rows=page.rows,
        rooms=[name for name in page.parts if name.startswith("room-")],
        query=query,
        live=live,
    )


class NodePage:
    """Renders the page of the node. Keeps the HTML of rows, since most do not change between two calls."""

    def __init__(self, state: NodeState, query: Query, now: Callable[[], datetime]) -> None:
        """`now`: the present time, in UTC."""
        self._state = state
        self._query = query
        self._now = now
        self._rows: dict[str, tuple[Pod, int, str]] = {}

    def fragments(self) -> Fragments:
        """Return the page as it is now."""
        state = self._state
        rows = self._chosen()
        parts = {
            "head": self._head(),
            "runtimes": render("runtimes", cards=[self._card(runtime) for runtime in state.runtimes]),
            "counts": render("counts", shown=len(rows), all=len(state.pods), query=self._query),
        }
        order = []
        for row in rows:
            name = f"pod-{row.pod.uid}"
            order.append(name)
            parts[name] = self._html(name, row)
        self._rows = {name: self._rows[name] for name in order}
        for name, shown in sections(state).items():  # a room that is off has a place, so that it can appear
            parts[f"room-{name}"] = f'<div id="rooms-{name}">{shown}</div>'
        return Fragments(parts=parts, rows=order)

    def _head(self) -> str:
        state = self._state
        usage = state.usage.get("", Usage(0))
        capacity = state.node.status.capacity
        return render(
            "head",
            node=state.node.metadata.name or state.version.node_name,
            verdict=verdict(state.node, state.runtimes, state.problem),
            version=state.version,
            cpu=last(usage.cpu),
            cores=capacity.get("cpu", ""),
            memory=last(usage.memory),
            cpu_plot=sparkline(usage.cpu, "CPU of the machine in the last 15 minutes"),
            memory_plot=sparkline(usage.memory, "Memory of the machine in the last 15 minutes"),
            stores=stores(state),
        )

    def _card(self, runtime: Runtime) -> Mapping[str, Any]:
        before = self._state.runtimes_before.get(runtime.name, runtime)
        calls = runtime.calls - before.calls
        spent = runtime.call_seconds - before.call_seconds
        return {
            "runtime": runtime,
            "tone": "good" if runtime.status == "Ready" and not runtime.cordoned else tone(runtime.status),
            "latency": f"{1000 * spent / calls:.1f} ms" if calls > 0 else "",
            "failed": runtime.failed_calls - before.failed_calls,
        }

    def _chosen(self) -> Sequence[Row]:
        now = self._now()
        rows = [self._row(pod, now) for pod in self._state.pods.values()]
        words = self._query.q.lower().split()
        if words:
            rows = [row for row in rows if all(word in _searched(row) for word in words)]
        rows.sort(key=lambda row: (row.pod.namespace, row.pod.name))
        if self._query.sort:
            rows.sort(key=_KEYS[self._query.sort], reverse=self._query.down)
        return rows

    def _row(self, pod: Pod, now: datetime) -> Row:
        summary = summarise(pod, now)
        usage = self._state.usage.get(pod.uid)
        return Row(
            pod=pod,
            ready=summary.ready,
            status=summary.status,
            restarts=summary.restarts,
            tone=tone(summary.status),
            runtime=runtime_of(pod),
            cpu=last(usage.cpu) if usage is not None else None,
            memory=last(usage.memory) if usage is not None else None,
            is_machine=pod.status.virtual_machine_status is not None,
        )

    def _html(self, name: str, row: Row) -> str:
        kept = self._rows.get(name)
        if kept is not None and kept[0] is row.pod and kept[1] == self._state.usage_revision:
            return kept[2]
        usage = self._state.usage.get(row.pod.uid, Usage(0))
        cpu_limit, memory_limit = limits(row.pod)
        html = render(
            "row",
            id=name,
            row=row,
            frozen=frozen_memory(row.pod),
            cpu_plot=sparkline(usage.cpu, _label("CPU", row.cpu, cpu_limit, "m"), cpu_limit),
            memory_plot=sparkline(
                usage.memory, _label("Memory", _mib(row.memory), _mib(memory_limit), " MiB"), memory_limit
            ),
            revision=self._state.usage_revision,
        )
        self._rows[name] = (row.pod, self._state.usage_revision, html)
        return html


_KEYS: Final[Mapping[str, Callable[[Row], Any]]] = {
    "name": lambda row: row.pod.name,
    "status": lambda row: row.status,
    "ready": lambda row: row.ready,
    "runtime": lambda row: row.runtime,
    "age": lambda row: (
        row.pod.metadata.creation_timestamp.timestamp() if row.pod.metadata.creation_timestamp else 0
    ),
    "cpu": lambda row: row.cpu or 0,
    "memory": lambda row: row.memory or 0,
}


def last(values: Sequence[int | None]) -> int | None:
    """Return the newest value; None if there is none or it was not measured."""
    return values[-1] if values else None


def stores(state: NodeState) -> Sequence[tuple[str, str]]:
    """Return the runtimes' names and the size of the images of each image store."""
    sizes: dict[str, int] = {}
    for image in listed(state.others.get("/v1/images")):
        names = ", ".join(map(str, field(image, "runtimes", [])))
        sizes[names] = sizes.get(names, 0) + field(image, "sizeBytes", 0)
    return [(names, mib(size)) for names, size in sizes.items()]


def _mib(size: int | None) -> int | None:
    return size // MEBIBYTE if size is not None else None


def _label(what: str, value: int | None, limit: int | None, unit: str) -> str:
    if value is None:
        return f"{what} was not measured"
    return f"{what} {value}{unit}" + (f" of {limit}{unit}" if limit else "")


def _searched(row: Row) -> str:
    meta = row.pod.metadata
    labels = " ".join(f"{name}={value}" for name, value in meta.labels.items())
    return f"{row.pod.namespace}/{row.pod.name} {row.status} {row.runtime} {labels}".lower()
