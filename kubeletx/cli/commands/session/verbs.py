"""``kubeletx session``: opens, lists, describes and closes application sessions on pods of this node."""

from __future__ import annotations

import sys
from typing import BinaryIO
from urllib.parse import quote

import click
import msgspec

from kubeletx.server.session_views import SessionList, SessionRequest, SessionView

from ...connection.client import AgentClient
from ...options.common import duration, in_namespace, namespace_option, output_option, split_pod, with_agent
from ...options.completing import complete_pods, complete_sessions
from ...options.exit_codes import ExitCode
from ...options.go_flags import Group, boolean
from ...output.columns import SESSION
from ...output.printers import FORMATS, is_document, print_list, print_object
from ...output.words import now
from .usage import usage

_PATH = "/v1/sessions"
_MARGIN_SECONDS = 60.0
"""Added to a session's own limits: the agent waits some seconds longer than a close's grace period."""
_ENDED = "Terminated"


@click.group(cls=Group, short_help="Open, list, describe, close and measure sessions.")
def session() -> None:
    """Application sessions on pods whose application serves them (docs/sessions.md).

    An open session keeps its pod awake. Ended sessions are shown for ten minutes.
    """


session.add_command(usage)


def _path(namespace: str, name: str) -> str:
    return f"{_PATH}/{quote(namespace, safe='')}/{quote(name.rpartition('/')[2], safe='')}"


@session.command("open")
@click.argument("pod", shell_complete=complete_pods)
@click.option(
    "--name", default="", metavar="NAME", help="Name of the session; by default the agent chooses one."
)
@click.option(
    "--application", default="", metavar="NAME", help="Name of the application, for reports on usage."
)
@click.option("--data", default=None, metavar="TEXT", help="Data for the application.")
@click.option(
    "--data-file", type=click.File("rb"), metavar="FILE", help="File with the data; - is standard input."
)
@duration("--open-timeout", "10s", "How long opening may take.")
@duration("--close-grace", "60s", "How long the application may take to close it.")
@boolean("--kill-instance", help="End the pod when the session ends.")
@boolean("--wait/--no-wait", default=True, help="Wait until the session is open (default).")
@output_option("json", "yaml")
@in_namespace
def open_(
    agent: AgentClient,
    pod: str,
    name: str,
    application: str,
    data: str | None,
    data_file: BinaryIO | None,
    open_timeout: float,
    close_grace: float,
    kill_instance: bool,
    wait: bool,
    output: str | None,
    namespace: str,
) -> int:
    """Open a session on a pod; a frozen pod wakes. The same command again does nothing more."""
    if data is not None and data_file is not None:
        raise click.UsageError("give --data or --data-file, not both")
    content = data_file.read() if data_file is not None else (data or "").encode()
    request = SessionRequest(
        namespace=namespace,
        pod=split_pod(pod),
        name=name,
        application=application,
        data=content,
        kill_instance=kill_instance,
        open_timeout_seconds=open_timeout,
        close_grace_seconds=close_grace,
    )
    opened = agent.call(
        "POST",
        _PATH,
        SessionView,
        {"wait": wait},
        msgspec.json.encode(request),
        timeout=open_timeout + _MARGIN_SECONDS,
    )
    return _show(opened, output, failed=opened.state == _ENDED)


@session.command("list")
@output_option(*FORMATS)
@namespace_option
@boolean("-A", "--all-namespaces", help="All namespaces.")
@with_agent
def list_(agent: AgentClient, output: str | None, namespace: str, all_namespaces: bool) -> None:
    """List the sessions of this node."""
    sessions = agent.get(_PATH, SessionList).items
    items = [session for session in sessions if all_namespaces or session.namespace == namespace]
    print_list(items, output, "session", SESSION)


@session.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...", shell_complete=complete_sessions)
@output_option("wide", "json", "yaml")
@in_namespace
def describe(agent: AgentClient, names: tuple[str, ...], output: str | None, namespace: str) -> None:
    """Show everything about sessions. With -o wide also their data, as far as it is text."""
    from ...describe.session import describe_session

    sessions = [agent.get(_path(namespace, name), SessionView) for name in names]
    if is_document(output):
        print_object(sessions[0] if len(sessions) == 1 else SessionList(items=tuple(sessions)), output)
    else:
        sheets = ("\n".join(describe_session(session, now(), wide=output == "wide")) for session in sessions)
        click.echo("\n\n".join(sheets))


@session.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...", shell_complete=complete_sessions)
@click.option(
    "--grace-period",
    type=click.IntRange(min=-1),
    default=-1,
    metavar="SECONDS",
    help="Time for the application; -1: the session's own.",
)
@boolean("--wait/--no-wait", default=True, help="Wait until the sessions have ended (default).")
@in_namespace
def close(agent: AgentClient, names: tuple[str, ...], grace_period: int, wait: bool, namespace: str) -> None:
    """Close sessions. A pod without open sessions may be frozen again."""
    for name in names:
        path = _path(namespace, name)
        grace = agent.get(path, SessionView).close_grace_seconds if grace_period < 0 else grace_period
        parameters = {"wait": wait, "gracePeriodSeconds": None if grace_period < 0 else grace_period}
        _show(agent.call("DELETE", path, SessionView, parameters, timeout=grace + _MARGIN_SECONDS), None)


def _show(session: SessionView, output: str | None, *, failed: bool = False) -> int:
    if output is not None:
        print_object(session, output)
    else:
        why = ": ".join(text for text in (session.reason, session.message) if text)
        text = f"session/{session.name} {session.state}" + (f" ({why})" if why else "")
        click.echo(text, file=sys.stderr if failed else None)
    return ExitCode.FAILED if failed else ExitCode.OK
