"""``kubeletx vm snapshot``: creates, lists, restores and deletes snapshots of a machine."""

from __future__ import annotations

from datetime import datetime

import click
import msgspec

from kubeletx.server.views import MachineView, SnapshotRequest, SnapshotView

from ...connection.client import AgentClient
from ...options.common import namespace_option, now, output_option, with_agent
from ...options.completing import complete_pods
from ...options.exit_codes import ExitCode
from ...options.go_flags import Group, boolean
from ...output.ages import age
from ...output.printers import Column, human_bytes, print_list
from .paths import item_path, vm_path

LONGEST_SECONDS = 900.0
_COLUMNS = (
    Column("NAME"),
    Column("MEMORY"),
    Column("CURRENT"),
    Column("PARENT"),
    Column("SIZE"),
    Column("AGE"),
)


class SnapshotList(msgspec.Struct, frozen=True):
    """The agent's answer to a request for a machine's snapshots."""

    items: tuple[SnapshotView, ...] = ()


@click.group(cls=Group, short_help="Create, list, restore and delete snapshots.")
def snapshot() -> None:
    """Manage snapshots of a machine's disks, optionally with its memory."""


@snapshot.command()
@click.argument("name", shell_complete=complete_pods)
@click.argument("snapshot_name", metavar="SNAPSHOT")
@boolean("--memory", help="Include the state of the running guest.")
@namespace_option
@with_agent
def create(agent: AgentClient, name: str, snapshot_name: str, memory: bool, namespace: str) -> int:
    """Make a snapshot."""
    body = msgspec.json.encode(SnapshotRequest(name=snapshot_name, memory=memory))
    path = vm_path(namespace, name, "snapshots")
    made = agent.call("POST", path, SnapshotView, body=body, timeout=LONGEST_SECONDS)
    click.echo(f"snapshot/{made.name} created" + (" with memory" if made.with_memory else ""))
    return ExitCode.OK


@snapshot.command("list")
@click.argument("name", shell_complete=complete_pods)
@output_option("json", "yaml", "name")
@namespace_option
@with_agent
def list_(agent: AgentClient, name: str, output: str | None, namespace: str) -> int:
    """List a machine's snapshots, oldest first."""
    found = agent.get(vm_path(namespace, name, "snapshots"), SnapshotList)
    at = now()
    print_list(found, output, "snapshot", _COLUMNS, [_row(one, at) for one in found.items])
    return ExitCode.OK


def _row(one: SnapshotView, at: datetime) -> list[str]:
    return [
        one.name,
        "yes" if one.with_memory else "no",
        "*" if one.current else "",
        one.parent,
        human_bytes(one.size_bytes),
        age(one.created_at, at),
    ]


@snapshot.command()
@click.argument("name", shell_complete=complete_pods)
@click.argument("snapshot_name", metavar="SNAPSHOT")
@namespace_option
@with_agent
def restore(agent: AgentClient, name: str, snapshot_name: str, namespace: str) -> int:
    """Restore a machine from a snapshot; later changes are lost."""
    path = item_path(namespace, name, "snapshots", snapshot_name, "restore")
    agent.call("POST", path, MachineView, timeout=LONGEST_SECONDS)
    click.echo(f"snapshot/{snapshot_name} restored")
    return ExitCode.OK


@snapshot.command()
@click.argument("name", shell_complete=complete_pods)
@click.argument("snapshot_name", metavar="SNAPSHOT")
@namespace_option
@with_agent
def delete(agent: AgentClient, name: str, snapshot_name: str, namespace: str) -> int:
    """Delete a snapshot; the machine does not change."""
    path = item_path(namespace, name, "snapshots", snapshot_name)
    agent.call("DELETE", path, MachineView, timeout=LONGEST_SECONDS)
    click.echo(f"snapshot/{snapshot_name} deleted")
    return ExitCode.OK
