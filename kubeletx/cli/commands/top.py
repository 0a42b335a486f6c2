"""``kubeletx top``: shows usage of pods, runtimes and the node, and names the runtimes that did not answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple, NoReturn

import click

from kubeletx.api import NotFound
from kubeletx.kube.text.human import human_bytes, human_duration, mebibytes, millicores
from kubeletx.server.views import MeasuredUsage, PodUsage, UsageHistory, UsageView

from ..connection.client import AgentClient
from ..options.common import namespace_option, with_agent
from ..options.completing import complete_kinds
from ..options.exit_codes import ExitCode
from ..options.go_flags import boolean, command
from ..output.kinds import kind_of
from ..output.live import keep_showing, sparkline
from ..output.printers import Column, ObjectTable
from ..output.screen import screen
from ..output.selectors import parse_selector, select
from ..output.words import without_control

_MACHINE: Final = ""
_LEAST_SAMPLES, _MOST_SAMPLES, _NARROW = 10, 90, 100
"""Widths of a sparkline; above `_NARROW` columns of the terminal it has a third of the others."""


@command(short_help="Show usage of pods, runtimes or the node.")
@click.argument("kind", shell_complete=complete_kinds("pods", "runtimes", "node"))
@click.argument("names", nargs=-1, shell_complete=complete_kinds())
@namespace_option
@boolean("-A", "--all-namespaces", help="All namespaces.")
@click.option("-l", "--selector", default="", metavar="SELECTOR", help="Only pods with these labels.")
@boolean("--containers", help="One line for each container.")
@click.option("--sort-by", type=click.Choice(["cpu", "memory"]), default=None, help="Largest first.")
@boolean("--no-headers", help="Print no headings.")
@boolean("-w", "--watch", help="Keep running and refresh, with the last minutes and limits.")
@with_agent
def top(
    agent: AgentClient,
    kind: str,
    names: tuple[str, ...],
    namespace: str,
    all_namespaces: bool,
    selector: str,
    containers: bool,
    sort_by: str | None,
    no_headers: bool,
    watch: bool,
) -> int:
    """Show usage. KIND is pods, runtimes or node.

    With -w the columns after CPU and MEMORY are the last minutes, a measurement of 10 seconds each, up to their
    largest value.
    """
    chosen = kind_of(kind).singular
    if chosen not in ("pod", "runtime", "node"):
        raise click.UsageError(f"there is no usage of {kind_of(kind).plural}; use pods, runtimes or node")
    wanted = parse_selector(selector)

    def table_of(usage: UsageView) -> _Table:
        if chosen == "node":
            return _node(usage)
        if chosen == "runtime":
            return _runtimes(usage, names)
        pods = [
            pod
            for pod in usage.pods
            if (all_namespaces or pod.namespace == namespace)
            and (not names or pod.name in names)
            and select(wanted, pod.labels)
        ]
        if sort_by is not None:
            field = "cpu_millicores" if sort_by == "cpu" else "memory_bytes"
            pods.sort(key=lambda pod: -(getattr(pod.usage, field) or 0))
        return _pods(pods, all_namespaces=all_namespaces, containers=containers)

    if watch:
        _watch(agent, table_of, headers=not no_headers)
    usage = agent.get("/v1/usage", UsageView)
    table = table_of(usage)
    if missing := [name for name in names if name not in {row.name for row in table.rows}]:
        raise NotFound(
            f"no usage of {chosen} {missing[0]!r}; it is not on this node, or was not measured yet"
        )
    for line in _plain(table, headers=not no_headers):
        click.echo(line)
    if usage.missing and chosen != "node":
        click.echo(_warning(usage), err=True)
    return ExitCode.OK


class _Row(NamedTuple):
    """Usage of the object `name`, with the cells before and after it.

    `limits`: of CPU in millicores and of memory in bytes; None: no limit. `uids`: pods whose usage is summed.
    """

    name: str
    front: Sequence[str]
    usage: MeasuredUsage
    back: Sequence[str] = ()
    limits: tuple[int | None, int | None] = (None, None)
    uids: Sequence[str] = ()


class _Table(NamedTuple):
    """Rows, and the titles of their cells. `shares`: without a watch, usage is also shown in percent of the limits."""

    front: Sequence[str]
    back: Sequence[str]
    rows: Sequence[_Row]
    shares: bool = False


def _pods(pods: list[PodUsage], *, all_namespaces: bool, containers: bool) -> _Table:
    heads = ["NAMESPACE"] * all_namespaces + (["POD", "NAME"] if containers else ["NAME"])
    rows = []
    for pod in pods:
        front, back = [pod.namespace] * all_namespaces + [pod.name], [pod.runtime]
        if containers:
            rows += [_Row(pod.name, [*front, part.name], part.usage, back) for part in pod.containers]
        else:
            limits = pod.cpu_limit_millicores, pod.memory_limit_bytes
            rows.append(_Row(pod.name, front, pod.usage, back, limits, [pod.uid]))
    return _Table(heads, ["RUNTIME"], rows)


def _runtimes(usage: UsageView, names: tuple[str, ...]) -> _Table:
    rows = [
        _Row(
            item.name,
            [item.name, item.workload_type, str(item.pods)],
            item.usage,
            [human_bytes(item.usage.fs_bytes)],
            uids=[pod.uid for pod in usage.pods if pod.runtime == item.name],
        )
        for item in usage.runtimes
        if not names or item.name in names
    ]
    return _Table(["NAME", "TYPE", "PODS"], ["DISK"], rows)


def _node(usage: UsageView) -> _Table:
    limits = usage.node_cpu_capacity_millicores, usage.node_memory_capacity_bytes
    row = _Row(usage.node_name, [usage.node_name], usage.node, limits=limits, uids=[_MACHINE])
    return _Table(["NAME"], [], [row], shares=True)


def _watch(agent: AgentClient, table_of: Callable[[UsageView], _Table], *, headers: bool) -> NoReturn:
    def draw() -> list[str]:
        usage = agent.get("/v1/usage", UsageView)
        past = agent.get("/v1/usage/history", UsageHistory)
        lines = _with_past(table_of(usage), past, headers=headers)
        return [*lines, _warning(usage)] if usage.missing else lines

    keep_showing(draw)


def _warning(usage: UsageView) -> str:
    return f"Warning: no answer from {', '.join(map(without_control, usage.missing))}; sums are partial"


def _plain(table: _Table, *, headers: bool) -> list[str]:
    cpu_share, memory_share = (["CPU(%)"], ["MEMORY(%)"]) if table.shares else ([], [])
    titles = [*table.front, "CPU(cores)", *cpu_share, "MEMORY(bytes)", *memory_share, *table.back]
    rows = []
    for row in table.rows:
        cpu, memory = row.usage.cpu_millicores, row.usage.memory_bytes
        cells = [*row.front, millicores(cpu), *[_percent(cpu, row.limits[0])] * table.shares]
        cells += [mebibytes(memory), *[_percent(memory, row.limits[1])] * table.shares, *row.back]
        rows.append([without_control(cell) for cell in cells])
    return ObjectTable(titles).render(rows, headers=headers)


def _with_past(table: _Table, past: UsageHistory, *, headers: bool) -> list[str]:
    """Return the lines of the table with limits and sparklines."""
    width = min(_MOST_SAMPLES, _LEAST_SAMPLES + max(0, (screen().width or 0) - _NARROW) // 3)
    last = f"LAST {human_duration(width * past.interval_seconds)}"
    titles = (*table.front, "CPU/LIMIT", last, "MEMORY/LIMIT", last, *table.back)
    series = {each.uid: each for each in past.series}
    rows = []
    for row in table.rows:
        mine = [series[uid] for uid in row.uids if uid in series]
        cpu_limit, memory_limit = row.limits
        cells = [*row.front, _of_limit(row.usage.cpu_millicores, cpu_limit, millicores)]
        cells += [sparkline(_sums(each.cpu for each in mine), width)]
        cells += [_of_limit(row.usage.memory_bytes, memory_limit, mebibytes)]
        cells += [sparkline(_sums(each.memory for each in mine), width)]
        rows.append([without_control(cell) for cell in (*cells, *row.back)])
    columns = [
        Column(each, lambda *_: "", priority=each in table.back, long=each == "NAME") for each in titles
    ]
    return ObjectTable(columns).render(rows, headers=headers)


def _of_limit(value: int | None, limit: int | None, show: Callable[[int | None], str]) -> str:
    return show(value) + (f"/{show(limit)}" if limit else "")


def _sums(series: Iterable[Sequence[int | None]]) -> list[int | None]:
    """Return the sums of the samples of several pods; None where none was measured."""
    known = ([value for value in values if value is not None] for values in zip(*series, strict=True))
    return [sum(values) if values else None for values in known]


def _percent(part: int | None, whole: int | None) -> str:
    return f"{100 * part // whole}%" if part is not None and whole else "<unknown>"
