"""``kubeletx top``: shows usage of pods, runtimes and the node, and names the runtimes that did not answer."""

from __future__ import annotations

from collections.abc import Sequence

import click

from kubeletx.api import NotFound
from kubeletx.kube.text.human import human_bytes, mebibytes, millicores
from kubeletx.server.views import MeasuredUsage, PodUsage, UsageView

from ..connection.client import AgentClient
from ..options.common import namespace_option, with_agent
from ..options.completing import complete_kinds
from ..options.exit_codes import ExitCode
from ..options.go_flags import boolean, command
from ..options.selectors import parse_selector, select
from ..output.kinds import kind_of
from ..output.printers import ObjectTable


@command(short_help="Show usage of pods, runtimes or the node.")
@click.argument("kind", shell_complete=complete_kinds("pods", "runtimes", "node"))
@click.argument("names", nargs=-1, shell_complete=complete_kinds())
@namespace_option
@boolean("-A", "--all-namespaces", help="All namespaces.")
@click.option("-l", "--selector", default="", metavar="SELECTOR", help="Only pods with these labels.")
@boolean("--containers", help="One line for each container.")
@click.option("--sort-by", type=click.Choice(["cpu", "memory"]), default=None, help="Largest first.")
@boolean("--no-headers", help="Print no headings.")
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
) -> int:
    """Show usage. KIND is pods, runtimes or node."""
    chosen = kind_of(kind).singular
    usage = agent.get("/v1/usage", UsageView)
    if chosen == "node":
        titles, rows = _node(usage)
    elif chosen == "runtime":
        titles, rows = _runtimes(usage, names)
    elif chosen == "pod":
        wanted = parse_selector(selector)
        pods = [
            pod
            for pod in usage.pods
            if (all_namespaces or pod.namespace == namespace)
            and (not names or pod.name in names)
            and select(wanted, pod.labels)
        ]
        _check(names, {pod.name for pod in pods}, "pod")
        titles, rows = _pods(_sorted(pods, sort_by), all_namespaces=all_namespaces, containers=containers)
    else:
        raise click.UsageError(f"there is no usage of {kind_of(kind).plural}; use pods, runtimes or node")
    for line in ObjectTable(titles).render(rows, headers=not no_headers):
        click.echo(line)
    if usage.missing and chosen != "node":
        click.echo(f"Warning: no answer from {', '.join(usage.missing)}; sums are partial", err=True)
    return ExitCode.OK


def _check(names: tuple[str, ...], measured: set[str], kind: str) -> None:
    missing = [name for name in names if name not in measured]
    if missing:
        raise NotFound(f"no usage of {kind} {missing[0]!r}; it is not on this node, or was not measured yet")


def _sorted(pods: list[PodUsage], by: str | None) -> list[PodUsage]:
    if by is None:
        return pods
    field = "cpu_millicores" if by == "cpu" else "memory_bytes"
    return sorted(pods, key=lambda pod: -(getattr(pod.usage, field) or 0))


def _cells(usage: MeasuredUsage) -> list[str]:
    return [millicores(usage.cpu_millicores), mebibytes(usage.memory_bytes)]


def _pods(
    pods: list[PodUsage], *, all_namespaces: bool, containers: bool
) -> tuple[Sequence[str], list[list[str]]]:
    heads = ["NAMESPACE"] * all_namespaces + (["POD", "NAME"] if containers else ["NAME"])
    rows = []
    for pod in pods:
        front = [pod.namespace] * all_namespaces + [pod.name]
        if containers:
            rows += [[*front, part.name, *_cells(part.usage), pod.runtime] for part in pod.containers]
        else:
            rows.append([*front, *_cells(pod.usage), pod.runtime])
    return (*heads, "CPU(cores)", "MEMORY(bytes)", "RUNTIME"), rows


def _runtimes(usage: UsageView, names: tuple[str, ...]) -> tuple[Sequence[str], list[list[str]]]:
    _check(names, {item.name for item in usage.runtimes}, "runtime")
    heads = ("NAME", "TYPE", "PODS", "CPU(cores)", "MEMORY(bytes)", "DISK")
    rows = [
        [item.name, item.workload_type, str(item.pods), *_cells(item.usage), human_bytes(item.usage.fs_bytes)]
        for item in usage.runtimes
        if not names or item.name in names
    ]
    return heads, rows


def _node(usage: UsageView) -> tuple[Sequence[str], list[list[str]]]:
    cpu, memory = usage.node.cpu_millicores, usage.node.memory_bytes
    heads = ("NAME", "CPU(cores)", "CPU(%)", "MEMORY(bytes)", "MEMORY(%)")
    row = [
        usage.node_name,
        millicores(cpu),
        _percent(cpu, usage.node_cpu_capacity_millicores),
        mebibytes(memory),
        _percent(memory, usage.node_memory_capacity_bytes),
    ]
    return heads, [row]


def _percent(part: int | None, whole: int | None) -> str:
    return f"{100 * part // whole}%" if part is not None and whole else "<unknown>"
