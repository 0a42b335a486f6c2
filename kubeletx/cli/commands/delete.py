"""``kubeletx delete``: ends pods and waits until they are gone; deletes config maps, secrets and claims."""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import click
import msgspec

from kubeletx.api import KubeletxError, NotFound, TimedOut, Unavailable
from kubeletx.server.views import DeleteOptions, PodHistory

from ..connection.client import AgentClient, Line, pod_path
from ..connection.pods import BriefPod
from ..options.common import DEFAULT_NAMESPACE, duration, namespace_option, with_agent
from ..options.completing import complete_kinds
from ..options.exit_codes import ExitCode
from ..options.go_flags import boolean, command
from ..options.group import show
from ..options.manifests import read_manifests
from ..output.kinds import OBJECT_PLURALS, OBJECTS, kinds_and_names

SAY_SECONDS = 10.0
"""Interval at which a waiting command says what it waits for."""


@command(short_help="Delete pods, config maps, secrets or claims.")
@click.argument(
    "words",
    nargs=-1,
    metavar="KIND NAME...",
    shell_complete=complete_kinds("pods", *OBJECT_PLURALS),
)
@click.option(
    "-f",
    "--filename",
    "files",
    multiple=True,
    metavar="FILE",
    help="Delete the pods and objects of this file.",
)
@click.option("-l", "--selector", default="", metavar="SELECTOR", help="Delete pods with these labels.")
@boolean("--all", "every", help="Delete all pods of the namespace.")
@click.option(
    "--grace-period",
    type=click.IntRange(min=-1),
    default=-1,
    metavar="SECONDS",
    help="Grace period; -1: the pod's own.",
)
@boolean("--now", "at_once", help="The same as --grace-period=1.")
@boolean("--force", help="With --grace-period=0: do not wait for a runtime that does not answer.")
@boolean("--wait/--no-wait", default=True, help="Wait until the pods are gone (default).")
@duration("--timeout", "0s", "How long to wait; 0s: no limit.")
@boolean("--ignore-not-found", help="Treat a missing object as deleted.")
@namespace_option
@boolean("-A", "--all-namespaces", help="With --all or --selector: in all namespaces.")
@click.option("-o", "--output", type=click.Choice(["name"]), metavar="name", help="Print pod/NAME only.")
@with_agent
def delete(
    agent: AgentClient,
    words: tuple[str, ...],
    files: tuple[str, ...],
    selector: str,
    every: bool,
    grace_period: int,
    at_once: bool,
    force: bool,
    wait: bool,
    timeout: float,
    ignore_not_found: bool,
    namespace: str,
    all_namespaces: bool,
    output: str | None,
) -> int:
    """Delete pods: 'delete pod NAME', 'delete pod/NAME', 'delete -f FILE' or 'delete pods --all'.

    Config maps, secrets and claims are deleted by name or file. The directory of a claim is kept.
    """
    if at_once and grace_period != -1:
        raise click.UsageError("give --now or --grace-period, not both")
    grace = 1 if at_once else grace_period
    if force and grace == -1:
        grace = 0
    if force and grace != 0:
        raise click.UsageError("--force needs --grace-period=0")
    options = DeleteOptions(grace_seconds=None if grace == -1 else grace, force=force)
    if force:
        click.echo("Warning: the pod's processes may go on if its runtime does not answer.", err=True)
    failed, terse = False, output is not None
    for kind, where, name in _targets(
        agent, words, files, selector, every, None if all_namespaces else namespace
    ):
        try:
            if kind == "pod":
                _delete_one(agent, where, name, options, wait=wait, timeout_seconds=timeout, terse=terse)
            else:
                _delete_object(agent, kind, where, name, terse=terse)
        except NotFound as error:
            if not ignore_not_found:
                failed = bool(show(error)) or failed
        except KubeletxError as error:
            failed = bool(show(error)) or failed
    return ExitCode.FAILED if failed else ExitCode.OK


def _targets(
    agent: AgentClient,
    words: tuple[str, ...],
    files: tuple[str, ...],
    selector: str,
    every: bool,
    namespace: str | None,
) -> Iterator[tuple[str, str, str]]:
    """Yield kind, namespace and name of what is to be deleted; of a file, the pods before their objects."""
    if files:
        from kubeletx.kube.manifests.load import load_all

        loaded = [load_all(manifest.data, manifest.origin) for manifest in read_manifests(files)]
        for found in (found for manifest in loaded for found in manifest.pods):
            yield "pod", found.pod.namespace or DEFAULT_NAMESPACE, found.pod.name
        for item in (held.item for manifest in loaded for held in manifest.objects):
            yield item.kind.lower(), item.metadata.namespace, item.metadata.name
        return
    if not words:
        raise click.UsageError("name what to delete, such as 'delete pod NAME', or give -f FILE")
    kinds = kinds_and_names(words)
    for kind, _ in kinds:
        if kind.singular != "pod" and kind.singular not in OBJECTS:
            raise click.UsageError(f"{kind.plural} cannot be deleted{_instead(kind.singular)}")
    names = [(kind.singular, name) for kind, some in kinds for name in some]
    if names and (selector or every):
        raise click.UsageError("give names, --selector or --all, not several of them")
    if not names and not selector and not every:
        raise click.UsageError(f"name the {kinds[0][0].plural}, or give --selector or --all")
    if names and namespace is None:
        raise click.UsageError("names belong to one namespace; leave out --all-namespaces")
    yield from ((kind, namespace or DEFAULT_NAMESPACE, name) for kind, name in names)
    if not names:
        for each, _ in kinds:
            for item in each.selected(agent, selector, namespace):
                yield each.singular, each.namespace(item), each.name(item)


def _instead(kind: str) -> str:
    return {
        "runtime": "; use 'kubeletx runtime remove NAME'",
        "image": "; use 'kubeletx image rm IMAGE'",
    }.get(kind, "")


def _delete_object(agent: AgentClient, kind: str, namespace: str, name: str, *, terse: bool) -> None:
    path = "/".join(quote(part, safe="") for part in (OBJECTS[kind], namespace, name))
    agent.call("DELETE", f"/v1/objects/{path}", dict[str, Any])
    click.echo(f"{kind}/{name}" if terse else f'{kind} "{name}" deleted')


def _delete_one(
    agent: AgentClient,
    namespace: str,
    name: str,
    options: DeleteOptions,
    *,
    wait: bool,
    timeout_seconds: float,
    terse: bool,
) -> None:
    agent.get(pod_path(namespace, name), BriefPod)  # raises NotFound, whose message suggests a similar name
    changes = agent.lines("GET", "/v1/pods", {"watch": True}) if wait else iter(())
    next(changes, None)  # the watch is open before the deletion begins
    agent.call("DELETE", pod_path(namespace, name), BriefPod, body=msgspec.json.encode(options))
    said = f'pod "{name}" {"force deleted" if options.force else "deleted"}'
    click.echo(f"pod/{name}" if terse else said)
    if wait:
        _wait(agent, changes, namespace, name, timeout_seconds)


def _wait(
    agent: AgentClient, changes: Iterator[Line], namespace: str, name: str, timeout_seconds: float
) -> None:
    """Wait until the watch `changes` has reported the end of every pod that has this name now.

    Every `SAY_SECONDS`, say on standard error what the agent waits for, if that is new. Raises TimedOut after
    `timeout_seconds` (0: no limit), Unavailable if the agent ends the watch.
    """
    end = time.monotonic() + (timeout_seconds or math.inf)
    said = ""

    def ring(*_: object) -> None:
        nonlocal said
        if time.monotonic() >= end:
            raise TimedOut(
                f"pod {namespace}/{name} is still ending after {timeout_seconds:g}s; see 'kubeletx describe pod'"
            )
        text = _waits_for(agent, namespace, name)
        if text != said:
            click.echo(f"Waiting for pod {namespace}/{name}: {text}", err=True)
            said = text
        arm()

    def arm() -> None:
        signal.setitimer(signal.ITIMER_REAL, max(min(SAY_SECONDS, end - time.monotonic()), 0.001))

    before = signal.signal(signal.SIGALRM, ring)
    arm()
    try:
        pods = agent.items("/v1/pods", BriefPod)
        left = {pod.metadata.uid for pod in pods if (pod.namespace, pod.name) == (namespace, name)}
        while left:
            line = next(changes)
            if line.type == "DELETED":
                left.discard(msgspec.json.decode(line.object, type=BriefPod).metadata.uid)
    except StopIteration:
        raise Unavailable(f"the agent ended the watch before pod {namespace}/{name} was gone") from None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _waits_for(agent: AgentClient, namespace: str, name: str) -> str:
    """Return what holds up the end of a pod: containers that run, and the agent's last action on the pod."""
    try:
        pod = agent.get(pod_path(namespace, name), BriefPod)
        items = agent.get(pod_path(namespace, name, "history"), PodHistory).items
    except KubeletxError as error:  # it has just gone, or the agent is restarting; the watch shows which
        return error.message
    running = [status.name for status in pod.status.container_statuses if status.state.running is not None]
    last = f"{items[-1].action}: {items[-1].result}" if items else "the agent has done nothing yet"
    return f"containers run: {', '.join(running)}; {last}" if running else last
