"""``kubeletx session usage``: shows what applications and their sessions have used, for billing."""

from __future__ import annotations

import click

from kubeletx.kube.text.human import age
from kubeletx.server.session_views import SessionUsageList

from ...connection.client import AgentClient
from ...options.common import namespace_option, output_option, with_agent
from ...options.go_flags import Command, boolean
from ...output.printers import Column, is_document, print_object, print_table, shown

_COSTS = (
    Column("OPEN SECONDS", lambda row, _: f"{row.costs.open_seconds:.1f}"),
    Column("CLIENT SECONDS", lambda row, _: f"{row.costs.client_seconds:.1f}"),
    Column("CPU SECONDS", lambda row, _: f"{row.costs.cpu_seconds:.3f}"),
    Column("MEMORY GIB SECONDS", lambda row, _: f"{row.costs.memory_byte_seconds / (1 << 30):.3f}"),
)
_APPLICATIONS = (
    Column("NAMESPACE", lambda row, _: row.namespace or "(others)"),
    Column("APPLICATION", lambda row, _: row.application),
    Column("SESSIONS", lambda row, _: str(row.costs.opened)),
    *_COSTS,
)
_SESSIONS = (
    Column("SESSION", lambda row, _: f"{row.namespace}/{row.name}"),
    Column("APPLICATION", lambda row, _: row.application),
    Column("INSTANCE", lambda row, _: row.pod),
    Column("OPENED", lambda row, now: age(row.opened_at, now)),
    Column("ENDED", lambda row, now: age(row.closed_at, now)),
    *_COSTS,
)


@click.command(cls=Command)
@output_option("wide", "json", "yaml")
@namespace_option
@boolean("-A", "--all-namespaces", help="All namespaces.")
@with_agent
def usage(agent: AgentClient, output: str | None, namespace: str, all_namespaces: bool) -> None:
    """Show what applications have used. With -o wide also each session of the last ten minutes.

    Sessions of one pod share its CPU and memory equally. JSON also has the ends of the pod's logs when a session opened and
    ended.
    """
    usages = agent.get("/v1/session-usage", SessionUsageList)
    if not all_namespaces:
        usages = SessionUsageList(
            applications=tuple(
                application for application in usages.applications if application.namespace == namespace
            ),
            sessions=tuple(session for session in usages.sessions if session.namespace == namespace),
        )
    if is_document(output):
        print_object(usages, output)
    elif not usages.applications:
        click.echo("No sessions found.", err=True)
    else:
        print_table(shown(_APPLICATIONS), usages.applications)
        if output == "wide" and usages.sessions:
            click.echo()
            print_table(shown(_SESSIONS), usages.sessions)
