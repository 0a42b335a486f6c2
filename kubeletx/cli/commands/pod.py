"""``kubeletx pod``: freezes, hibernates and wakes pods of containers and of machines."""

from __future__ import annotations

import click

from kubeletx.server.views import StandbyView

from ..connection.client import AgentClient, pod_path
from ..options.common import duration, in_namespace, output_option, split_pod
from ..options.completing import complete_pods
from ..options.go_flags import Group, boolean
from ..output.printers import print_object
from ..output.progress import ProgressLine

_DOING = {"standby": "freezing", "hibernate": "hibernating", "activate": "waking"}
_TIMEOUT = duration("--timeout", "60s", "Longest wait; a request for a pod that is not ready stays in force.")


@click.group(cls=Group, short_help="Freeze, hibernate and wake pods.")
def pod() -> None:
    """Verbs of pods on a runtime that can freeze containers or machines. NAME is the pod's name.

    A request stays in force, also after a restart of the agent, until the opposite one. 'kubeletx get pods' shows
    which pods are frozen, 'kubeletx describe pod NAME' since when, and why a pod is not.
    """


@pod.command()
@click.argument("name", shell_complete=complete_pods)
@boolean(
    "--hibernate",
    help="Also reclaim its memory, as far as possible; the first answer after a wake then takes longer.",
)
@_TIMEOUT
@output_option("json", "yaml")
@in_namespace
def standby(
    agent: AgentClient, name: str, hibernate: bool, timeout: float, output: str | None, namespace: str
) -> None:
    """Freeze a pod once it is ready; it keeps its memory and uses no CPU time.

    Exec, attach and each connection of a port-forward wake the pod while they last. A command replaces the request of
    annotation kubeletx.io/standby.
    """
    _change(agent, "hibernate" if hibernate else "standby", name, namespace, timeout, output)


@pod.command()
@click.argument("name", shell_complete=complete_pods)
@_TIMEOUT
@output_option("json", "yaml")
@in_namespace
def activate(agent: AgentClient, name: str, timeout: float, output: str | None, namespace: str) -> None:
    """Wake a pod that is frozen or hibernated.

    It then runs until 'kubeletx pod standby' is given.
    """
    _change(agent, "activate", name, namespace, timeout, output)


def _change(
    agent: AgentClient, verb: str, name: str, namespace: str, timeout: float, output: str | None
) -> None:
    short = split_pod(name)
    with ProgressLine(f"{_DOING[verb]} pod/{short}"):
        standby = agent.wait_for(pod_path(namespace, short, f"standby/{verb}"), StandbyView, timeout)
    if output is not None:
        print_object(standby, output)
    else:
        click.echo(f"pod/{standby.name} {standby.power}")
