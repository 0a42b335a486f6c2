"""``kubeletx top``: shows usage of pods, runtimes and the node, and names the runtimes that did not answer."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn, TypeAlias

import click

from kubeletx.api import NotFound
from kubeletx.kube.text.human import human_bytes, human_duration, mebibytes, millicores
from kubeletx.server.views import MeasuredUsage, PodUsage, UsageHistory, UsageView

from ..connection.client import AgentClient
from ..options.common import color_option, namespace_option, seconds_of, with_agent
from ..options.completing import complete_kinds
from ..options.exit_codes import ExitCode
from ..options.go_flags import boolean, command
from ..output.kinds import kind_of
from ..output.printers import Column, ObjectTable
from ..output.screen import screen
from ..output.selectors import parse_selector, select
from ..output.words import without_control

if TYPE_CHECKING:
    from kubeletx.kube.types.core import Pod

_Limits: TypeAlias = tuple[int | None, int | None]
"""Limit of CPU in millicores, and limit of memory in bytes; None: no limit."""
_Sample: TypeAlias = tuple[int | None, int | None]
_MACHINE: Final = ""
_LEAST_SAMPLES: Final = 10
_MOST_SAMPLES: Final = 90
_NEAR: Final = 0.9
_LEAST_SECONDS: Final = 0.5


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
@click.option(
    "--interval", default="2s", metavar="DURATION", show_default=True, help="Time between refreshes."
)
@color_option
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
    interval: str,
) -> int:
    """Show usage. KIND is pods, runtimes or node.

    With -w the columns after CPU and MEMORY are the last minutes, a measurement of 10 seconds each, up to their
    largest value. Usage of 90 % of a limit or more is red.
    """
    chosen = kind_of(kind).singular
    if chosen not in ("pod", "runtime", "node"):
        raise click.UsageError(f"there is no usage of {kind_of(kind).plural}; use pods, runtimes or node")
    wanted = parse_selector(selector)

    def table_of(usage: UsageView) -> _Table:
        if chosen == "node":
            return _node(usage)
        if chosen == "runtime":
            if not watch:
                _check(names, {item.name for item in usage.runtimes}, "runtime")
            return _runtimes(usage, names)
        pods = [
            pod
            for pod in usage.pods
            if (all_namespaces or pod.namespace == namespace)
            and (not names or pod.name in names)
            and select(wanted, pod.labels)
        ]
        if not watch:
            _check(names, {pod.name for pod in pods}, "pod")
        return _pods(_sorted(pods, sort_by), all_namespaces=all_namespaces, containers=containers)

    if watch:
        _watch(
            agent, table_of, max(_LEAST_SECONDS, seconds_of("--interval", interval)), headers=not no_headers
        )
    usage = agent.get("/v1/usage", UsageView)
    for line in _plain(table_of(usage), headers=not no_headers):
        click.echo(line)
    if usage.missing and chosen != "node":
        click.echo(f"Warning: {_missing(usage)}", err=True)
    return ExitCode.OK


class _Row(NamedTuple):
    """One row. `front`, `back`: cells before and after the usage. `uids`: the pods whose usage is summed; `_MACHINE`: the machine."""

    front: Sequence[str]
    usage: MeasuredUsage
    back: Sequence[str] = ()
    uids: Sequence[str] = ()
    limits: _Limits = (None, None)


class _Table(NamedTuple):
    """Rows with the titles of their own cells. `shares`: usage is also shown in percent of the limits."""

    front: Sequence[str]
    back: Sequence[str]
    rows: Sequence[_Row]
    shares: bool = False


def _check(names: tuple[str, ...], measured: set[str], kind: str) -> None:
    missing = [name for name in names if name not in measured]
    if missing:
        raise NotFound(f"no usage of {kind} {missing[0]!r}; it is not on this node, or was not measured yet")


def _sorted(pods: list[PodUsage], by: str | None) -> list[PodUsage]:
    if by is None:
        return pods
    field = "cpu_millicores" if by == "cpu" else "memory_bytes"
    return sorted(pods, key=lambda pod: -(getattr(pod.usage, field) or 0))


def _pods(pods: list[PodUsage], *, all_namespaces: bool, containers: bool) -> _Table:
    heads = ["NAMESPACE"] * all_namespaces + (["POD", "NAME"] if containers else ["NAME"])
    rows = []
    for pod in pods:
        front = [pod.namespace] * all_namespaces + [pod.name]
        if containers:
            rows += [_Row([*front, part.name], part.usage, [pod.runtime]) for part in pod.containers]
        else:
            rows.append(_Row(front, pod.usage, [pod.runtime], [pod.uid]))
    return _Table(heads, ["RUNTIME"], rows)


def _runtimes(usage: UsageView, names: tuple[str, ...]) -> _Table:
    rows = [
        _Row(
            [item.name, item.workload_type, str(item.pods)],
            item.usage,
            [human_bytes(item.usage.fs_bytes)],
            [pod.uid for pod in usage.pods if pod.runtime == item.name],
        )
        for item in usage.runtimes
        if not names or item.name in names
    ]
    return _Table(["NAME", "TYPE", "PODS"], ["DISK"], rows)


def _node(usage: UsageView) -> _Table:
    limits = usage.node_cpu_capacity_millicores, usage.node_memory_capacity_bytes
    return _Table(["NAME"], [], [_Row([usage.node_name], usage.node, [], [_MACHINE], limits)], shares=True)


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


def _percent(part: int | None, whole: int | None) -> str:
    return f"{100 * part // whole}%" if part is not None and whole else "<unknown>"


def _missing(usage: UsageView) -> str:
    return f"no answer from {', '.join(map(without_control, usage.missing))}; sums are partial"


class _Past:
    """Usage of the last minutes, and the limits of pods, as far as they were read."""

    def __init__(self, agent: AgentClient) -> None:
        self._agent = agent
        self._next = 0
        self.interval_seconds = 0.0
        self.series: dict[str, list[_Sample]] = {}
        self.limits: dict[str, _Limits] = {}

    def read(self, usage: UsageView) -> None:
        """Read the samples since the last call, and the limits if there are other pods."""
        new = self._agent.get("/v1/usage/history", UsageHistory, after=self._next)
        before = self.series if new.next >= self._next else {}  # a smaller number: the agent was restarted
        self.series = {
            item.uid: [*before.get(item.uid, ()), *zip(item.cpu, item.memory, strict=True)][-_MOST_SAMPLES:]
            for item in new.series
        }
        self._next, self.interval_seconds = new.next, new.interval_seconds
        if any(pod.uid not in self.limits for pod in usage.pods):
            from kubeletx.kube.types.core import PodList  # here: a decoder of all fields takes 20 ms

            pods = self._agent.get("/v1/pods", PodList).items
            self.limits = dict.fromkeys((pod.uid for pod in usage.pods), (None, None))
            self.limits.update((str(pod.uid), _limits(pod)) for pod in pods)

    def sum_of(self, uids: Sequence[str], index: int) -> list[int | None]:
        """Return the sums over these pods, newest last. `index`: 0 for CPU, 1 for memory."""
        newest_first = zip_longest(
            *(reversed(self.series.get(uid, ())) for uid in uids), fillvalue=(None, None)
        )
        sums = []
        for samples in newest_first:
            known = [sample[index] for sample in samples if sample[index] is not None]
            sums.append(sum(value for value in known if value is not None) if known else None)
        return sums[::-1]


def _limits(pod: Pod) -> _Limits:
    from kubeletx.kube.requests import enforceable_limits

    amounts = enforceable_limits(pod.spec)
    cpu, memory = amounts.get("cpu"), amounts.get("memory")
    return cpu.milli_value if cpu is not None else None, memory.value if memory is not None else None


def _watch(
    agent: AgentClient, table_of: Callable[[UsageView], _Table], seconds: float, *, headers: bool
) -> NoReturn:
    from ..output.live import keep_showing

    past = _Past(agent)

    def fetch() -> UsageView:
        usage = agent.get("/v1/usage", UsageView)
        past.read(usage)
        return usage

    def draw(usage: UsageView) -> list[str]:
        lines = _with_past(table_of(usage), past, headers=headers)
        return [*lines, f"Warning: {_missing(usage)}"] if usage.missing else lines

    keep_showing(fetch, draw, seconds)


def _with_past(table: _Table, past: _Past, *, headers: bool) -> list[str]:
    """Return the lines of the table with sparklines, which have the space that the other columns leave."""
    from ..output.live import sparkline

    out = screen()
    heads, texts, near = [*table.front, "CPU/LIMIT", "MEMORY/LIMIT", *table.back], [], []
    for row in table.rows:
        limits = past.limits.get(row.uids[0], row.limits) if len(row.uids) == 1 else row.limits
        cpu = _of_limit(row.usage.cpu_millicores, limits[0], millicores)
        memory = _of_limit(row.usage.memory_bytes, limits[1], mebibytes)
        near += [text for text, is_near in (cpu, memory) if is_near]
        texts.append([without_control(text) for text in (*row.front, cpu[0], memory[0], *row.back)])
    first = len(table.front) + 1
    widths = [3 + max(map(len, column)) for column in zip(heads, *texts, strict=True)]
    space = (out.width or 0) - sum(widths) - 3
    if space < 2 * _LEAST_SAMPLES:
        space += sum(widths[first + 1 :])  # the table leaves these columns out
    room = min(_MOST_SAMPLES, max(_LEAST_SAMPLES, space // 2))
    span = f"LAST {human_duration(room * past.interval_seconds)}"
    rows = []
    for row, cells in zip(table.rows, texts, strict=True):
        cpu_line, memory_line = (sparkline(past.sum_of(row.uids, index), room) for index in (0, 1))
        rows.append([*cells[:first], cpu_line, cells[first], memory_line, *cells[first + 1 :]])
    titles = (*heads[:first], span, heads[first], span, *table.back)
    columns = [
        Column(each, lambda *_: "", priority=each in table.back, long=each == "NAME") for each in titles
    ]
    lines = ObjectTable(columns).render(rows, headers=headers)
    if out.colored and near:
        pattern = rf"(?<!\S)(?:{'|'.join(map(re.escape, near))})(?!\S)"
        lines = [re.sub(pattern, r"\033[31m\g<0>\033[0m", line) for line in lines]
    return lines


def _of_limit(value: int | None, limit: int | None, show: Callable[[int | None], str]) -> tuple[str, bool]:
    """Return usage with its limit, such as ``50m/500m``, and whether it is near the limit."""
    if value is None or not limit:
        return show(value), False
    return f"{show(value)}/{show(limit)}", value >= limit * _NEAR
