"""``kubeletx fornaxcore status``: shows the node's cores, and what each of them got and acknowledged."""

from __future__ import annotations

import click

from kubeletx.fornax.views import FornaxStatus
from kubeletx.kube.text.human import age

from ...connection.client import AgentClient
from ...options.common import output_option, with_agent
from ...options.go_flags import Group
from ...output.printers import Column, is_document, print_object, print_table, shown

_COLUMNS = (
    Column("CORE", lambda row, _: row.address),
    Column("IDENTIFIER", lambda row, _: row.identifier, wide=True),
    Column("ROLE", lambda row, _: row.role),
    Column("LINK", lambda row, _: _link(row.connected, row.registered)),
    Column("SINCE", lambda row, now: age(row.since, now)),
    Column("ACKNOWLEDGED", lambda row, _: str(row.acknowledged)),
    Column("QUEUE", lambda row, _: str(row.queue)),
    Column("FULL STATE", lambda row, now: age(row.full_at, now)),
    Column("SENT", lambda row, _: str(sum(row.sent.values())), wide=True),
    Column("FULL STATES", lambda row, _: str(_full_states(row.sent)), wide=True),
    Column("OVERFLOWS", lambda row, _: str(row.overflows), wide=True),
    Column("RECEIVED", lambda row, _: str(row.received), wide=True),
    Column("REFUSED", lambda row, _: str(row.refused)),
    Column("FAILURES", lambda row, _: str(row.failures)),
    Column("PROBLEM", lambda row, _: row.problem),
)


@click.group(cls=Group, short_help="Show the node's connections to FornaxCores.")
def fornaxcore() -> None:
    """Show the node's connections to FornaxCores (--fornaxcore-url)."""


@fornaxcore.command()
@output_option("wide", "json", "yaml")
@with_agent
def status(agent: AgentClient, output: str | None) -> None:
    """Show each FornaxCore: its role, the connection, the last revision that it acknowledged, and what waits.

    FULL STATE is the age of the last complete list of pods and sessions that the core got.
    """
    answer = agent.get("/v1/fornaxcore", FornaxStatus)
    if is_document(output):
        print_object(answer, output)
        return
    ready = "ready" if answer.ready else "not ready"
    click.echo(f"Node {answer.identifier}: {answer.state}, {ready}, revision {answer.revision}")
    for what, count in answer.repaired.items():
        if count:
            click.echo(f"Repaired: {what} {count}")
    print_table(shown(_COLUMNS, wide=output == "wide"), answer.cores)


def _full_states(sent: dict[str, int]) -> int:
    return sent.get("NODE_STATE", 0) + sent.get("NODE_READY", 0)


def _link(is_connected: bool, is_registered: bool) -> str:
    if not is_connected:
        return "down"
    return "registered" if is_registered else "registering"
