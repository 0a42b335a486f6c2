"""``kubeletx describe``: shows everything about a pod, the node, a runtime or a volume, with its events."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import quote

import click

from kubeletx.api import NotFound
from kubeletx.kube.types.core import Pod
from kubeletx.kube.types.event import Event
from kubeletx.kube.types.node import Node
from kubeletx.server.views import PodHistory, RuntimeDetail, RuntimeView

from ..connection.client import AgentClient, pod_path
from ..options.common import DEFAULT_NAMESPACE, namespace_option, with_agent
from ..options.completing import complete_kinds
from ..options.go_flags import boolean, command
from ..output.kinds import OBJECT_PLURALS, OBJECTS, ObjectKind, kind_of, kinds_and_names
from ..output.printers import print_object
from ..output.words import now


@command(short_help="Show everything about a pod, the node, a runtime or a volume.")
@click.argument(
    "kind",
    shell_complete=complete_kinds("pods", "runtimes", "node", "volumes", *OBJECT_PLURALS),
)
@click.argument("names", nargs=-1, shell_complete=complete_kinds())
@click.option("-l", "--selector", default="", metavar="SELECTOR", help="Pods with these labels.")
@namespace_option
@boolean("-A", "--all-namespaces", help="All namespaces.")
@boolean("--history", help="Show the last actions of the agent on each pod, with their results.")
@boolean("--timeline", help="Draw the start of each pod as bars on a time axis.")
@with_agent
def describe(
    agent: AgentClient,
    kind: str,
    names: tuple[str, ...],
    selector: str,
    namespace: str,
    all_namespaces: bool,
    history: bool,
    timeline: bool,
) -> None:
    """Show everything about a pod, the node, a runtime, a volume or an object of 'kubeletx apply'.

    KIND is pod, node, runtime, volume, configmap, secret or persistentvolumeclaim, or KIND/NAME. The name of a volume
    is POD/VOLUME, or the name of its persistent volume.
    """
    is_first = True
    for chosen, wanted in kinds_and_names((kind, *names)):
        if not is_first:
            click.echo("\n")
        is_first = False
        if chosen.singular == "pod":
            if wanted and all_namespaces:
                raise click.UsageError("give names or --all-namespaces, not both")
            bound = None if all_namespaces else namespace
            _pods(agent, wanted, selector, bound, history=history, timeline=timeline)
        elif chosen.singular == "node":
            _node(agent, wanted)
        elif chosen.singular == "runtime":
            everything = [item.name for item in agent.items("/v1/runtimes", RuntimeView)]
            describe_runtimes(agent, wanted or tuple(everything), None)
        elif chosen.singular == "volume":
            _volumes(agent, wanted, None if all_namespaces else namespace)
        elif chosen.singular in OBJECTS:
            _objects(agent, chosen, wanted, selector, None if all_namespaces else namespace)
        else:
            raise click.UsageError(
                f"{chosen.plural} have no description; use 'kubeletx get {chosen.plural} -o yaml'"
            )


def _pods(
    agent: AgentClient,
    names: tuple[str, ...],
    selector: str,
    namespace: str | None,
    *,
    history: bool,
    timeline: bool,
) -> None:
    if names and namespace is not None:
        pods: Sequence[Pod] = [agent.get(pod_path(namespace, name), Pod) for name in names]
    else:
        pods = kind_of("pods").selected(agent, selector, namespace)
    events = agent.items("/v1/events", Event)
    _print([pod_sheet(agent, pod, events, history=history, timeline=timeline) for pod in pods])


def pod_sheet(
    agent: AgentClient, pod: Pod, events: Sequence[Event], *, history: bool, timeline: bool
) -> list[str]:
    """Return the lines about a pod, also for ``kubeletx report``. `events`: of all objects."""
    from ..describe.pod import describe_history, describe_pod

    try:
        past = agent.get(pod_path(pod.namespace, pod.name, "history"), PodHistory)
    except NotFound:  # removed since the list was read
        past = PodHistory()
    lines = describe_pod(pod, [e for e in events if _is_about_pod(e, pod)], now(), past.start)
    if timeline:
        from ..describe.timeline import describe_start

        lines += describe_start(past.start, now())
    return lines + (describe_history(past.items, now()) if history else [])


def _is_about_pod(event: Event, pod: Pod) -> bool:
    ref = event.involved_object
    if ref.kind != "Pod" or ref.name != pod.name:
        return False
    return (ref.namespace or DEFAULT_NAMESPACE) == pod.namespace and ref.uid in (None, "", pod.uid)


def _node(agent: AgentClient, names: tuple[str, ...]) -> None:
    from ..describe.node import describe_node

    node = agent.get("/v1/node", Node)
    if names and names != (node.metadata.name,):
        raise NotFound(f"node {names[0]!r} not found; this agent's node is {node.metadata.name!r}")
    runtimes = agent.items("/v1/runtimes", RuntimeView)
    pods = agent.items("/v1/pods", Pod)
    _print([describe_node(node, runtimes, pods, _events_of(agent, "Node", lambda _name: True), now())])


def _objects(
    agent: AgentClient, kind: ObjectKind, names: tuple[str, ...], selector: str, namespace: str | None
) -> None:
    from ..describe.object import describe_object

    items = kind.selected(agent, selector, namespace)
    _print([describe_object(item) for item in _chosen(kind, items, names, lambda item: (kind.name(item),))])


def _chosen(
    kind: ObjectKind, items: Sequence[Any], names: tuple[str, ...], names_of: Callable[[Any], Sequence[str]]
) -> Sequence[Any]:
    """Return the items with one of these names; all without names. Raises NotFound for a name that no item has."""
    for name in names:
        if not any(name in names_of(item) for item in items):
            raise NotFound(f"{kind.singular} {name!r} not found; 'kubeletx get {kind.plural} -A' lists all")
    return [item for item in items if not names or {*names} & {*names_of(item)}]


def _volumes(agent: AgentClient, names: tuple[str, ...], namespace: str | None) -> None:
    from ..describe.volume import describe_volume
    from ..output.columns import volume_name

    kind = kind_of("volumes")
    wanted = _chosen(
        kind,
        kind.selected(agent, "", namespace),
        names,
        lambda volume: (volume_name(volume), volume.persistent_volume),
    )
    events = agent.items("/v1/events", Event)
    sheets = []
    for volume in wanted:
        about = [
            event
            for event in events
            if event.involved_object.kind == "Pod"
            and event.involved_object.uid == volume.pod_uid
            and f'"{volume.name}"' in (event.message or "")
        ]
        sheets.append(describe_volume(volume, about, now()))
    _print(sheets)


def describe_runtimes(agent: AgentClient, names: tuple[str, ...], output: str | None) -> None:
    """Print the details of the named runtimes, also for ``kubeletx runtime describe``.

    `output`: json or yaml; None: text, with the events of each runtime.
    """
    from ..describe.runtime import describe_runtime

    sheets = []
    for name in names:
        detail = agent.get(f"/v1/runtimes/{quote(name, safe='')}", RuntimeDetail)
        if output:
            print_object(detail, output)
        else:
            events = _events_of(agent, "Runtime", name.__eq__)
            sheets.append(describe_runtime(detail, events, now()))
    _print(sheets)


def _events_of(agent: AgentClient, kind: str, is_wanted: Callable[[str], bool]) -> list[Event]:
    events = agent.items("/v1/events", Event)
    return [e for e in events if e.involved_object.kind == kind and is_wanted(e.involved_object.name or "")]


def _print(sheets: Sequence[Sequence[str]]) -> None:
    for number, lines in enumerate(sheets):
        if number:
            click.echo("\n")
        for line in lines:
            click.echo(line)
